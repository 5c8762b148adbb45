package platform

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/gittest"
	"github.com/wherry-dev/wherry/publisher/outdir"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

const kalypso = "apiVersion: scheduler.kalypso.io/v1alpha1\n"

// baseFiles, devFiles and appFiles are a platform with one workload on one cluster type. base and app are
// where the repositories of the base and of the workload are.
func baseFiles(app string) map[string]string {
	return map[string]string{
		"platform/templates/all.yaml": kalypso + `kind: Template
metadata: {name: reconciler}
spec: {type: reconciler, manifests: ["kind: Thing\nmetadata: {name: {{ .DeploymentTargetName }}}\n"]}
---
` + kalypso + `kind: Template
metadata: {name: namespace}
spec: {type: namespace, manifests: ["kind: Namespace\nmetadata: {name: {{ .Namespace }}}\n"]}
---
` + kalypso + `kind: Template
metadata: {name: config}
spec: {type: config, manifests: ["workspace: {{ .Workspace }}\n"]}
`,
		"platform/.environments/dev.yaml": kalypso + "kind: Environment\nmetadata: {name: dev}\n" +
			"spec: {controlPlane: {repo: https://example.invalid/platform, branch: dev-branch, path: ./env/}}\n",
		"platform/web.yaml": kalypso + "kind: WorkloadRegistration\nmetadata: {name: web}\n" +
			"spec: {workload: {repo: '" + app + "', branch: main, path: workload/}, workspace: team}\n",
		"other/broken.yaml": "not: [yaml",
	}
}

func devFiles(base, commit string) map[string]string {
	return map[string]string{
		"env/base.yaml": kalypso + "kind: BaseRepo\nmetadata: {name: main}\n" +
			"spec: {repo: '" + base + "', branch: main, path: platform, commit: '" + commit + "'}\n",
		"env/types/edge.yaml": kalypso + "kind: ClusterType\nmetadata: {name: edge, labels: {size: small}}\n" +
			"spec: {reconciler: reconciler, namespaceService: namespace, configType: config}\n",
		"env/policy.yaml": kalypso + "kind: SchedulingPolicy\nmetadata: {name: all}\n" +
			"spec: {deploymentTargetSelector: {workspace: team, labelSelector: {}}, clusterTypeSelector: {labelSelector: {}}}\n",
	}
}

func appFiles() map[string]string {
	return map[string]string{"workload/web.yaml": kalypso + "kind: Workload\nmetadata: {name: web}\n" +
		"spec: {deploymentTargets: [{name: shop, environment: dev, manifests: {repo: https://example.invalid/m, branch: dev, path: .}}]}\n"}
}

// platformRepos makes the repositories of that platform: control plane (main and dev-branch) and app.
func platformRepos(t *testing.T) (control, app, baseCommit string) {
	dir := t.TempDir()
	control, app = filepath.Join(dir, "control.git"), filepath.Join(dir, "app.git")
	gittest.CommitFiles(t, app, "main", appFiles())
	files := baseFiles("file://" + app)
	delete(files, "other/broken.yaml") // the default branch is read as a whole to find the Environment
	baseCommit = gittest.CommitFiles(t, control, "main", files)
	files["platform/templates/all.yaml"] = "not: [yaml" // at the tip; the pinned commit is sound
	gittest.CommitFiles(t, control, "main", files)
	files["platform/templates/all.yaml"] = ""
	gittest.CommitFiles(t, control, "main", files)
	gittest.CommitFiles(t, control, "dev-branch", devFiles("file://"+control, baseCommit))
	return control, app, baseCommit
}

func render(t *testing.T, o Source) *scheduler.Result {
	t.Helper()
	loaded, err := Load(t.Context(), o)
	require.NoError(t, err)
	require.Empty(t, loaded.Warnings)
	result, err := loaded.Model.Render(t.Context(), scheduler.Options{BaseCommit: loaded.BaseCommit})
	require.NoError(t, err)
	return result
}

