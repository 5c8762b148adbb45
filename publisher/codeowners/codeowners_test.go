package codeowners

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

const platformYAML = `apiVersion: wherry.dev/v1alpha1
kind: Platform
metadata: {name: p}
spec:
  owners: ["@org/platform", ops@example.com]
  workspaces:
    - {name: pay, owners: ["@org/pay"], repositories: ["https://github.com/org/pay"]}
    - {name: shop, owners: ["@org/shop", "@ann"]}
    - {name: nobody}
`

func registration(name, workspace string) string {
	return fmt.Sprintf("apiVersion: scheduler.kalypso.io/v1alpha1\nkind: WorkloadRegistration\nmetadata: {name: %s}\nspec: {workspace: %s}\n", name, workspace)
}

func configMap(name, labels string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", labels: {" + labels + "}}\n"
}

const (
	policy = "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: SchedulingPolicy\nmetadata: {name: p}\nspec: {deploymentTargetSelector: {workspace: pay}}\n"
	own    = "platform-config: \"true\", workspace: pay"
)

// files are the files of a platform by path, each with its text and its owner; "" is the platform team.
var files = map[string]struct{ text, owner string }{
	"platform.yaml":              {platformYAML, ""},
	"README.md":                  {"text", ""},
	"teams/pay.yaml":             {registration("pay", "pay"), "pay"},
	"teams/two of pay.yml":       {registration("a", "pay") + "---\n" + registration("b", "pay"), "pay"},
	"teams/list.yaml":            {"apiVersion: v1\nkind: List\nitems:\n  - {apiVersion: scheduler.kalypso.io/v1alpha1, kind: WorkloadRegistration, metadata: {name: l}, spec: {workspace: pay}}\n", "pay"},
	"teams/shop.json":            {`{"apiVersion": "scheduler.kalypso.io/v1alpha1", "kind": "WorkloadRegistration", "metadata": {"name": "s"}, "spec": {"workspace": "shop"}}`, "shop"},
	"dev/config.yaml":            {configMap("c", own), "pay"},
	"dev/narrow.yaml":            {configMap("narrow", own+", region: north"), "pay"},
	"dev/schema.yaml":            {"apiVersion: scheduler.kalypso.io/v1alpha1\nkind: ConfigSchema\nmetadata: {name: s, labels: {workspace: shop}}\n", "shop"},
	"dev/with-comment.yaml":      {"# pay\n---\n" + configMap("d", own) + "---\n", "pay"},
	"ünïcode/pay.yaml":           {registration("u", "pay"), "pay"},
	"teams/none.yaml":            {registration("none", `""`), ""},
	"teams/unknown.yaml":         {registration("x", "unknown"), ""},
	"teams/without-owners.yaml":  {registration("y", "nobody"), ""},
	"teams/of-two.yaml":          {registration("a", "pay") + "---\n" + registration("b", "shop"), ""},
	"teams/with-policy.yaml":     {registration("a", "pay") + "---\n" + policy, ""},
	"teams/with-foreign.yaml":    {registration("a", "pay") + "---\napiVersion: v1\nkind: Secret\n", ""},
	"teams/with-nothing.yaml":    {registration("a", "pay") + "---\n- a list\n", ""},
	"teams/broken.yaml":          {registration("a", "pay") + "---\n\t:", ""},
	"teams/wrong.yaml":           {strings.Replace(registration("a", "pay"), "workspace: pay", "workspace: pay, workload: 3", 1), ""},
	"teams/twice.yaml":           {strings.Replace(registration("a", "pay"), "workspace: pay", "workspace: pay, workspace: shop", 1), ""},
	"teams/list-of-two.yaml":     {"apiVersion: v1\nkind: List\nitems:\n  - {apiVersion: scheduler.kalypso.io/v1alpha1, kind: WorkloadRegistration, metadata: {name: l}, spec: {workspace: pay}}\n  - " + strings.ReplaceAll(policy, "\n", "\n    ") + "\n", ""},
	"empty.yaml":                 {"", ""},
	"dev/for-all.yaml":           {configMap("c", `platform-config: "true"`), ""},
	"dev/not-the-platforms.yaml": {configMap("c", "workspace: pay"), ""},
	"dev/azure.yaml":             {configMap("azure-app-config-pay", own), ""},
	"dev/policy.yaml":            {policy, ""},
	".github/pay.yaml":           {registration("h", "pay"), ""},
	".environments/pay.yaml":     {registration("h", "pay"), ""},
	"star*.yaml":                 {registration("h", "pay"), ""},
	"a[b].yaml":                  {registration("h", "pay"), ""},
	"a #b.yaml":                  {registration("h", "pay"), ""},
	"a\nb.yaml":                  {registration("h", "pay"), ""},
	"back\\slash.yaml":           {registration("h", "pay"), ""},
}

