package migrate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/sitevalues"
	"github.com/wherry-dev/wherry/publisher/findings"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/scheduler"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestImportedPlatforms compares platforms and reports with those of testdata, and what is assigned to each cluster with
// what a person reads from the input.
func TestImportedPlatforms(t *testing.T) {
	want := map[string]map[string][]string{
		"fleet": {
			"plant-7": {"line-apps-controller-gpu", "line-apps-vision-europe", "metrics-main", "namespace-line-main"},
			"plant-8": {"line-apps-controller-main", "line-apps-vision-europe", "metrics-main", "namespace-line-main"},
			"plant-9": {"line-apps-controller-main", "line-apps-vision-main", "metrics-main", "namespace-line-main"},
			"lab":     {"line-apps-vision-europe"},
			"museum":  {"metrics-main"},
			"till":    {"till-main"},
		},
		"ascent": {
			"plant-7": {"line-controller-prod", "vision-prod"},
			"plant-8": {"line-controller-prod"},
			"plant-9": {"line-controller-prod"},
			"lab":     {"line-controller-test-lab"},
		},
		"argocd-applicationset": {
			"plant-7": {"addons-dns-1", "addons-logs-1", "shop-main"},
			"plant-8": {"addons-dns-1", "addons-logs-1", "shop-main"},
			"lab":     {"addons-dns-2", "addons-logs-2"},
		},
	}
	for _, system := range Systems {
		t.Run(system, func(t *testing.T) {
			dir := filepath.Join("testdata", system)
			options := Options{Checkouts: map[string]fs.FS{"https://git.example/line.git": os.DirFS(filepath.Join(dir, "checkout"))}}
			result, err := Import(context.Background(), system, os.DirFS(filepath.Join(dir, "input")), options)
			require.NoError(t, err)
			again, err := Import(context.Background(), system, os.DirFS(filepath.Join(dir, "input")), options)
			require.NoError(t, err)
			require.Equal(t, result, again, "the same input gives the same bytes")
			compare(t, filepath.Join(dir, "platform"), result)
			require.Equal(t, want[system], assigned(t, result, func(a *scheduler.Decided, _ map[string]string) string { return a.Name }))
			requireClean(t, result)
		})
	}
}

// compare compares files and the report with golden ones.
func compare(t *testing.T, dir string, result *Result) {
	t.Helper()
	var report bytes.Buffer
	e := json.NewEncoder(&report)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	require.NoError(t, e.Encode(result.Report))
	require.NotContains(t, report.String(), "s3cr3t")
	if *update {
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, Write(dir, result.Files))
		require.NoError(t, os.WriteFile(dir+"-report.json", report.Bytes(), 0o644))
	}
	golden, err := os.ReadFile(dir + "-report.json")
	require.NoError(t, err)
	require.Equal(t, string(golden), report.String())
	var paths []string
	for _, f := range result.Files {
		paths = append(paths, f.Path)
		golden, err := os.ReadFile(filepath.Join(dir, f.Path))
		require.NoError(t, err)
		require.Equal(t, string(golden), string(f.Data), f.Path)
		require.NotContains(t, string(f.Data), "s3cr3t")
	}
	var kept []string
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			kept = append(kept, path)
		}
		return err
	}))
	require.Equal(t, kept, paths)
}