func TestGitAndFoldersGiveTheSameTree(t *testing.T) {
	control, app, baseCommit := platformRepos(t)
	folders := t.TempDir()
	base := gittest.WriteFiles(t, filepath.Join(folders, "base"), baseFiles("https://example.invalid/app"))
	dev := gittest.WriteFiles(t, filepath.Join(folders, "dev"), devFiles("https://example.invalid/base", baseCommit))
	web := gittest.WriteFiles(t, filepath.Join(folders, "web"), appFiles())
	want := map[string]string{
		".github/tracking/Promoted_Commit_Id": baseCommit, "edge/README.md": scheduler.ReadmeText,
		"edge/web-shop/namespace.yaml":       "kind: Namespace\nmetadata: {name: dev-edge-web-shop}\n",
		"edge/web-shop/platform-config.yaml": "workspace: team\n",
		"edge/web-shop/reconciler.yaml":      "kind: Thing\nmetadata: {name: web-shop}\n",
	}
	for _, test := range []struct {
		name string
		from Source
	}{
		{"folders", Source{Platform: filepath.Join(dev, "env"), Bases: []string{filepath.Join(base, "platform")}, Workloads: map[string]string{"web": web}}},
		{"branch of the Environment object", Source{Platform: "file://" + control}},
		{"path of a bare repository", Source{Platform: control}},
		{"branch and folder", Source{Platform: control + "#dev-branch:env"}},
		{"branch alone, whose root is read", Source{Platform: "file://" + control + "#dev-branch"}},
		{"server", Source{Platform: gittest.Serve(t, gittest.FullServer(control)), Workloads: map[string]string{"web": gittest.Serve(t, gittest.PlainServer(app)) + "#main"}}},
		{"base from git", Source{Platform: filepath.Join(dev, "env"), Bases: []string{control + "#" + baseCommit}, Workloads: map[string]string{"web": app}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.from.Environment, test.from.Timeout = "dev", time.Minute
			out := t.TempDir()
			_, err := outdir.Write(t.Context(), out, render(t, test.from), outdir.Options{})
			require.NoError(t, err)
			require.Equal(t, want, gittest.ReadFiles(t, out))
		})
	}
}

func TestCommitsAreKnownWhereGitOrTheInputHasThem(t *testing.T) {
	control, app, pinned := platformRepos(t)
	base := filepath.Join(gittest.WriteFiles(t, "", baseFiles("")), "platform")
	withPin := filepath.Join(gittest.WriteFiles(t, "", devFiles("https://example.invalid/base", pinned)), "env")
	withoutPin := filepath.Join(gittest.WriteFiles(t, "", devFiles("https://example.invalid/base", "")), "env")
	web := map[string]string{"web": app}
	tip, err := gitrepo.NewReader(time.Minute, nil, nil).Tree(t.Context(), gitrepo.Ref{URL: control, Branch: "dev-branch"})
	require.NoError(t, err)
	for _, test := range []struct {
		name              string
		from              Source
		base, environment string
		inGit             bool // the base was read from git, which knows the time
		warning           string
	}{
		{name: "all from git", from: Source{Platform: control}, base: pinned, environment: tip.Commit, inGit: true},
		{name: "the pin of a base given as folder", from: Source{Platform: withPin, Bases: []string{base}}, base: pinned},
		{name: "a commit given for a folder", from: Source{Platform: withoutPin, Bases: []string{base}, Commit: "abc123"}, base: "abc123"},
		{name: "a commit given wins over a pin", from: Source{Platform: withPin, Bases: []string{base}, Commit: "abc123"}, base: "abc123"},
		{name: "no commit at all", from: Source{Platform: withoutPin, Bases: []string{base}}},
		{name: "a base given as git", from: Source{Platform: withoutPin, Bases: []string{control + "#" + pinned}}, base: pinned, inGit: true},
		{
			name: "a commit given although git has it", from: Source{Platform: control, Commit: "abc123"},
			base: pinned, environment: tip.Commit, inGit: true, warning: "base commit abc123 is not used",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.from.Environment, test.from.Workloads = "dev", web
			loaded, err := Load(t.Context(), test.from)
			require.NoError(t, err)
			require.Equal(t, test.base, loaded.BaseCommit)
			require.Equal(t, test.environment, loaded.EnvironmentCommit)
			require.Equal(t, test.environment != "", loaded.Source == control)
			require.Equal(t, test.inGit, !loaded.BaseTime.IsZero())
			require.Equal(t, test.warning != "", len(loaded.Warnings) > 0)
			if test.warning != "" {
				require.Contains(t, loaded.Warnings[0].String(), test.warning)
			}
		})
	}
}

