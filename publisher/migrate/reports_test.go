package migrate

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// importReport imports an input of a public bug report, and returns the manifests of each target by its full name.
func importReport(t *testing.T, system, folder, objects string) (*Result, map[string]map[string]string) {
	t.Helper()
	dir := filepath.Join(os.Getenv("WHERRY_CASES"), "reports", folder)
	if _, err := os.Stat(dir); err != nil || os.Getenv("WHERRY_CASES") == "" {
		t.Skip("WHERRY_CASES names no folder with the inputs of public bug reports")
	}
	result, err := Import(t.Context(), system, os.DirFS(filepath.Join(dir, objects)), Options{Environment: "dev", Checkouts: map[string]fs.FS{layoutRepo: os.DirFS(filepath.Join(dir, "apps"))}})
	require.NoError(t, err)
	requireClean(t, result)
	return result, targetsOf(t, result)
}

func targetsOf(t *testing.T, result *Result) map[string]map[string]string {
	t.Helper()
	all := map[string]map[string]string{}
	for _, f := range result.Files {
		if filepath.Dir(f.Path) != "workloads" {
			continue
		}
		var w struct {
			Metadata struct{ Name string }
			Spec     struct {
				DeploymentTargets []struct {
					Name      string
					Manifests map[string]string
				} `yaml:"deploymentTargets"`
			}
		}
		require.NoError(t, yaml.Unmarshal(f.Data, &w))
		for _, target := range w.Spec.DeploymentTargets {
			all[w.Metadata.Name+"-"+target.Name] = target.Manifests
		}
	}
	return all
}

func TestAVersionOfOneTarget(t *testing.T) {
	_, targets := importReport(t, "fleet", "20-fleet-version-of-one-target", "fleet")
	require.Equal(t, "0.2.2", targets["federator-federator-canary"]["version"])
	require.Equal(t, "finalizers: []\ngone: null\nkeep: 1\n", targets["federator-federator-canary"]["values"])
	for _, other := range []string{"main", "prod"} {
		require.Equal(t, "0.2.1", targets["federator-federator-"+other]["version"])
	}
	require.Equal(t, "monitoring-prod", targets["federator-federator-prod"]["namespace"])
	require.Equal(t, "forced", targets["federator-forced-main"]["namespace"])
	require.Equal(t, "forced", targets["federator-forced-prod"]["namespace"], "a namespace counts more than a default one")
	require.Equal(t, "federator-forced", targets["federator-forced-main"]["releaseName"], "Fleet calls a release after its bundle")
}

func TestTheOtherNameOfFleetYAML(t *testing.T) {
	result, targets := importReport(t, "fleet", "22-fleet-yml", "fleet")
	require.Equal(t, map[string]map[string]string{"radio-radio-main": {
		"chart": "radio", "repo": "https://charts.example", "version": "3.1.0", "namespace": "radio", "releaseName": "radio-radio",
	}}, targets)
	require.Equal(t, []Type{
		{"fleet-default", "me", []string{"north", "lab"}, []string{"radio-radio-main"}}, {"fleet-default", "unassigned", []string{"south", "other"}, []string{}},
	}, result.Report.Types)
}

func TestBundlesInBundlesAndWhatIsIgnored(t *testing.T) {
	result, targets := importReport(t, "fleet", "23-fleet-nested-and-ignored", "fleet")
	require.Subset(t, sortedKeys(targets), []string{"bee-main", "tree-glob-a-main", "tree-tree-main", "tree-tree-sub-main"})
	require.NotContains(t, sortedKeys(targets), "tree-tree-tests-main")
	require.Equal(t, "/tree/**/tests/\n/tree/**/suite.yaml\n/tree/**/fleet.yaml", targets["tree-tree-main"]["ignore"])
	require.Contains(t, result.Report.Findings, Finding{Changed, "tree/fleet.yaml", 1, "GitRepo fleet-default/tree tree", ".fleetignore", "it becomes spec.ignore of Flux's GitRepository"})
}

