package scheduler

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

func TestWhichRepositoriesAWorkspaceMayName(t *testing.T) {
	tests := []struct {
		name, allowed, repo string
		want                bool
	}{
		{"the repository itself", "https://github.com/org/app", "https://github.com/org/app", true},
		{"with .git", "https://github.com/org/app", "https://github.com/org/app.git", true},
		{"without it, where the list has it", "https://github.com/org/app.git", "https://github.com/org/app", true},
		{"with a slash at its end", "https://github.com/org/app", "https://github.com/org/app/", true},
		{"one below an organisation", "https://github.com/org", "https://github.com/org/app", true},
		{"one below an organisation with a slash", "https://github.com/org/", "https://github.com/org/app", true},
		{"one below groups", "https://gitlab.example/org", "https://gitlab.example/org/team/app.git", true},
		{"one of a whole server", "https://git.example", "https://git.example/any/app", true},
		{"its host in capitals", "https://GitHub.com/org", "HTTPS://github.COM/org/app", true},
		{"its host with a dot at the end", "https://github.com/org", "https://github.com./org/app", true},
		{"with the scheme's own port", "https://github.com/org", "https://github.com:443/org/app", true},
		{"with a user and a token", "https://github.com/org", "https://user:token@github.com/org/app", true},
		{"by ssh", "https://github.com/org", "ssh://git@github.com/org/app.git", true},
		{"by ssh with its port", "https://github.com/org", "ssh://git@github.com:22/org/app.git", true},
		{"by ssh's short form", "https://github.com/org", "git@github.com:org/app.git", true},
		{"by ssh's short form with a slash", "https://github.com/org", "git@github.com:/org/app.git", true},
		{"by https, where the list has ssh's short form", "git@github.com:org", "https://github.com/org/app", true},
		{"with an encoded letter", "https://github.com/org", "https://github.com/%6frg/app", true},
		{"of this machine", "file:///srv/git", "file:///srv/git/app", true},
		{"of a server on IPv6", "https://[2001:db8::1]/org", "https://[2001:DB8::1]/org/app", true},

		{"a registry", "oci://registry.example/team", "oci://registry.example/team/charts/web", true},
		{"a chart repository", "https://charts.example/team", "https://charts.example/team/", true},

		{"a git server's host as a registry", "https://git.example/team", "oci://git.example/team/web", false},
		{"a registry's host as a chart repository", "oci://registry.example/team", "https://registry.example/team", false},
		{"another team's part of a registry", "oci://registry.example/team", "oci://registry.example/team-evil/web", false},
		{"an organisation that begins alike", "https://github.com/org", "https://github.com/org-evil/app", false},
		{"a repository that begins alike", "https://github.com/org/app", "https://github.com/org/app-evil", false},
		{"a repository beside it", "https://github.com/org/app", "https://github.com/org/other", false},
		{"the organisation above", "https://github.com/org/app", "https://github.com/org", false},
		{"another case of the path", "https://github.com/org", "https://github.com/Org/app", false},
		{"a host that ends alike", "https://github.com/org", "https://evilgithub.com/org/app", false},
		{"a host that begins alike", "https://github.com/org", "https://github.com.evil.example/org/app", false},
		{"a host as the user of another", "https://github.com/org", "https://github.com@evil.example/org/app", false},
		{"a host as the user and password of another", "https://github.com/org", "https://github.com:org@evil.example/app", false},
		{"a host before a backslash", "https://github.com/org", `https://github.com\@evil.example/org/app`, false},
		{"a host before a fragment", "https://github.com/org", "https://github.com#@evil.example/org/app", false},
		{"a host before a query", "https://github.com/org", "https://github.com?@evil.example/org/app", false},
		{"a host with a letter that looks alike", "https://github.com/org", "https://gіthub.com/org/app", false},
		{"a way up", "https://github.com/org", "https://github.com/org/../evil/app", false},
		{"an encoded way up", "https://github.com/org", "https://github.com/org/%2e%2e/evil/app", false},
		{"a way up encoded twice", "https://github.com/org", "https://github.com/org/%252e%252e/evil/app", false},
		{"an encoded slash", "https://github.com/org", "https://github.com/org%2f..%2fevil/app", false},
		{"a backslash", "https://github.com/org", `https://github.com/org\..\..\evil/app`, false},
		{"an encoded backslash", "https://github.com/org", "https://github.com/org/%5c..%5cevil", false},
		{"two slashes", "https://github.com/org", "https://github.com//org/app", false},
		{"a query", "https://github.com/org", "https://github.com/org/app?x=1", false},
		{"a query without content", "https://github.com/org", "https://github.com/org/app?", false},
		{"an encoded fragment", "https://github.com/org", "https://github.com/org/app%23main", false},
		{"a fragment", "https://github.com/org", "https://github.com/org/app#main", false},
		{"another port", "https://github.com/org", "https://github.com:8443/org/app", false},
		{"the other scheme's port", "https://github.com/org", "https://github.com:22/org/app", false},
		{"http, which anybody on the way can change", "https://github.com/org", "http://github.com/org/app", false},
		{"https, where the list has http", "http://github.com/org", "https://github.com/org/app", false},
		{"git's own protocol", "https://github.com/org", "git://github.com/org/app", false},
		{"a program", "https://github.com/org", "ext::sh -c https://github.com/org/app", false},
		{"a file", "https://github.com/org", "file:///github.com/org/app", false},
		{"a file of another machine", "file:///srv/git", "file://evil/srv/git/app", false},
		{"a folder", "https://github.com/org", "github.com/org/app", false},
		{"a folder above", "https://github.com/org", "../github.com/org/app", false},
		{"ssh's short form of a host that begins alike", "https://github.com/org", "git@github.com.evil.example:org/app", false},
		{"ssh's short form with a way up", "https://github.com/org", "git@github.com:org/../evil/app", false},
		{"an option in place of a host", "https://github.com/org", "ssh://-oProxyCommand=x/org/app", false},
		{"a line break", "https://github.com/org", "https://github.com/org/app\nhttps://evil.example", false},
		{"nothing", "https://github.com/org", "", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := NewModel("dev")
			require.NoError(t, load(m, "", "p.yaml", platformWith(fmt.Sprintf("    - name: team\n      repositories: [%q]\n", test.allowed))))
			err := m.CheckRegistration(WorkloadRegistration{Name: "reg", Workspace: "team", Workload: repositoryAt(test.repo)})
			if test.want {
				require.NoError(t, err)
				return
			}
			require.Equal(t, WorkspaceNotAllowed, ReasonOf(err, RenderFailed))
			require.Equal(t, finding.CodeWorkspaceNotAllowed, finding.In(err)[0].Code)
		})
	}
}