// assigned returns for each cluster what the scheduler assigns to it from an imported platform, each assignment called by
// its decision and the manifests of its target.
func assigned(t require.TestingT, result *Result, name func(a *scheduler.Decided, manifests map[string]string) string) map[string][]string {
	base, environments := fstest.MapFS{}, map[string]fstest.MapFS{}
	for _, f := range result.Files {
		file := &fstest.MapFile{Data: f.Data}
		switch folder, rest, _ := strings.Cut(f.Path, "/"); folder {
		case "templates", "workloads":
			base[f.Path] = file
		case ".environments":
		default:
			if environments[folder] == nil {
				environments[folder] = fstest.MapFS{}
			}
			environments[folder][rest] = file
		}
	}
	on := map[string][]string{}
	for environment, files := range environments {
		m := scheduler.NewModel(environment)
		require.NoError(t, m.Load(context.Background(), scheduler.Source{FS: files, Name: environment}))
		require.NoError(t, m.Load(context.Background(), scheduler.Source{FS: base, Base: "main"}))
		decision, err := m.Decide(context.Background())
		require.NoError(t, err)
		manifests := map[string]map[string]string{}
		for _, target := range m.Targets() {
			manifests[target.Name] = target.Spec.Manifests
		}
		explainer, err := m.Explainer(nil)
		require.NoError(t, err)
		for _, c := range m.Clusters() {
			on[c.Name] = []string{}
			for _, a := range decision.Assignments {
				if a.ClusterType == c.ClusterType {
					on[c.Name] = append(on[c.Name], name(&a, onSite(t, explainer, c, a.Name, manifests[a.Name])))
				}
			}
			slices.Sort(on[c.Name])
		}
	}
	return on
}

// onSite returns the manifests of a target with the site values of a cluster that the target lists, as its agent puts them in.
func onSite(t require.TestingT, e *scheduler.Explainer, c scheduler.Cluster, target string, manifests map[string]string) map[string]string {
	x, _, err := e.Site(c.ClusterType, target, c.Name, "")
	require.NoError(t, err)
	require.Empty(t, x.Errors)
	texts := map[string]string{}
	for _, v := range x.Values {
		if v.Used && v.Set {
			texts[v.Key] = v.Value
		}
	}
	all := map[string]string{}
	for key, text := range manifests {
		all[key] = sitevalues.Expand(text, texts)
	}
	return all
}

// requireClean fails if lint finds an error or a warning in the imported platform, or in its rendered files.
func requireClean(t *testing.T, result *Result) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "platform")
	require.NoError(t, Write(dir, result.Files))
	found, err := findings.Collect(context.Background(), []platform.Source{{Platform: dir}}, findings.Options{})
	require.NoError(t, err)
	var all []string
	for _, f := range found.Findings {
		all = append(all, fmt.Sprintf("%s:%d %s %s", f.File, f.Line, f.Code, f.Message))
	}
	require.Zero(t, found.Errors+found.Warnings, strings.Join(all, "\n"))
}