func TestABaseMayNameFurtherBases(t *testing.T) {
	dir := t.TempDir()
	repo := func(name string) string { return "file://" + filepath.Join(dir, name+".git") }
	baseRepo := func(name, at string) string {
		return kalypso + "kind: BaseRepo\nmetadata: {name: " + name + "}\nspec: {repo: '" + repo(at) + "', branch: main, path: .}\n---\n"
	}
	clusterType := func(name string) string { return kalypso + "kind: ClusterType\nmetadata: {name: " + name + "}\n---\n" }
	gittest.CommitFiles(t, filepath.Join(dir, "global.git"), "main", map[string]string{"a.yaml": clusterType("from-global")})
	gittest.CommitFiles(t, filepath.Join(dir, "site.git"), "main", map[string]string{"a.yaml": clusterType("from-site") + baseRepo("global", "global")})
	atMain := gittest.CommitFiles(t, filepath.Join(dir, "main.git"), "main", map[string]string{"a.yaml": clusterType("from-main") + baseRepo("a-site", "site")})
	platform := gittest.WriteFiles(t, "", map[string]string{"a.yaml": baseRepo("main", "main")})

	result := render(t, Source{Platform: platform, Environment: "dev"})
	require.Equal(t, atMain, result.BaseCommit)
	var names []string
	for _, ct := range result.ClusterTypes {
		names = append(names, ct.Name)
	}
	require.Equal(t, []string{"from-global", "from-main", "from-site"}, names)

	for i := range maxBases + 1 {
		next := map[string]string{"a.yaml": baseRepo(fmt.Sprintf("b%d", i+1), fmt.Sprintf("b%d", i+1))}
		gittest.CommitFiles(t, filepath.Join(dir, fmt.Sprintf("b%d.git", i)), "main", next)
	}
	endless := gittest.WriteFiles(t, "", map[string]string{"a.yaml": baseRepo("b0", "b0")})
	_, err := Load(t.Context(), Source{Platform: endless, Environment: "dev"})
	require.ErrorContains(t, err, "a.yaml:1: more than 32 base repositories")
}

func TestSourceignoreLeavesOut(t *testing.T) {
	files := map[string]string{
		".sourceignore":             "# what people read\n\n.environments/\ndocs/\n*.tmpl.yaml\n!kept.tmpl.yaml\r\n/sub/top.yaml\n",
		".environments/dev.yaml":    kalypso + "kind: Environment\nmetadata: {name: dev}\nspec: {controlPlane: {branch: main, path: sub}}\n",
		"docs/sample.yaml":          "not: [yaml",
		"a.tmpl.yaml":               "not: [yaml",
		"sub/b.tmpl.yaml":           "not: [yaml",
		"sub/kept.tmpl.yaml":        kalypso + "kind: ClusterType\nmetadata: {name: kept}\n",
		"sub/top.yaml":              "not: [yaml",
		"sub/deep/docs/sample.yaml": "not: [yaml",
		"sub/deep/.sourceignore":    "own.yaml\n",
		"sub/deep/own.yaml":         "not: [yaml",
		"sub/deep/top.yaml":         kalypso + "kind: ClusterType\nmetadata: {name: top}\n",
		"sub/deeper/own.yaml":       kalypso + "kind: ClusterType\nmetadata: {name: own}\n",
	}
	repo := filepath.Join(t.TempDir(), "control.git")
	gittest.CommitFiles(t, repo, "main", files)
	for _, platform := range []string{gittest.WriteFiles(t, "", files), repo, repo + "#main", repo + "#main:sub"} {
		result := render(t, Source{Platform: platform, Environment: "dev"})
		var names []string
		for _, ct := range result.ClusterTypes {
			names = append(names, ct.Name)
		}
		require.Equal(t, []string{"kept", "own", "top"}, names, platform)
	}
	large := gittest.WriteFiles(t, "", map[string]string{".sourceignore": strings.Repeat("x\n", gitrepo.MaxBytes)})
	_, err := Load(t.Context(), Source{Platform: large, Environment: "dev"})
	require.ErrorIs(t, err, gitrepo.ErrTooLarge)
	require.ErrorContains(t, err, ".sourceignore has more than 16384 bytes")
}

