package scheduler

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

func TestMistakesAreReportedWithTheirPlace(t *testing.T) {
	const api = "apiVersion: scheduler.kalypso.io/v1alpha1\n"
	for name, c := range map[string]struct{ file, says string }{
		"a file that is not YAML":           {"kind: [", "a.yaml:1: a value is missing, or a bracket is not closed or never opened"},
		"a tab":                             {"a: b\n\tc: d\n", "a.yaml:2: line 2 has a tab; YAML is indented with spaces"},
		"a label that is a boolean":         {api + "kind: ClusterType\nmetadata:\n  name: x\n  labels: {edge: true}\n", `a.yaml:5: metadata.labels.edge must be a string, and true is a boolean (write it in quotes: "true")`},
		"a label that YAML 1.1 calls so":    {api + "kind: ClusterType\nmetadata:\n  name: x\n  labels: {edge: yes}\n", `a.yaml:5: metadata.labels.edge must be a string, and yes is a boolean (write it in quotes: "yes")`},
		"a number where a text belongs":     {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  PORT: 80\n", `a.yaml:5: data.PORT must be a string, and 80 is a number (write it in quotes: "80")`},
		"a commit that looks like a number": {api + "kind: BaseRepo\nmetadata: {name: main}\nspec:\n  commit: 5523e85\n", `a.yaml:5: spec.commit must be a string, and 5523e85 is a number (write it in quotes: "5523e85")`},
		"a list where a mapping belongs":    {api + "kind: ClusterType\nmetadata: {name: x}\nspec: [a]\n", "a.yaml:4: spec must be a mapping, not a list"},
		"a mapping where a list belongs":    {api + "kind: Workload\nmetadata: {name: x}\nspec:\n  deploymentTargets:\n    a: b\n", "a.yaml:6: spec.deploymentTargets must be a list, not a mapping"},
		"a list where a text belongs":       {api + "kind: ClusterType\nmetadata: {name: x}\nspec:\n  reconciler: [a]\n", "a.yaml:5: spec.reconciler must be a string, not a list"},
		"a manifest that is a number":       {api + "kind: Template\nmetadata: {name: x}\nspec:\n  manifests: [5]\n", "a.yaml:5: spec.manifests[0] must be a string, and 5 is a number"},
		"a key given twice":                 {api + "kind: ClusterType\nmetadata: {name: x}\nspec:\n  reconciler: a\n  reconciler: b\n", "a.yaml:6: spec.reconciler is given twice, first on line 5"},
		"no name":                           {api + "kind: ClusterType\n", "a.yaml:1: ClusterType has no metadata.name"},
		"a name that leads out of a folder": {api + "kind: ClusterType\nmetadata: {name: ../../etc}\n", `a.yaml:1: ClusterType cannot be called "../../etc": a lowercase RFC 1123 subdomain must consist`},
		"a target without name":             {api + "kind: Workload\nmetadata: {name: x}\nspec:\n  deploymentTargets:\n    - environment: dev\n", "a.yaml:6: deployment target has no name"},
		"a target's name with a slash":      {api + "kind: Workload\nmetadata: {name: x}\nspec:\n  deploymentTargets:\n    - name: a/b\n", `a.yaml:6: deployment target cannot be called "a/b"`},
		"an object defined twice":           {api + "kind: ClusterType\nmetadata: {name: x}\n---\n" + api + "kind: ClusterType\nmetadata: {name: x}\n", `a.yaml:5: ClusterType "x" is defined twice: first at a.yaml:1 (remove one of them)`},
		"two Platform objects":              {"apiVersion: wherry.dev/v1alpha1\nkind: Platform\nmetadata: {name: x}\n---\napiVersion: wherry.dev/v1alpha1\nkind: Platform\nmetadata: {name: z}\n", `a.yaml:5: Platform "z" is defined twice: first at a.yaml:1`},
		"an item of a List":                 {"apiVersion: v1\nkind: List\nitems:\n  - apiVersion: scheduler.kalypso.io/v1alpha1\n    kind: ClusterType\n", "a.yaml:4: ClusterType has no metadata.name"},
		"merge keys that go round":          {api + "kind: ClusterType\nmetadata: &m\n  <<: *m\n  name: x\n", "a.yaml:3: merge keys nest more than 16 deep"},
		"aliases that expand to too much":   {bomb(), "the document holds more than 1048576 values once its aliases are expanded"},
	} {
		t.Run(name, func(t *testing.T) {
			m := NewModel("dev")
			err := load(m, "", "a.yaml", c.file)
			require.ErrorContains(t, err, c.says)
			var input *finding.Error
			require.ErrorAs(t, err, &input)
			require.Equal(t, NewModel("dev"), m, "nothing of a source with a mistake may be taken")
		})
	}
}

// bomb is a Workload whose targets are aliases of one another, 10 to the power of 6 schemas in all.
func bomb() string {
	var b strings.Builder
	b.WriteString("apiVersion: scheduler.kalypso.io/v1alpha1\nkind: Workload\nmetadata: {name: x}\nspec:\n  configSchemas: &s [" + strings.Repeat("a, ", 1100) + "a]\n  deploymentTargets:\n")
	b.WriteString("    - &t {name: t, configSchemas: *s}\n")
	b.WriteString(strings.Repeat("    - *t\n", 1100))
	return b.String()
}

func TestAllMistakesOfAllFilesAreReportedInOrder(t *testing.T) {
	files := fstest.MapFS{
		"b/two.yaml":  {Data: []byte("kind: [")},
		"a/one.yml":   {Data: []byte("x: 1\n---\nkind: [")},
		"three.json":  {Data: []byte(`{"kind": `)},
		"ignored.txt": {Data: []byte("kind: [")},
	}
	err := NewModel("dev").Load(context.Background(), Source{FS: files, Name: "https://example.com/platform#dev"})
	require.EqualError(t, err, `https://example.com/platform#dev/a/one.yml:3: a value is missing, or a bracket is not closed or never opened
https://example.com/platform#dev/b/two.yaml:1: a value is missing, or a bracket is not closed or never opened
https://example.com/platform#dev/three.json:1: a value is missing, or a bracket is not closed or never opened`)
}

func TestAThousandMistakesAreNotAThousandLines(t *testing.T) {
	files := fstest.MapFS{}
	for i := range 1000 {
		files[strings.Repeat("a", i+1)+".yaml"] = &fstest.MapFile{Data: []byte("[")}
	}
	err := NewModel("dev").Load(context.Background(), Source{FS: files})
	require.ErrorContains(t, err, "and 980 more mistakes")
}

func TestFindings(t *testing.T) {
	const api = "apiVersion: scheduler.kalypso.io/v1alpha1\n"
	for name, c := range map[string]struct {
		file    string
		finding finding.Finding
	}{
		"an unknown field": {api + "kind: ClusterType\nmetadata: {name: x}\nspec:\n  reconcilr: a\n", finding.Finding{
			Position: finding.Position{File: "a.yaml", Line: 5}, Code: "W1007", Column: 3, Message: "unknown field spec.reconcilr", Hint: `did you mean "reconciler"?`,
		}},
		"an unknown field in a list": {api + "kind: Workload\nmetadata: {name: x}\nspec:\n  deploymentTargets:\n    - name: a\n      enviroment: dev\n", finding.Finding{
			Position: finding.Position{File: "a.yaml", Line: 7}, Code: "W1007", Column: 7, Message: "unknown field spec.deploymentTargets[0].enviroment", Hint: `did you mean "environment"?`,
		}},
		"a foreign kind": {"apiVersion: apps/v1\nkind: Deployment\n", finding.Finding{
			Position: finding.Position{File: "a.yaml", Line: 1}, Note: true, Code: "N1009", Message: "kind Deployment of apps/v1 is not part of a platform: passed over",
		}},
		"a foreign kind of the name of ours": {"apiVersion: cluster.x-k8s.io/v1beta1\nkind: Cluster\n", finding.Finding{
			Position: finding.Position{File: "a.yaml", Line: 1}, Note: true, Code: "N1009", Message: "kind Cluster of cluster.x-k8s.io/v1beta1 is not part of a platform: passed over",
		}},
		"a kind that Kalypso keeps in its cluster": {api + "kind: DeploymentTarget\n", finding.Finding{
			Position: finding.Position{File: "a.yaml", Line: 1}, Note: true, Code: "N1009", Message: "kind DeploymentTarget of scheduler.kalypso.io/v1alpha1 is not part of a platform: passed over",
		}},
		"a kind of our group that nobody knows": {api + "kind: Fleet\n", finding.Finding{
			Position: finding.Position{File: "a.yaml", Line: 1}, Code: "W1008", Message: "kind Fleet of scheduler.kalypso.io/v1alpha1 is not part of a platform: passed over",
		}},
		"a file without object": {"# values\na: 1\n", finding.Finding{
			Position: finding.Position{File: "a.yaml", Line: 2}, Note: true, Code: "N1010", Message: "no object (there is no kind): passed over",
		}},
		"a ConfigMap without the label": {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {platform-config: 'false'}}\n", finding.Finding{
			Position: finding.Position{File: "a.yaml", Line: 1}, Note: true, Code: "N1011", Message: `ConfigMap "a" has no label platform-config: "true": passed over`,
		}},
		"an annotation that nobody reads": {api + "kind: ClusterType\nmetadata:\n  name: x\n  annotations: {wherry.dev/adaptor: flux}\n", finding.Finding{
			Position: finding.Position{File: "a.yaml", Line: 5}, Code: "W1304", Message: `ClusterType "x": unknown annotation wherry.dev/adaptor`, Hint: `did you mean "adapter"?`,
		}},
		"a target of an environment in capitals": {api + "kind: Workload\nmetadata: {name: x}\nspec:\n  deploymentTargets:\n    - {name: a, environment: Dev}\n", finding.Finding{
			Position: finding.Position{File: "a.yaml", Line: 6}, Code: "W1106", Message: `target "a" is for environment "Dev", which is not "dev"`, Hint: "names of environments are compared to the letter",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m := NewModel("dev")
			require.NoError(t, load(m, "", "a.yaml", c.file))
			result, err := m.Render(context.Background(), Options{})
			require.NoError(t, err)
			require.Equal(t, []finding.Finding{c.finding}, result.Warnings)
		})
	}
}