// TestBadInputs each give one clear error, or a report, and never a wrong platform in silence.
func TestBadInputs(t *testing.T) {
	const cluster = "apiVersion: fleet.cattle.io/v1alpha1\nkind: Cluster\nmetadata: {name: c, namespace: n}\n"
	for _, c := range []struct {
		name, system string
		files        map[string]string
		err          string
		missing      string
	}{
		{"nothing", "fleet", map[string]string{"a.yaml": "a: b"}, "nothing to import", ""},
		{"nothing of Argo CD", "argocd-applicationset", map[string]string{}, "nothing to import", ""},
		{"nothing of Ascent", "ascent", map[string]string{"a.json": "[]"}, "nothing to import", ""},
		{"a broken object of the system", "fleet", map[string]string{"a.yaml": "apiVersion: fleet.cattle.io/v1alpha1\nkind: [", "b.yaml": cluster}, "a.yaml: ", ""},
		{"a broken file of a chart", "fleet", map[string]string{"a.yaml": "{{ if", "b.yaml": cluster}, "", ""},
		{"a file that is too large", "fleet", map[string]string{"a.yaml": strings.Repeat("#", maxFileBytes+1)}, "a.yaml: the file is larger than 8388608 bytes", ""},
		{"aliases that grow", "ascent", map[string]string{"a.yaml": bomb(25)}, "more than 1048576 values", ""},
		{"an object without a name", "fleet", map[string]string{"a.yaml": cluster, "b.yaml": "apiVersion: fleet.cattle.io/v1alpha1\nkind: GitRepo\nspec: {}"}, "", "it has no name"},
		{"a kind without counterpart", "fleet", map[string]string{"a.yaml": cluster, "b.yaml": "apiVersion: fleet.cattle.io/v1alpha1\nkind: HelmOp\nmetadata: {name: a, namespace: n}"}, "", "this kind has no counterpart"},
		{"wrong types", "fleet", map[string]string{"a.yaml": cluster, "b.yaml": "apiVersion: fleet.cattle.io/v1alpha1\nkind: GitRepo\nmetadata: {name: a, namespace: n}\nspec: {paths: 1}"}, "", "it cannot be read: "},
		{"a matrix of matrices", "argocd-applicationset", map[string]string{"a.yaml": matrix(200)}, "", "it makes more than 20000 Applications"},
		{"a function that is not evaluated", "argocd-applicationset", map[string]string{"a.yaml": goSet(`{{ printf "%099999999d" 1 }}`)}, "", "function printf is not evaluated"},
		{"a template that calls itself", "argocd-applicationset", map[string]string{"a.yaml": goSet(`{{ define "a" }}{{ template "a" }}{{ end }}{{ template "a" }}`)}, "", "definitions of templates are not evaluated"},
		{"a patch", "argocd-applicationset", map[string]string{"a.yaml": strings.Replace(goSet("a"), "spec:\n", "spec:\n  templatePatch: a\n", 1)}, "", "spec.templatePatch may change anything"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := fstest.MapFS{}
			for name, text := range c.files {
				files[name] = &fstest.MapFile{Data: []byte(text)}
			}
			result, err := Import(context.Background(), c.system, files, Options{})
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			var why []string
			for _, f := range result.Report.Findings {
				if f.Level == Missing {
					why = append(why, f.Why)
				}
			}
			if c.missing != "" {
				require.Contains(t, strings.Join(why, "\n"), c.missing)
			}
			if len(result.Files) > 0 {
				requireClean(t, result)
			}
		})
	}
}

func bomb(n int) string {
	text := "repo_url: x\na0: &a0 [x, x]\n"
	for i := range n {
		text += fmt.Sprintf("a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	return text
}

func goSet(name string) string {
	text := "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: a}\nspec:\n  goTemplate: true\n" +
		"  generators: [{list: {elements: [{cluster: lab}]}}]\n  template:\n    metadata: {name: %q}\n    spec: {source: {path: a}, destination: {name: \"{{ .cluster }}\"}}\n"
	return fmt.Sprintf(text, name)
}

func matrix(n int) string {
	var items []string
	for i := range n {
		items = append(items, fmt.Sprintf("{a: '%d'}", i))
	}
	one := "{list: {elements: [" + strings.Join(items, ", ") + "]}}"
	other := strings.ReplaceAll(one, "{a:", "{b:")
	return "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: a}\nspec:\n  generators: [{matrix: {generators: [" + one + ", " + other + "]}}]\n" +
		"  template: {metadata: {name: a}, spec: {destination: {name: lab}}}\n"
}

func TestWriteRefusesAFolderThatIsNotEmpty(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, Write(filepath.Join(dir, "new", "out"), []File{{"a/b.yaml", []byte("x")}}))
	err := Write(filepath.Join(dir, "new"), nil)
	require.ErrorIs(t, err, ErrNotEmpty)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "empty"), 0o755))
	require.NoError(t, Write(filepath.Join(dir, "empty"), []File{{"a.yaml", []byte("x")}}))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2, "nothing else is left")
	require.True(t, errors.Is(CheckOutput(filepath.Join(dir, "empty")), ErrNotEmpty))
}

func TestPasswordsAreLeftOut(t *testing.T) {
	for url, want := range map[string]string{
		"https://a:b@host/x.git":          "https://host/x.git",
		"https://to ken@host:1/a@b":       "https://host:1/a@b",
		"https://host/x":                  "https://host/x",
		"ssh://git@host/x":                "ssh://git@host/x",
		"ssh://git:secret@host/x":         "ssh://host/x",
		"git@host:x":                      "git@host:x",
		"oci://u:p@host":                  "oci://host",
		"https://a:b%zz@host/x?token=not": "https://host/x?token=not",
	} {
		got, _ := withoutPassword(url)
		require.Equal(t, want, got)
	}
}