func TestWhatCannotBeReadIsNamed(t *testing.T) {
	control, _, pinned := platformRepos(t)
	bare := filepath.Join(t.TempDir(), "none.git")
	base := filepath.Join(gittest.WriteFiles(t, "", baseFiles("file://"+bare)), "platform")
	dev := filepath.Join(gittest.WriteFiles(t, "", devFiles("file://"+bare, pinned)), "env")
	badPath := filepath.Join(gittest.WriteFiles(t, "", map[string]string{"b.yaml": kalypso + "kind: BaseRepo\nmetadata: {name: main}\n" +
		"spec: {repo: 'file://" + control + "', branch: main, path: ../x}\n"}), "")
	for _, test := range []struct {
		name        string
		from        Source
		unreachable bool
		want        string
	}{
		{"missing folder", Source{Platform: "no/such/folder"}, false, "read platform from no/such/folder: no such file or directory"},
		{"file for a folder", Source{Platform: filepath.Join(dev, "base.yaml")}, false, "base.yaml: not a directory"},
		{"empty platform", Source{Platform: ""}, false, "an empty name is neither a folder nor a git URL"},
		{"unknown scheme", Source{Platform: "ftp://example.invalid/x"}, false, `"ftp" is not a way to reach a git repository`},
		{"no branch after #", Source{Platform: "https://example.invalid/x#"}, false, "no branch after the #"},
		{"missing platform repository", Source{Platform: "file://" + bare}, true, "read platform from file://" + bare + ": repository does not exist"},
		{"unknown environment", Source{Platform: control, Environment: "prod"}, false, `its default branch has no Environment "prod" (known: dev)`},
		{"missing branch", Source{Platform: control + "#prod"}, false, `branch "prod": not in the repository`},
		{"missing folder in git", Source{Platform: control + "#dev-branch:nope"}, false, `folder "nope" at commit`},
		{"file as folder in git", Source{Platform: control + "#dev-branch:env/base.yaml"}, false, "not a folder"},
		{"missing base", Source{Platform: dev}, true, "base.yaml:1: read base main from file://" + bare + "#" + pinned[:12] + ":platform: repository does not exist"},
		{"path that leads out", Source{Platform: badPath}, false, `path "../x" leads out of the repository`},
		{
			"missing workload that is given",
			Source{Platform: dev, Bases: []string{base}, Workloads: map[string]string{"web": "file://" + bare}},
			true,
			"read workload web from file://" + bare + ": repository does not exist",
		},
		{
			"unknown registration",
			Source{Platform: dev, Bases: []string{base}, Workloads: map[string]string{"wbe": "."}},
			false,
			"read workload wbe: no WorkloadRegistration has this name (known: web)",
		},
		{"base that is not a commit", Source{Platform: dev, Commit: "a b"}, false, `"a b" is not a commit`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.from.Environment == "" {
				test.from.Environment = "dev"
			}
			_, err := Load(t.Context(), test.from)
			require.ErrorContains(t, err, test.want)
			var source *SourceError
			require.Equal(t, test.unreachable, errors.As(err, &source) && source.Unreachable)
		})
	}
}