// An app team's repository holds what its workloads deploy, and charts with their values. None of it is worth a note in each plan.
func TestManifestsBesideWorkloadsAreNotNoted(t *testing.T) {
	m := NewModel("dev")
	require.NoError(t, load(m, "", "platform.yaml", basics))
	require.NoError(t, load(m, "reg", "app.yaml", oneTarget+`---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web}
---
replicas: 2
`))
	result, err := m.Render(context.Background(), Options{})
	require.NoError(t, err)
	require.Empty(t, result.Warnings)
	require.Len(t, result.ClusterTypes[0].Assignments, 1)

	m = NewModel("dev")
	require.NoError(t, load(m, "", "platform.yaml", basics))
	require.NoError(t, load(m, "reg", "app.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {platform-config: 'true'}}\n"))
	require.Equal(t, finding.CodeNotATeams, m.Findings()[0].Code, "what looks like the platform's is noted")
}

// An object that is passed over because of a typo removes what it assigns.
func TestAnObjectThatIsNearlyOursIsAnError(t *testing.T) {
	const metadata = "\nmetadata: {name: x}\n"
	for file, hint := range map[string]string{
		"apiVersion: scheduler.kalypso.io/v1alpha1\nkind: SchedulingPolicies":   "kind SchedulingPolicy of scheduler.kalypso.io/v1alpha1?",
		"apiVersion: scheduler.kalypso.io/v1alpha1\nkind: schedulingpolicy":     "kind SchedulingPolicy of scheduler.kalypso.io/v1alpha1?",
		"apiVersion: scheduler.kalypso.io/v1alpha1\nkind: SchedulingPolciy":     "kind SchedulingPolicy of scheduler.kalypso.io/v1alpha1?",
		"apiVersion: scheduler.kalypso.io/v1alpha1\nkind: SchedulingPolicyList": "kind SchedulingPolicy of scheduler.kalypso.io/v1alpha1?",
		"apiVersion: scheduler.kalypso.io/v1alpha1\nkind: Clusters":             "kind Cluster of wherry.dev/v1alpha1?",
		"apiVersion: scheduler.kalypso.io/v1alpha2\nkind: ClusterType":          "kind ClusterType of scheduler.kalypso.io/v1alpha1?",
		"apiVersion: scheduler.kalypso.io\nkind: ClusterType":                   "kind ClusterType of scheduler.kalypso.io/v1alpha1?",
		"apiVersion: v1alpha1\nkind: ClusterType":                               "kind ClusterType of scheduler.kalypso.io/v1alpha1?",
		"kind: ClusterType": "kind ClusterType of scheduler.kalypso.io/v1alpha1?",
		"apiversion: scheduler.kalypso.io/v1alpha1\nKind: ClusterTypes":        "kind ClusterType of scheduler.kalypso.io/v1alpha1?",
		"apiVersion: schedule.kalypso.io/v1alpha1\nkind: WorkloadRegistration": "kind WorkloadRegistration of scheduler.kalypso.io/v1alpha1?",
		"apiVersion: Scheduler.Kalypso.io/v1alpha1\nkind: Template":            "kind Template of scheduler.kalypso.io/v1alpha1?",
		"apiVersion: scheduler.kalypso.com/v1alpha1\nkind: Template":           "kind Template of scheduler.kalypso.io/v1alpha1?",
		"apiVersion: kalypso.io/v1alpha1\nkind: Templates":                     "kind Template of scheduler.kalypso.io/v1alpha1?",
		"apiVersion: wherry.dev/v1alpha1\nkind: ConfigSchema":                  "kind ConfigSchema of scheduler.kalypso.io/v1alpha1?",
		"apiVersion: wherry.io/v1\nkind: platform":                             "kind Platform of wherry.dev/v1alpha1?",
		"apiVersion: scheduler.kalypso.io/v1alpha1\nkynd: ClusterType":         "name its kind, such as BaseRepo",
		"kind: &k ClusterType\nspec: {kind: *k}":                               "kind ClusterType of scheduler.kalypso.io/v1alpha1?",
		"apiVersion: v1\nkind: Configmap":                                      "kind ConfigMap of v1?",
		"apiVersion: v1\nkind: ConfigMaps":                                     "kind ConfigMap of v1?",
		"apiVersion: core/v1\nkind: ConfigMap":                                 "kind ConfigMap of v1?",
		"apiVersion: V1\nkind: ConfigMap":                                      "kind ConfigMap of v1?",
		"kind: ConfigMap":                                                      "kind ConfigMap of v1?",
		"apiVersion: v1\nkind: list\nitems: []":                                "kind List of v1?",
	} {
		err := load(NewModel("dev"), "", "a.yaml", file+metadata)
		require.ErrorContains(t, err, "a.yaml:1: unknown kind ", file)
		require.ErrorContains(t, err, hint, file)
		require.Equal(t, "E1022", finding.In(err)[0].Code)
	}
	for _, file := range []string{
		"apiVersion: v1\nkind: Template", "apiVersion: template.openshift.io/v1\nkind: Template", "apiVersion: scheduling.k8s.io/v1alpha1\nkind: Workload",
		"apiVersion: hub.kalypso.io/v1alpha1\nkind: Workload", "apiVersion: tekton.dev/v1\nkind: ClusterTask", "apiVersion: v2\nname: chart",
		"apiVersion: v1\nkind: Secret", "apiVersion: config.example.com/v1\nkind: ConfigMap", "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: AssignmentPackage",
	} {
		require.NoError(t, load(NewModel("dev"), "", "a.yaml", file+metadata), file)
	}
	require.NoError(t, load(NewModel("dev"), "", ".drone.yml", "kind: template\nload: plugin.yaml\n"), "no object")
}