// TestAliasesAndMergeKeysCount, as they do for kubectl.
func TestAliasesAndMergeKeysCount(t *testing.T) {
	files := fstest.MapFS{"a.yaml": {Data: []byte(`
kind: List
items:
  - {apiVersion: fleet.cattle.io/v1alpha1, kind: Cluster, metadata: &meta {name: c, namespace: n, labels: &labels {env: dev}}}
  - {apiVersion: fleet.cattle.io/v1alpha1, kind: Cluster, metadata: {<<: *meta, name: d}}
  - apiVersion: fleet.cattle.io/v1alpha1
    kind: GitRepo
    metadata: {name: r, namespace: n}
    spec: {repo: https://git.example/r, targets: [{clusterSelector: {matchLabels: *labels}}]}
`)}}
	result, err := Import(context.Background(), "fleet", files, Options{})
	require.NoError(t, err)
	require.Equal(t, map[string][]string{"c": {"r-main"}, "d": {"r-main"}},
		assigned(t, result, func(a *scheduler.Decided, _ map[string]string) string { return a.Name }))
}

// FuzzImport gives each importer foreign bytes: it ends with an error or with a platform that can be loaded.
func FuzzImport(f *testing.F) {
	for i, system := range Systems {
		_ = fs.WalkDir(os.DirFS(filepath.Join("testdata", system, "input")), ".", func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				data, err := os.ReadFile(filepath.Join("testdata", system, "input", path))
				require.NoError(f, err)
				f.Add(i, data)
			}
			return nil
		})
	}
	f.Add(2, []byte(goSet("{{ index .a 1 2 3 }}{{ with .b }}{{ .c.d }}{{ end }}")))
	f.Add(0, []byte("apiVersion: fleet.cattle.io/v1alpha1\nkind: Cluster\nmetadata: &a {name: x, b: *a}\n"))
	f.Fuzz(func(t *testing.T, system int, data []byte) {
		if system < 0 || system >= len(Systems) {
			return
		}
		result, err := Import(context.Background(), Systems[system], fstest.MapFS{"a.yaml": {Data: data}}, Options{})
		if err == nil {
			assigned(t, result, func(a *scheduler.Decided, _ map[string]string) string { return a.Name })
		}
	})
}