func TestARegistrationThatIsNotAllowedNamesNoToken(t *testing.T) {
	m := NewModel("dev")
	require.NoError(t, load(m, "", "p.yaml", platformWith("    - {name: team, repositories: [\"https://github.com/org\"]}\n")))
	for _, repo := range []string{
		"https://t0ken@evil.example/app", "https://x:t0ken@evil.example/app", "https://evil.example/app?token=t0ken", "https://evil.example/app#t0ken",
		"https://x:t0ken@ev il.example/app", "t0ken@evil.example:app", "https://x:t0ken@evil.example/../app",
	} {
		err := m.CheckRegistration(WorkloadRegistration{Name: "reg", Workspace: "team", Workload: repositoryAt(repo)})
		require.ErrorContains(t, err, `registration "reg": workspace "team" may not use`, repo)
		require.NotContains(t, err.Error(), "t0ken", repo)
	}
}

func TestThereIsNoWayAroundTheRepositories(t *testing.T) {
	const bound = "    - {name: team, repositories: [\"https://github.com/org\"]}\n    - {name: free}\n"
	tests := []struct{ name, platform, workspace, repo, want string }{
		{"no Platform", "", "team", "https://evil.example/app", ""},
		{"no workspace is bound", "    - {name: team}\n", "other", "https://evil.example/app", ""},
		{"its own repository", bound, "team", "https://github.com/org/app", ""},
		{"a workspace that is listed without repositories", bound, "free", "https://evil.example/app", ""},
		{"another repository", bound, "team", "https://evil.example/app", `registration "reg": workspace "team" may not use repository evil.example/app`},
		{"no workspace", bound, "", "https://github.com/org/app", `registration "reg" has no workspace: the Platform binds workspaces to repositories`},
		{"a workspace that is not listed", bound, "teem", "https://github.com/org/app", `registration "reg" has workspace "teem", which the Platform does not list: the Platform binds workspaces to repositories (did you mean "team"?)`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := NewModel("dev")
			if test.platform != "" {
				require.NoError(t, load(m, "", "p.yaml", platformWith(test.platform)))
			}
			require.NoError(t, load(m, "", "r.yaml", fmt.Sprintf("apiVersion: scheduler.kalypso.io/v1alpha1\nkind: WorkloadRegistration\nmetadata: {name: reg}\nspec: {workspace: %q, workload: {repo: %q}}\n", test.workspace, test.repo)))
			err := load(m, "reg", "w.yaml", oneTarget)
			if test.want == "" {
				require.NoError(t, err)
				require.Len(t, m.Targets(), 1)
				return
			}
			require.ErrorContains(t, err, "r.yaml:1: "+test.want)
			require.Equal(t, WorkspaceNotAllowed, ReasonOf(err, RenderFailed))
			require.Empty(t, m.Targets(), "nothing of it counts")
		})
	}
}