func TestWhatIsThereToBeFetched(t *testing.T) {
	m := NewModel("dev")
	require.NoError(t, load(m, "", "a.yaml", `
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Environment
metadata:
  name: dev
  labels:
spec: {controlPlane: {repo: r, branch: b, path: p}}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: BaseRepo
metadata: {name: main}
spec: {repo: r2, branch: b2, path: p2, commit: abc}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: BaseRepo
metadata: {name: global}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: WorkloadRegistration
metadata: {name: reg}
spec: {workload: {repo: r3, branch: b3, path: p3}, workspace: team}
---
apiVersion: wherry.dev/v1alpha1
kind: Platform
metadata: {name: coffee}
spec: {anything: [goes]}
`))
	require.Equal(t, []Environment{{"dev", finding.Position{File: "a.yaml", Line: 2}, kinds.Repository{Repo: "r", Branch: "b", Path: "p"}}}, m.Environments())
	require.Equal(t, []BaseRepo{
		{Name: "global", Position: finding.Position{File: "a.yaml", Line: 14}},
		{"main", finding.Position{File: "a.yaml", Line: 9}, kinds.Repository{Repo: "r2", Branch: "b2", Path: "p2"}, "abc", true},
	}, m.BaseRepos())
	require.Equal(t, []WorkloadRegistration{{"reg", finding.Position{File: "a.yaml", Line: 18}, kinds.Repository{Repo: "r3", Branch: "b3", Path: "p3"}, "team"}}, m.Registrations())
	require.Equal(t, "coffee", m.PlatformName())
}