func TestValuesOfOneSiteAreImported(t *testing.T) {
	result := imported(t, "fleet", map[string]string{
		"clusters.yaml": `apiVersion: fleet.cattle.io/v1alpha1
kind: Cluster
metadata: {name: one, namespace: prod, labels: {zone: north}}
spec: {templateValues: {hostName: "one.example.com", db: {port: 5432, tls: true}, text: "{{ not a template }}", list: [a]}}
---
apiVersion: fleet.cattle.io/v1alpha1
kind: Cluster
metadata: {name: two, namespace: prod, labels: {zone: south}}
spec: {templateValues: {hostName: "two.example.com", db: {port: "none"}}}
---
apiVersion: fleet.cattle.io/v1alpha1
kind: GitRepo
metadata: {name: app, namespace: prod}
spec: {repo: "https://git.example/app.git", paths: [app], targets: [{clusterSelector: {}}]}
`,
		"app/fleet.yaml": `helm:
  chart: nginx
  repo: https://charts.example
  values:
    host: shop.${ .ClusterValues.hostName }
    port: ${ .ClusterValues.db.port }
    where: ${ get .ClusterLabels "zone" } ${ .ClusterName }
    other: ${ .ClusterValues.unknown } ${ upper .ClusterName }
`,
	})
	files := map[string]string{}
	for _, f := range result.Files {
		files[f.Path] = string(f.Data)
	}
	require.Contains(t, files["prod/site-values.yaml"], "wherry.dev/site-values: \"true\"")
	require.Contains(t, files["prod/site-values.yaml"], "    properties:\n        db.port:\n            type: string\n        db.tls:\n            type: boolean\n        host-name:\n            type: string\n        text:\n            type: string\n")
	require.Contains(t, files["prod/clusters.yaml"], "  values:\n    db.port: \"5432\"\n    db.tls: true\n    host-name: one.example.com\n    text: '{{ \"{{\" }} not a template }}'\n")
	require.Contains(t, files["workloads/app-app.yaml"], "main.wherry.dev/uses-site-values: cluster.labels.zone, cluster.name, db.port, host-name\n")
	require.Contains(t, files["workloads/app-app.yaml"], "host: shop.${site.host-name}\n")
	require.Contains(t, files["workloads/app-app.yaml"], "other: ${ .ClusterValues.unknown } ${ upper .ClusterName }\n")
	require.Contains(t, files["workloads/app-app.yaml"], "where: ${site.cluster.labels.zone} ${site.cluster.name}\n")
	said := map[string]string{}
	for _, f := range result.Report.Findings {
		said[string(f.Level)+" "+f.What] = f.Why
	}
	require.Contains(t, said["missing spec.templateValues"], "no site values, and neither are two of one key: list; they are kept as a comment")
	require.Contains(t, said["missing helm.values"], "a ${ … } is not evaluated")
	require.Contains(t, said["changed helm.values"], "cluster.labels.zone, cluster.name, db.port, host-name")
	require.Equal(t, map[string][]string{"one": {"shop.one.example.com"}, "two": {"shop.two.example.com"}}, assigned(t, result, func(_ *scheduler.Decided, manifests map[string]string) string {
		_, rest, _ := strings.Cut(manifests["values"], "host: ")
		host, _, _ := strings.Cut(rest, "\n")
		return host
	}))
}

func TestASpecThatDiffersOnEveryClusterIsOneTargetWithSiteValues(t *testing.T) {
	set := func(path string) string {
		return `clusters:
  - {name: lab, server: "https://lab", labels: {zone: north}}
  - {name: plant, server: "https://plant", labels: {zone: south}}
---
apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {name: shop}
spec:
  goTemplate: true
  generators: [{clusters: {selector: {matchExpressions: [{key: zone, operator: Exists}]}, values: {host: "{{ .name }}-{{ .metadata.labels.zone }}.example"}}}]
  template:
    metadata: {name: "shop-{{ .name }}"}
    spec:
      source: {repoURL: "https://git.example/a", path: "` + path + `", helm: {parameters: [{name: zone, value: "{{ .metadata.labels.zone }}"}]}}
      destination: {server: "{{ .server }}", namespace: shop}
`
	}
	result := imported(t, "argocd-applicationset", map[string]string{"sets.yaml": set("{{ .values.host }}/{{ .name }}")})
	files := map[string]string{}
	for _, f := range result.Files {
		files[f.Path] = string(f.Data)
	}
	require.Equal(t, 1, result.Report.Targets)
	require.Contains(t, files["workloads/shop.yaml"], "main.wherry.dev/uses-site-values: cluster.labels.zone, cluster.name, shop.values.host\n")
	require.Contains(t, files["workloads/shop.yaml"], "path: ${site.shop.values.host}/${site.cluster.name}\n")
	require.Contains(t, files["prod/clusters.yaml"], "  values:\n    shop.values.host: plant-south.example\n")

	// A function of what differs cannot be a site value.
	result = imported(t, "argocd-applicationset", map[string]string{"sets.yaml": set("{{ upper .name }}")})
	require.Equal(t, 2, result.Report.Targets)
	for _, f := range result.Files {
		require.NotContains(t, string(f.Data), "${site.")
	}
}

// imported imports files, and checks that lint finds nothing wrong with the platform.
func imported(t *testing.T, system string, files map[string]string) *Result {
	t.Helper()
	input := fstest.MapFS{}
	for name, text := range files {
		input[name] = &fstest.MapFile{Data: []byte(text)}
	}
	result, err := Import(context.Background(), system, input, Options{})
	require.NoError(t, err)
	requireClean(t, result)
	return result
}