// What an app team does to its own source is no concern of the others'.
func TestAnAppTeamsSourceThatCannotBeReadStopsNobodyElse(t *testing.T) {
	bare := filepath.Join(t.TempDir(), "none.git")
	for _, test := range []struct {
		name  string
		app   string // where the registration points to
		files map[string]string
		want  string
	}{
		{"a repository that is gone", bare, nil, "web.yaml:1: read workload web from file://" + bare + "#main:workload: repository does not exist"},
		{"a broken file", "", map[string]string{"workload/a.yaml": appFiles()["workload/web.yaml"], "workload/broken.yaml": "a: [1\n"}, "broken.yaml:1: "},
		{"an object twice", "", map[string]string{"workload/a.yaml": appFiles()["workload/web.yaml"], "workload/b.yaml": appFiles()["workload/web.yaml"]}, `Workload "web" is defined twice`},
		{"a folder that is gone", "", map[string]string{"elsewhere/a.yaml": appFiles()["workload/web.yaml"]}, `folder "workload" at commit`},
		{"a file that is too large", "", map[string]string{"workload/big.yaml": "# " + strings.Repeat("x", gitrepo.MaxFileBytes)}, "big.yaml"},
	} {
		t.Run(test.name, func(t *testing.T) {
			app := test.app
			if app == "" {
				app = filepath.Join(t.TempDir(), "app.git")
				gittest.CommitFiles(t, app, "main", test.files)
			}
			other := filepath.Join(t.TempDir(), "other.git")
			gittest.CommitFiles(t, other, "main", map[string]string{"workload/db.yaml": strings.ReplaceAll(appFiles()["workload/web.yaml"], "name: web", "name: db")})
			files := baseFiles("file://" + app)
			files["platform/other.yaml"] = strings.NewReplacer("name: web", "name: db", "file://"+app, "file://"+other).Replace(files["platform/web.yaml"])
			base := filepath.Join(gittest.WriteFiles(t, "", files), "platform")
			dev := filepath.Join(gittest.WriteFiles(t, "", devFiles("https://example.invalid/base", "c0ffee")), "env")
			loaded, err := Load(t.Context(), Source{Platform: dev, Environment: "dev", Bases: []string{base}})
			require.NoError(t, err)
			require.Len(t, loaded.Unread, 1)
			require.Equal(t, "web", loaded.Unread[0].Registration)
			require.ErrorContains(t, loaded.Unread[0].Err, test.want)
			result, err := loaded.Model.Render(t.Context(), scheduler.Options{})
			require.NoError(t, err)
			require.Len(t, result.ClusterTypes[0].Assignments, 1)
			require.Equal(t, "db-shop", result.ClusterTypes[0].Assignments[0].Name)
			require.Equal(t, "db", result.ClusterTypes[0].Assignments[0].Registration)
		})
	}
}

func TestMistakesInsideASourceNameFileAndLine(t *testing.T) {
	dir := gittest.WriteFiles(t, "", map[string]string{"a/broken.yaml": "kind: x\nb: [1\n"})
	_, err := Load(t.Context(), Source{Platform: dir, Environment: "dev"})
	var input *finding.Error
	require.ErrorAs(t, err, &input)
	require.Equal(t, filepath.ToSlash(dir)+"/a/broken.yaml", input.File)
	require.NotZero(t, input.Line)
}

func TestAMistypedEnvironmentIsRefused(t *testing.T) {
	environment := func(name string) string {
		return kalypso + "kind: Environment\nmetadata: {name: " + name + "}\nspec: {controlPlane: {repo: r, branch: env, path: .}}\n"
	}
	dir := gittest.WriteFiles(t, "", map[string]string{"dev.yaml": environment("dev"), "qa.yaml": environment("qa")})
	_, err := Load(t.Context(), Source{Platform: dir, Environment: "dve"})
	require.EqualError(t, err, `no Environment object is called "dve" (known: dev, qa)`)
	require.Equal(t, finding.CodeUnknownEnvironment, finding.In(err)[0].Code)
	_, err = Load(t.Context(), Source{Platform: t.TempDir(), Environment: "dve"})
	require.NoError(t, err, "nothing says which there are")

	// Folders of one branch: what lies around them is none of the environments.
	folder := func(name string) string {
		return strings.ReplaceAll(environment(name), "path: .", "path: ./envs/"+name)
	}
	dir = gittest.WriteFiles(t, "", map[string]string{"all.yaml": folder("dev") + "---\n" + folder("prod"), "envs/dev/a.yaml": ""})
	_, err = Load(t.Context(), Source{Platform: dir, Environment: "prod"})
	require.ErrorContains(t, err, `all.yaml:`)
	require.ErrorContains(t, err, `Environment "prod" is in folder envs/prod, which is not in `+dir+" (environments with a folder there: dev)")
	_, err = Load(t.Context(), Source{Platform: dir, Environment: "dev"})
	require.NoError(t, err)

	// One that the default branch has is right, although the base is of a commit that did not have it yet.
	repo := filepath.Join(t.TempDir(), "r.git")
	old := gittest.CommitFiles(t, repo, "main", map[string]string{"dev.yaml": environment("dev")})
	gittest.CommitFiles(t, repo, "main", map[string]string{"dev.yaml": environment("dev"), "qa.yaml": environment("qa")})
	gittest.CommitFiles(t, repo, "env", map[string]string{"base.yaml": kalypso + "kind: BaseRepo\nmetadata: {name: main}\nspec: {repo: file://" + repo + ", branch: main, path: ., commit: " + old + "}\n"})
	loaded, err := Load(t.Context(), Source{Platform: "file://" + repo, Environment: "qa"})
	require.NoError(t, err)
	require.Equal(t, old, loaded.BaseCommit)
}