func TestWhichFilesAreRead(t *testing.T) {
	object := func(name string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("apiVersion: scheduler.kalypso.io/v1alpha1\nkind: Environment\nmetadata: {name: " + name + "}\n")}
	}
	m := NewModel("dev")
	require.NoError(t, m.Load(context.Background(), Source{FS: fstest.MapFS{
		"yaml.yaml": object("yaml"), "a/b/c/yml.yml": object("yml"), ".environments/dot.yaml": object("dot"),
		"json.json":             {Data: []byte("{\n\t\"apiVersion\": \"scheduler.kalypso.io/v1alpha1\",\n\t\"kind\": \"Environment\", \"metadata\": {\"name\": \"json\"}\n}")},
		".github/workflow.yaml": object("no"), "a/.hidden/x.yaml": object("no"), "yaml.yaml.bak": object("no"), "empty.yaml": {}, "comment.yaml": {Data: []byte("# nothing\n---\n")},
	}}))
	var names []string
	for _, e := range m.Environments() {
		names = append(names, e.Name)
	}
	require.Equal(t, []string{"dot", "json", "yaml", "yml"}, names)
}

func TestASymbolicLinkIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Symlink("/etc/hostname", filepath.Join(dir, "link.yaml")))
	m := NewModel("dev")
	require.NoError(t, m.Load(context.Background(), Source{FS: os.DirFS(dir)}))
	result, err := m.Render(context.Background(), Options{})
	require.NoError(t, err)
	require.Equal(t, []finding.Finding{{Position: finding.Position{File: "link.yaml"}, Note: true, Code: "N1012", Message: "not a regular file: passed over"}}, result.Warnings)
}