func tree() fstest.MapFS {
	m := fstest.MapFS{"teams/link.yaml": {Data: []byte("pay.yaml"), Mode: os.ModeSymlink}}
	for name, f := range files {
		m[name] = &fstest.MapFile{Data: []byte(f.text)}
	}
	return m
}

// ownersOf returns the owners of the last line of text that matches a path, as forges do it.
func ownersOf(t *testing.T, text []byte, name string) string {
	t.Helper()
	owners := ""
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		given, of, found := strings.Cut(strings.ReplaceAll(line, `\ `, "\x00"), " ")
		require.True(t, found, line)
		if gitignore.ParsePattern(strings.ReplaceAll(given, "\x00", " "), nil).Match(strings.Split(name, "/"), false) == gitignore.Exclude {
			owners = of
		}
	}
	return owners
}

func TestEachFileHasItsOwner(t *testing.T) {
	owners := map[string]string{"": "@org/platform ops@example.com", "pay": "@org/pay", "shop": "@org/shop @ann"}
	for _, below := range []string{".", "deploy/the platform"} {
		owned, err := Derive(tree(), below, nil)
		require.NoError(t, err)
		for _, format := range Formats() {
			text, err := owned.Text(format)
			require.NoError(t, err)
			again, err := Derive(tree(), below, nil)
			require.NoError(t, err)
			second, err := again.Text(format)
			require.NoError(t, err)
			require.Equal(t, string(text), string(second), "the same every time")
			for name, f := range files {
				path := strings.TrimPrefix(below+"/"+name, "./")
				require.Equal(t, owners[f.owner], ownersOf(t, text, path), "%s: %s", format, path)
			}
			path := strings.TrimPrefix(below+"/teams/new.yaml", "./")
			require.Equal(t, owners[""], ownersOf(t, text, path), "a file that does not exist yet")
			require.Equal(t, below == ".", ownersOf(t, text, "elsewhere/file") == owners[""], "what lies beside the platform's folder is not its")
		}
	}
}

func TestWhatIsWrittenAndWhatIsSaid(t *testing.T) {
	owned, err := Derive(fstest.MapFS{
		"p.yaml": {Data: []byte(platformYAML)}, "teams/b of pay.yaml": {Data: []byte(registration("b", "pay"))}, "a.yaml": {Data: []byte(registration("a", "pay"))},
		"s.yaml": {Data: []byte(registration("s", "shop"))}, "s*.yaml": {Data: []byte(registration("s2", "shop"))},
	}, ".", nil)
	require.NoError(t, err)
	text, err := owned.Text(GitHub)
	require.NoError(t, err)
	require.Equal(t, Header+`
# The platform team: everything that no team below owns.
* @org/platform ops@example.com

# Workspace pay
/a.yaml @org/pay
/teams/b\ of\ pay.yaml @org/pay

# Workspace shop
/s.yaml @org/shop @ann
`, string(text))
	require.Equal(t, []string{"s*.yaml"}, owned.Unspeakable)
	require.Equal(t, []string{"shop"}, owned.Unbound, "it may name every repository")
}