func TestSourcesAreBounded(t *testing.T) {
	big := map[string]string{"big.yaml": "# " + strings.Repeat("x", gitrepo.MaxFileBytes)}
	repo := filepath.Join(t.TempDir(), "r.git")
	gittest.CommitFiles(t, repo, "main", big)
	for _, platform := range []string{gittest.WriteFiles(t, "", big), repo + "#main"} {
		_, err := Load(t.Context(), Source{Platform: platform, Environment: "dev"})
		require.ErrorContains(t, err, "big.yaml", platform)
		require.ErrorContains(t, err, "larg", platform)
	}
}

func TestTheOutputFolderIsNotReadAsASource(t *testing.T) {
	dir := gittest.WriteFiles(t, "", map[string]string{"out/broken.yaml": "a: [", "e.yaml": ""})
	_, err := Load(t.Context(), Source{Platform: dir, Environment: "dev", Output: filepath.Join(dir, "out")})
	require.NoError(t, err)
	_, err = Load(t.Context(), Source{Platform: dir, Environment: "dev", Output: dir})
	require.Error(t, err)
}

func TestLocationsPrintWithoutCredentials(t *testing.T) {
	for in, want := range map[string]string{
		"https://u:p@h/r#b": "https://h/r#b", "https://tok@h:1/r#b:a/./b/": "https://h:1/r#b:a/b", "ssh://git@h/r": "ssh://h/r",
		"git@h:r/s.git#main": "git@h:r/s.git#main", "./a//b": "a/b", "https://h/r#" + strings.Repeat("ab", 20): "https://h/r#abababababab",
	} {
		place, err := parseLocation(in)
		require.NoError(t, err)
		require.Equal(t, want, place.String())
	}
}

// TestKalypsosOwnCases renders what nobody here wrote and compares with what Kalypso itself commits.
func TestKalypsosOwnCases(t *testing.T) {
	root := os.Getenv("WHERRY_CASES")
	if root == "" {
		t.Log("WHERRY_CASES is not set: the cases of Kalypso are not run")
		return
	}
	files, err := filepath.Glob(filepath.Join(root, "kalypso/cases/*/case.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			options := caseOptions(t, file)
			for _, fromGit := range []bool{false, true} {
				if fromGit {
					options = inGit(t, options)
				}
				out := t.TempDir()
				_, err := outdir.Write(t.Context(), out, render(t, options), outdir.Options{})
				require.NoError(t, err)
				require.Equal(t, gittest.ReadFiles(t, filepath.Join(filepath.Dir(file), "expected/tree")), gittest.ReadFiles(t, out))
			}
		})
	}
}

// caseOptions is how a person would give the sources of a case. Several folders of one environment are
// copied into one.
func caseOptions(t *testing.T, file string) Source {
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var c struct {
		Environment string
		Sources     []struct{ Dir, FluxKustomization string }
	}
	require.NoError(t, json.Unmarshal(data, &c))
	o := Source{Platform: t.TempDir(), Environment: c.Environment, Workloads: map[string]string{}}
	for i, s := range c.Sources {
		dir := filepath.Join(filepath.Dir(file), s.Dir)
		switch name := strings.TrimPrefix(strings.TrimPrefix(s.FluxKustomization, c.Environment), "-"); name {
		case "":
			require.NoError(t, os.CopyFS(filepath.Join(o.Platform, fmt.Sprint(i)), os.DirFS(dir)))
		case "main":
			o.Bases = append(o.Bases, dir)
		default:
			o.Workloads[name] = dir
		}
	}
	return o
}

// inGit puts every source into a repository.
func inGit(t *testing.T, o Source) Source {
	dir, n := t.TempDir(), 0
	put := func(from string) string {
		n++
		work, repo := filepath.Join(dir, fmt.Sprint(n)), filepath.Join(dir, fmt.Sprint(n)+".git")
		require.NoError(t, os.CopyFS(work, os.DirFS(from)))
		_, err := gittest.Commit(repo, "main", work)
		require.NoError(t, err)
		return "file://" + repo + "#main"
	}
	o.Platform = put(o.Platform)
	for i, base := range o.Bases {
		o.Bases[i] = put(base)
	}
	for name, from := range o.Workloads {
		o.Workloads[name] = put(from)
	}
	return o
}