func TestAFolderThatIsNotThereAndAFileThatIsTooLarge(t *testing.T) {
	err := NewModel("dev").Load(context.Background(), Source{FS: os.DirFS(filepath.Join(t.TempDir(), "no")), Name: "platform"})
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "read platform: ")

	err = load(NewModel("dev"), "", "a.yaml", strings.Repeat("#", maxFileBytes+1))
	require.EqualError(t, err, "a.yaml: the file is larger than 8388608 bytes")
}

func TestLoadAndRenderEndWithTheirContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("enough"))
	m := NewModel("dev")
	require.ErrorIs(t, m.Load(ctx, Source{FS: fstest.MapFS{"a.yaml": {}}}), context.Canceled)
	require.NoError(t, load(m, "", "platform.yaml", basics+oneTarget))
	_, err := m.Render(ctx, Options{})
	require.ErrorIs(t, err, context.Canceled)
}

func TestAnAppTeamGivesWorkloadsOnly(t *testing.T) {
	result := render(t, basics, oneTarget+"---\n"+strings.ReplaceAll(basics, "rec}", "mine}"))
	require.Equal(t, "name: app-t1\nworkspace: team\n", content(only(t, result), "reconciler.yaml"))
	require.Len(t, result.Warnings, 6)
	require.Equal(t, finding.Finding{
		Position: finding.Position{File: "app.yaml", Line: 11}, Note: true,
		Code: "N1013", Message: `a Template in the source of registration "reg": passed over, app teams give Workloads only`,
	}, result.Warnings[0])
}