func TestWhatIsNoPlatformHasNoOwners(t *testing.T) {
	derive := func(platform string) error {
		_, err := Derive(fstest.MapFS{"p.yaml": {Data: []byte(platform)}}, ".", nil)
		return err
	}
	require.ErrorIs(t, derive(""), ErrNoPlatform)
	require.ErrorIs(t, derive("apiVersion: wherry.dev/v1alpha1\nkind: Platform\nmetadata: {name: p}\n"), ErrNoOwners)
	require.ErrorContains(t, derive(platformYAML+"---\n"+platformYAML), "p.yaml:")
	for _, bad := range []string{`"@org/pay\n* @evil"`, `"@org/pay @evil"`, `"# none"`, "3"} {
		err := derive(strings.Replace(platformYAML, `"@org/pay"`, bad, 1))
		require.ErrorContains(t, err, "p.yaml:", bad)
		require.NotEmpty(t, finding.In(err), bad)
	}
	_, err := Derive(fstest.MapFS{"a.yaml": {Data: []byte(platformYAML)}, "b.yaml": {Data: []byte(platformYAML)}}, ".", nil)
	require.ErrorContains(t, err, "b.yaml:1: a second Platform object: the first is at a.yaml:1")
	owned, err := Derive(fstest.MapFS{"a.yaml": {Data: []byte(registration("a", "pay"))}}, ".", platformOf(t))
	require.NoError(t, err)
	require.Len(t, owned.Files, 1, "the Platform may lie elsewhere")
}

func platformOf(t *testing.T) *kinds.Platform {
	t.Helper()
	objects, ok := documents("p.yaml", []byte(platformYAML))
	require.True(t, ok)
	return objects[0].(*kinds.Platform)
}

func TestOwnersThatAForgeDoesNotKnow(t *testing.T) {
	for owner, github := range map[string]bool{"@user": true, "@org/team": true, "a@b.example": true, "@group/sub/team": false, "@@maintainers": false} {
		owned, err := Derive(fstest.MapFS{"p.yaml": {Data: []byte(strings.Replace(platformYAML, "ops@example.com", `"`+owner+`"`, 1))}}, ".", nil)
		require.NoError(t, err)
		_, err = owned.Text(GitLab)
		require.NoError(t, err, owner)
		_, err = owned.Text(GitHub)
		require.Equal(t, github, err == nil, owner)
	}
}

func TestCodeownersThatForgesWouldIgnoreAreRefused(t *testing.T) {
	owned := Owned{Below: ".", Platform: []string{"@org/platform"}}
	for i := range 40_000 {
		owned.Files = append(owned.Files, File{fmt.Sprintf("teams/a-folder-with-a-name-that-is-long-enough-to-fill-the-file/%06d.yaml", i), "pay", []string{"@org/pay"}})
	}
	_, err := owned.Text(GitHub)
	require.ErrorIs(t, err, ErrTooLarge)
}

func TestTheFileThatAForgeReads(t *testing.T) {
	top := t.TempDir()
	r, err := Open(top)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(top, ".github", "CODEOWNERS"), r.Existing(GitHub))
	require.Equal(t, filepath.Join(top, "CODEOWNERS"), r.Existing(GitLab))
	require.NoError(t, os.MkdirAll(filepath.Join(top, "docs"), 0o755))
	written := filepath.Join(top, "docs", "CODEOWNERS")
	require.NoError(t, os.WriteFile(written, []byte(Header+"* @a\n"), 0o644))
	for _, format := range Formats() {
		require.Equal(t, written, r.Existing(format))
	}
	require.NoError(t, Replaceable(written))
	differences, err := Compare(written, []byte(Header+"* @b\n"))
	require.NoError(t, err)
	require.Equal(t, []string{"- * @a", "+ * @b"}, differences)
	differences, err = Compare(written, []byte("* @a\n"+Header))
	require.NoError(t, err)
	require.Equal(t, []string{"  the same lines in another order"}, differences)
	require.NoError(t, os.WriteFile(written, []byte("* @a\n"), 0o644))
	require.ErrorContains(t, Replaceable(written), "has not written it")
	require.NoError(t, Replaceable(filepath.Join(top, "new")))
	for _, bad := range []string{"https://user:t0ken@github.com/org/app", written, filepath.Join(top, "absent")} {
		_, err := Open(bad)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "t0ken")
	}
}

// FuzzOwners looks for a team's file that stays the team's although it gets an object of somebody else.
func FuzzOwners(f *testing.F) {
	for _, file := range files {
		f.Add(file.text)
	}
	owners := func(text string) (int, error) {
		s := scan{workspaces: map[string][]string{}, platform: new(kinds.Platform)}
		err := s.walk(fstest.MapFS{"f.yaml": {Data: []byte(text)}})
		return len(s.workspaces), err
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := owners(text)
		require.LessOrEqual(t, n, 1)
		if err != nil || n == 0 {
			return
		}
		n, _ = owners(text + "\n---\n" + policy)
		require.Zero(t, n)
	})
}