// Argo CD has one object of a name: two sets that make it would fight over it, so that the report has it whatever else is the same.
func TestApplicationsOfEqualNamesInSeveralSets(t *testing.T) {
	set := func(name, namespace, application string) string {
		return "---\napiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: " + name + namespace + "}\nspec:\n  generators: [{clusters: {}}]\n" +
			"  template:\n    metadata: {name: '" + application + "'}\n    spec: {source: {repoURL: 'https://git.example/a', path: " + name + "}, destination: {server: '{{server}}'}}\n"
	}
	const clusters = "clusters: [{name: north, server: 'https://north.example'}, {name: south, server: 'https://south.example'}]\n"
	for name, c := range map[string]struct {
		sets string
		want []Finding
	}{
		"equal names": {set("a", "", "web-{{name}}") + set("b", ", namespace: argocd", "web-{{name}}"), []Finding{{
			Missing, "all.yaml", 12, "ApplicationSet argocd/b", "Applications web-north, web-south, web-in-cluster",
			"ApplicationSet a at all.yaml:3 makes one of that name too: Argo CD keeps one object of a name, of the set that was first, and here both are assigned: rename one of them, or take its Workload out",
		}}},
		"other names":       {set("a", "", "a-{{name}}") + set("b", "", "b-{{name}}"), nil},
		"another namespace": {set("a", "", "web-{{name}}") + set("b", ", namespace: other", "web-{{name}}"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := Import(t.Context(), "argocd-applicationset", fstest.MapFS{"all.yaml": {Data: []byte(clusters + c.sets)}}, Options{})
			require.NoError(t, err)
			requireClean(t, result)
			found := slices.DeleteFunc(slices.Clone(result.Report.Findings), func(f Finding) bool { return f.Level != Missing })
			require.Equal(t, len(c.want), len(found), found)
			require.ElementsMatch(t, c.want, found)
			require.Len(t, targetsOf(t, result), 2, "both are imported")
		})
	}
}

func TestOneStarMatchesSlashes(t *testing.T) {
	result, targets := importReport(t, "argocd-applicationset", "25-appset-greedy-stars", "argocd")
	require.Len(t, targets, 2)
	i := slices.IndexFunc(result.Report.Findings, func(f Finding) bool { return f.What == "generator git" })
	require.Equal(t, Changed, result.Report.Findings[i].Level)
	require.Contains(t, result.Report.Findings[i].Why, "where * matches slashes too; with the new file globbing, which argocd-cmd-params-cm can switch on, they differ for cluster-charts/mychart/charts/sub/values.yaml")
}

func TestPatternsOfFiles(t *testing.T) {
	for _, c := range []struct {
		pattern, name    string
		byDefault, byNew bool
	}{
		{"a/*/v.yaml", "a/b/v.yaml", true, true},
		{"a/*/v.yaml", "a/b/c/v.yaml", true, false},
		{"a/**/v.yaml", "a/v.yaml", false, true},
		{"**/v.yaml", "v.yaml", false, true},
		{"**/v.yaml", "a/b/v.yaml", true, true},
		{"a?b", "a/b", true, false},
		{"a/[bc].yaml", "a/b.yaml", true, true},
		{"a/[!b].yaml", "a/b.yaml", false, false},
		{"a", "a/b/c.yaml", true, false},
		{"a/b.yaml", "a/b.yaml", true, true},
		{"a", "ab", false, false},
		{"a.b", "axb", false, false},
	} {
		require.Equal(t, c.byDefault, fileMatches(c.pattern, c.name), "%s %s by default", c.pattern, c.name)
		require.Equal(t, c.byNew, newFileMatches(c.pattern, c.name), "%s %s by the new rule", c.pattern, c.name)
	}
}