func TestAnObjectIsDefinedInOneSourceOnly(t *testing.T) {
	m := NewModel("dev")
	require.NoError(t, load(m, "", "platform.yaml", basics))
	err := m.Load(context.Background(), Source{FS: fstest.MapFS{"x.yaml": {Data: []byte(templateYAML("rec", "x"))}}, Name: "main", Base: "main"})
	require.EqualError(t, err, `main/x.yaml:1: Template "rec" is defined twice (here in base repository "main"): first at platform.yaml:1 (remove one of them)`)
}

func TestMergeKeysAndAliasesAreResolved(t *testing.T) {
	m := NewModel("dev")
	require.NoError(t, load(m, "", "a.yaml", `apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata:
  name: x
  annotations: &a {one: "1", two: "2"}
  labels:
    <<: [*a, {three: "3", one: "no"}]
    two: own
`))
	require.Equal(t, map[string]string{"one": "1", "two": "own", "three": "3"}, m.objects.ClusterTypes["x"].Metadata.Labels)
}

func TestTooManyFiles(t *testing.T) {
	err := NewModel("dev").Load(context.Background(), Source{FS: manyFiles{}, Name: "home"})
	require.EqualError(t, err, "read home: more than 100000 files: is this the right folder?")
}

// manyFiles is a folder of endless many empty files.
type manyFiles struct{}

func (manyFiles) Open(name string) (fs.File, error) {
	if name == "." {
		return fstest.MapFS{"d": {Mode: fs.ModeDir}}.Open(".")
	}
	return fstest.MapFS{"f.yaml": {}}.Open("f.yaml")
}

func (manyFiles) ReadDir(string) ([]fs.DirEntry, error) {
	var all []fs.DirEntry
	for i := range maxFiles + 1 {
		all = append(all, manyEntry(fmt.Sprintf("f%06d.yaml", i)))
	}
	return all, nil
}

type manyEntry string

func (e manyEntry) Name() string               { return string(e) }
func (e manyEntry) IsDir() bool                { return false }
func (e manyEntry) Type() fs.FileMode          { return 0 }
func (e manyEntry) Info() (fs.FileInfo, error) { return e, nil }
func (e manyEntry) Size() int64                { return 0 }
func (e manyEntry) Mode() fs.FileMode          { return 0 }
func (e manyEntry) ModTime() time.Time         { return time.Time{} }
func (e manyEntry) Sys() any                   { return nil }

func TestAFileOfATeamThatTakesTooMuchMemoryIsRefusedBeforeItIsParsed(t *testing.T) {
	text := "a: [" + strings.Repeat("[],", 2<<20) + "]\n"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := NewModel("dev").Load(t.Context(), Source{FS: fstest.MapFS{"w.yaml": {Data: []byte(text)}}, Registration: "evil"})
	runtime.ReadMemStats(&after)
	require.ErrorContains(t, err, "w.yaml: too large: more than 33554432 bytes")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
}