func TestMistakesInATenant(t *testing.T) {
	tests := []struct{ workspace, want string }{
		{`owners: [payments]`, `workspace "a": "payments" cannot be an owner (write @ORG/TEAM, @USER or a mail address)`},
		{`owners: ["@org/a @org/b"]`, "cannot be an owner"},
		{`owners: ["@org/a # x"]`, "cannot be an owner"},
		{`owners: ["@org/a\n* @org/a"]`, "cannot be an owner"},
		{`owners: [""]`, "cannot be an owner"},
		{`groups: [{role: edit}]`, `workspace "a": a group has no name`},
		{`groups: [{name: g}, {name: g, role: edit}]`, `group "g" has role "edit" twice`},
		{`groups: [{name: g, role: a/b}]`, `group "g": "a/b" cannot be a role`},
		{`groups: [{name: "a\nb"}]`, `cannot be a group`},
		{`groups: [g]`, "spec.workspaces[0].groups[0] must be a mapping"},
		{`repositories: []`, "the list of repositories is empty"},
		{`repositories: ["https://github.com/*"]`, "repositories[0]: its path has"},
		{`repositories: ["github.com/org"]`, "repositories[0]: expected the URL of a git repository"},
		{`repositories: ["https://"]`, "repositories[0]: expected the URL of a git repository"},
		{`repositories: [""]`, "repositories[0]: expected the URL of a git repository"},
		{`repositories: ["https://a/b", "https://x:t0ken@a/b?c"]`, "repositories[1]: it has a query"},
		{`createServiceAccount: yes please`, "createServiceAccount must be true or false"},
		{`createServiceAccount: "true"`, "createServiceAccount must be true or false"},
		{`createServiceAccount: true, serviceAccount: x/y`, `createServiceAccount: "x/y" is not in the namespaces of its assignments`},
		{`namespaces: {labels: {"a b": c}}`, "namespaces.labels: name part must consist of"},
		{`namespaces: {labels: {a: "b c"}}`, "namespaces.labels"},
		{`namespaces: {annotations: {"a b": c}}`, "namespaces.annotations: name part must consist of"},
	}
	for _, test := range tests {
		err := load(NewModel("dev"), "", "a.yaml", platformWith("    - {name: a, "+test.workspace+"}\n"))
		require.ErrorContains(t, err, test.want, test.workspace)
		require.ErrorContains(t, err, "a.yaml:6: ")
		require.NotContains(t, err.Error(), "t0ken")
	}
	err := load(NewModel("dev"), "", "a.yaml", platformWith("    - {name: a}\n")+"  owners: [x]\n")
	require.ErrorContains(t, err, `the Platform: "x" cannot be an owner`)
	require.NoError(t, load(NewModel("dev"), "", "a.yaml", platformWith(`    - {name: a, owners: ["@org/team", "@user", "team@example.com", "@group/sub/team"], createServiceAccount: true}
`)))
}

func TestTemplatesSeeTheTenant(t *testing.T) {
	const text = "{{ range .Groups }}{{ .Name }}:{{ .Role }} {{ end }}{{ .ServiceAccount }} {{ .NamespaceLabels.cost }} {{ .NamespaceAnnotations.note }}"
	render := func(cache Cache, group string) string {
		m := NewModel("dev")
		platform := platformWith("    - {name: team, createServiceAccount: true, groups: [{name: " + group + "}, {name: ops, role: view}], namespaces: {labels: {cost: \"42\"}, annotations: {note: hello}}}\n")
		require.NoError(t, load(m, "", "p.yaml", strings.Replace(basics, `"{{ .Namespace }}"`, `"`+text+`"`, 1)+platform))
		require.NoError(t, load(m, "reg", "w.yaml", oneTarget))
		result, err := m.Render(t.Context(), Options{Cache: cache, RefuseMissing: true})
		require.NoError(t, err)
		return content(only(t, result), "namespace.yaml")
	}
	cache := newMemoryCache()
	require.Equal(t, "devs:edit ops:view wherry-team 42 hello", render(cache, "devs"))
	require.Equal(t, "devs:edit ops:view wherry-team 42 hello", render(cache, "devs"), "what was kept")
	require.Equal(t, "others:edit ops:view wherry-team 42 hello", render(cache, "others"), "what was kept is not of use any more")
}

// FuzzRepositories looks for a URL that an allowed one lets through although git would ask another server.
func FuzzRepositories(f *testing.F) {
	for _, seed := range []string{"https://github.com/org/app", "git@github.com:org/app", "https://github.com@evil/org", "ssh://github.com:22/org/%2e"} {
		f.Add(seed)
	}
	allowed, err := parseGitPlace("https://github.com/org")
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, repo string) {
		p, err := parseGitPlace(repo)
		if err != nil || !allowed.holds(p) {
			return
		}
		again, err := parseGitPlace("https://" + p.String() + ".git")
		require.NoError(t, err)
		require.Equal(t, p, again, "its text is the same place")
		require.True(t, strings.HasPrefix(p.String()+"/", "github.com/org/"), p.String())
		require.NotContains(t, p.String(), "..")
	})
}

func repositoryAt(url string) kinds.Repository { return kinds.Repository{Repo: url} }