// Argo CD's own ways with parameters: what it refuses is in the report, and what it reads in its own way is read so here.
func TestParametersAsArgoReadsThem(t *testing.T) {
	set := func(generator, name string, goTemplate string) string {
		return "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: s, namespace: argocd}\nspec:\n  goTemplate: " + goTemplate + "\n  generators: [" + generator + "]\n" +
			"  template:\n    metadata: {name: '" + name + "'}\n    spec: {source: {repoURL: 'https://git.example/a', path: '" + name + "'}, destination: {server: 'https://north.example'}}\n"
	}
	const git = `{git: {repoURL: "` + layoutRepo + `", files: [{path: "c/*.yaml"}]}}`
	file := func(text string) fstest.MapFS { return fstest.MapFS{"c/a.yaml": {Data: []byte(text)}} }
	for name, c := range map[string]struct {
		set     string
		files   fstest.MapFS
		paths   []string
		missing string
	}{
		"the first document alone":  {set(git, "x-{{ name }}", "false"), file("name: one\n---\nname: two\n"), []string{"x-one"}, ""},
		"a list":                    {set(git, "x-{{ name }}", "false"), file("- name: one\n- name: two\n"), []string{"x-one", "x-two"}, ""},
		"an item of a list":         {set(git, "x-{{ of.0.name }}", "false"), file("of: [{name: one}]\n"), []string{"x-one"}, ""},
		"an empty file":             {set(git, "{{path}}", "false"), file(""), []string{"c"}, ""},
		"a whole number":            {set(git, "x-{{ num }}", "false"), file("num: 8080\n"), []string{"x-8080"}, ""},
		"a large number":            {set(git, "x-{{ num }}", "false"), file("num: 1000000\n"), []string{"x-1e+06"}, ""},
		"a version":                 {set(git, "x-{{ num }}", "false"), file("num: 1.10\n"), []string{"x-1.1"}, ""},
		"a number of Go templates":  {set(git, "x-{{ .num }}", "true"), file("num: 1000000\n"), []string{"x-1e+06"}, ""},
		"a number of a list":        {set("{list: {elements: [{num: 1}]}}", "x-{{ num }}", "false"), nil, nil, "num is no text"},
		"a quoted number of a list": {set(`{list: {elements: [{num: "1"}]}}`, "x-{{ num }}", "false"), nil, []string{"x-1"}, ""},
		"equal names":               {set(`{list: {elements: [{a: x, b: "1"}, {a: x, b: "2"}]}}`, "{{ a }}", "false"), nil, []string{"x"}, "one Application of a name"},
		"equal merge keys": {
			set(`{merge: {mergeKeys: [k], generators: [{list: {elements: [{k: a, v: "1"}, {k: a, v: "2"}]}}, {list: {elements: [{k: a, v: "3"}]}}]}}`, "x-{{ v }}", "false"), nil, nil,
			"several parameter sets with the merge keys",
		},
		"equal merge keys of the second": {
			set(`{merge: {mergeKeys: [k], generators: [{list: {elements: [{k: a, v: "1"}]}}, {list: {elements: [{k: b, v: "2"}, {k: b, v: "3"}]}}]}}`, "x-{{ v }}", "false"), nil, nil,
			"generator 2 has several parameter sets",
		},
		"a merge key that is missing in both": {
			set(`{merge: {mergeKeys: [k], generators: [{list: {elements: [{a: x, v: "1"}]}}, {list: {elements: [{v: "2"}]}}]}}`, "x-{{ v }}", "false"), nil, []string{"x-2"}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects := fstest.MapFS{"all.yaml": {Data: []byte(c.set + "---\nclusters: [{name: north, server: 'https://north.example'}]\n")}}
			result, err := Import(t.Context(), "argocd-applicationset", objects, Options{Checkouts: map[string]fs.FS{layoutRepo: c.files}})
			require.NoError(t, err)
			var paths []string
			targets := targetsOf(t, result)
			for _, key := range sortedKeys(targets) {
				paths = append(paths, targets[key]["path"])
			}
			require.ElementsMatch(t, c.paths, paths)
			said := ""
			for _, f := range result.Report.Findings {
				if f.Level == Missing {
					said += f.Why + "\n"
				}
			}
			if require.Contains(t, said, c.missing); c.missing == "" {
				require.Empty(t, said)
			}
		})
	}
}
