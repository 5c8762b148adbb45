package migrate

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/child"
	"github.com/wherry-dev/wherry/publisher/gittest"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/sandbox"
	"github.com/wherry-dev/wherry/publisher/sources"
)

// layout is a repository as people have it, with the objects that bring it to clusters, and what is right.
type layout struct {
	system  string
	objects string
	repo    map[string]string
	// want are the assignments of each cluster, rendered the files of assignments of the cluster type that is named, with a text that
	// each has, and report the parts that have no exact counterpart, as LEVEL WHAT.
	want     map[string][]string
	rendered map[string]string
	report   []string
	// contains are texts of files of the platform.
	contains map[string]string
}

const layoutRepo = "https://git.example/team/apps"

const fleetClusters = `
---
apiVersion: fleet.cattle.io/v1alpha1
kind: Cluster
metadata: {name: north, namespace: edge, labels: {env: dev}}
---
apiVersion: fleet.cattle.io/v1alpha1
kind: Cluster
metadata: {name: south, namespace: edge, labels: {env: prod}}
`

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {a: b}\n"

const chartTemplate = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}', namespace: '{{ .Release.Namespace }}'}\ndata: {replicas: '{{ .Values.replicas }}'}\n"

func fleetObjects(paths string) string {
	return "apiVersion: fleet.cattle.io/v1alpha1\nkind: GitRepo\nmetadata: {name: apps, namespace: edge}\nspec:\n  repo: " + layoutRepo + "\n  branch: main\n  paths: [" + paths +
		"]\n  targets: [{clusterSelector: {}}]\n" + fleetClusters
}

// The layouts are those of the examples that Fleet and Argo CD publish, rebuilt by hand.
var layouts = map[string]layout{
	"objects without options": {
		system: "fleet", objects: fleetObjects("simple"), repo: map[string]string{"simple/web.yaml": configMap, "simple/README.md": "x"},
		want:     map[string][]string{"north": {"apps-simple-main"}, "south": {"apps-simple-main"}},
		rendered: map[string]string{"apps-simple-main": "name: web"},
	},
	"a chart with a customization": {
		system: "fleet", objects: fleetObjects("helm"), repo: map[string]string{
			"helm/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n", "helm/values.yaml": "replicas: 1\n", "helm/templates/cm.yaml": chartTemplate,
			"helm/fleet.yml": "namespace: web\ntargetCustomizations:\n- name: prod\n  clusterSelector: {matchLabels: {env: prod}}\n  helm: {values: {replicas: 3}}\n",
		},
		want:     map[string][]string{"north": {"apps-helm-main"}, "south": {"apps-helm-prod"}},
		rendered: map[string]string{"apps-helm-main": `releaseName: "apps-helm"`, "apps-helm-prod": "replicas: 3"},
	},
	"a chart in a folder below": {
		system: "fleet", objects: fleetObjects("helm"), repo: map[string]string{
			"helm/chart/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n", "helm/chart/values.yaml": "replicas: 1\n", "helm/chart/templates/cm.yaml": chartTemplate,
			"helm/fleet.yaml": "defaultNamespace: web\nhelm: {chart: ./chart}\n",
		},
		want:     map[string][]string{"north": {"apps-helm-main"}, "south": {"apps-helm-main"}},
		rendered: map[string]string{"apps-helm-main": `chart: "./helm/chart"`},
	},
	"a kustomization for each environment": {
		system: "fleet", objects: fleetObjects("kustomize"), repo: map[string]string{
			"kustomize/base/web.yaml": configMap, "kustomize/base/kustomization.yaml": "resources: [web.yaml]\n",
			"kustomize/overlays/dev/kustomization.yaml":  "resources: [../../base]\nnamePrefix: dev-\n",
			"kustomize/overlays/prod/kustomization.yaml": "resources: [../../base]\nnamePrefix: prod-\n",
			"kustomize/fleet.yaml": "namespace: web\ntargetCustomizations:\n- name: dev\n  clusterSelector: {matchLabels: {env: dev}}\n  kustomize: {dir: overlays/dev}\n" +
				"- name: prod\n  clusterSelector: {matchLabels: {env: prod}}\n  kustomize: {dir: overlays/prod}\n",
		},
		want:     map[string][]string{"north": {"apps-kustomize-dev", "namespace-web-main"}, "south": {"apps-kustomize-prod", "namespace-web-main"}},
		rendered: map[string]string{"apps-kustomize-dev": "name: dev-web", "apps-kustomize-prod": "name: prod-web", "namespace-web-main": "\n  name: \"web\"\n"},
		report:   []string{"changed the namespace"},
	},
	"a chart that patches and images change": {
		system: "fleet", objects: fleetObjects("both"), repo: map[string]string{
			"both/fleet.yaml":              "namespace: web\nhelm: {chart: ./chart}\nkustomize: {dir: overlays/dev}\n",
			"both/chart/Chart.yaml":        "apiVersion: v2\nname: web\nversion: 1.0.0\n",
			"both/chart/templates/cm.yaml": strings.Replace(chartTemplate, "{{ .Values.replicas }}", "1", 1),
			"both/overlays/dev/kustomization.yaml": "kind: Kustomization\npatches:\n- {path: ../patch.yaml, target: {kind: ConfigMap, name: web}}\n- patch: |-\n    - {op: remove, path: /data/a}\n  target: {kind: ConfigMap}\n" +
				"patchesStrategicMerge: [more.yaml]\nimages: [{name: web, newTag: '1.10'}]\nresources: []\n",
			"both/overlays/patch.yaml":    "data: {level: debug}\n",
			"both/overlays/dev/more.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {more: \"1\"}\n",
		},
		want: map[string][]string{"north": {"apps-both-main"}, "south": {"apps-both-main"}},
		rendered: map[string]string{"apps-both-main": `  postRenderers:
    - kustomize:
        patches:
            - target:
                kind: ConfigMap
                name: web
              patch: |
                data: {level: debug}
            - target:
                kind: ConfigMap
              patch: '- {op: remove, path: /data/a}'
            - patch: |
                apiVersion: v1
                kind: ConfigMap
                metadata: {name: web}
                data: {more: "1"}
        images:
            - name: web
              newTag: "1.10"
`},
		report: []string{"changed kustomize.dir both/overlays/dev"},
	},
	"a chart that a kustomization changes": {
		system: "fleet", objects: fleetObjects("both"), repo: map[string]string{
			"both/fleet.yaml":                      "namespace: web\nhelm: {chart: ./chart}\nkustomize: {dir: overlays/dev}\n",
			"both/chart/Chart.yaml":                "apiVersion: v2\nname: web\nversion: 1.0.0\n",
			"both/chart/templates/cm.yaml":         strings.Replace(chartTemplate, "{{ .Values.replicas }}", "1", 1),
			"both/overlays/dev/kustomization.yaml": "namePrefix: dev-\n",
		},
		want:     map[string][]string{"north": {"apps-both-main"}, "south": {"apps-both-main"}},
		rendered: map[string]string{"apps-both-main": "kind: HelmRelease"},
		report:   []string{"missing kustomize.dir both/overlays/dev"},
	},
	"objects with overlays": {
		system: "fleet", objects: fleetObjects("manifests"), repo: map[string]string{
			"manifests/web.yaml":                            configMap,
			"manifests/overlays/scale/manifests/patch.yaml": "spec: {replicas: 3}\n",
			"manifests/fleet.yaml":                          "defaultNamespace: web\ntargetCustomizations:\n- name: prod\n  clusterSelector: {matchLabels: {env: prod}}\n  yaml: {overlays: [scale]}\n",
		},
		want:     map[string][]string{"north": {"apps-manifests-main", "namespace-web-main"}, "south": {"apps-manifests-prod", "namespace-web-main"}},
		rendered: map[string]string{"apps-manifests-main": "name: web"},
		report:   []string{"missing yaml.overlays", "changed defaultNamespace", "changed the namespace"},
	},
	"bundles in bundles": {
		system: "fleet", objects: fleetObjects("tree, root"), repo: map[string]string{
			"tree/fleet.yaml": "namespace: tree\n", "tree/web.yaml": configMap, "tree/.fleetignore": "tests/*\nsuite.yaml\n# a remark\n", "tree/suite.yaml": "not: an object\n",
			"tree/tests/fleet.yaml": "namespace: tests\n", "tree/tests/t.yaml": configMap, "tree/sub/fleet.yaml": "namespace: sub\n", "tree/sub/cm.yaml": strings.Replace(configMap, "web", "sub", 1),
			"root/a/fleet.yaml": "{}\n", "root/a/cm.yaml": configMap, "root/b/cm.yaml": strings.Replace(configMap, "web", "b", 1),
		},
		want: map[string][]string{
			"north": {"apps-root-main", "apps-root-a-main", "apps-tree-main", "apps-tree-sub-main", "namespace-sub-main", "namespace-tree-main"},
			"south": {"apps-root-main", "apps-root-a-main", "apps-tree-main", "apps-tree-sub-main", "namespace-sub-main", "namespace-tree-main"},
		},
		rendered: map[string]string{"apps-tree-main": "name: web", "apps-tree-sub-main": "name: sub", "apps-root-main": "name: b"},
		report:   []string{"changed all", "changed .fleetignore", "changed the namespace"},
	},
	"folders and charts of an ApplicationSet": {
		system: "argocd-applicationset",
		objects: `apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {name: addons, namespace: argocd}
spec:
  generators:
  - matrix:
      generators:
      - git: {repoURL: "` + layoutRepo + `", revision: main, directories: [{path: addons/*}, {path: addons/exclude-*, exclude: true}]}
      - clusters: {selector: {matchLabels: {env: prod}}}
  template:
    metadata: {name: '{{path.basename}}-{{name}}'}
    spec:
      project: default
      source: {repoURL: "` + layoutRepo + `", targetRevision: main, path: '{{path}}'}
      destination: {server: '{{server}}', namespace: '{{path.basename}}'}
---
clusters:
- {name: north, server: "https://north.example", labels: {env: dev}}
- {name: south, server: "https://south.example", labels: {env: prod}}
`,
		repo: map[string]string{
			"addons/web/web.yaml": configMap, "addons/exclude-this/web.yaml": configMap, "other/web.yaml": configMap,
			"addons/db/Chart.yaml": "apiVersion: v2\nname: db\nversion: 1.0.0\n", "addons/db/templates/cm.yaml": strings.Replace(chartTemplate, "{{ .Values.replicas }}", "1", 1),
		},
		want:     map[string][]string{"north": {}, "south": {"addons-db", "addons-web"}},
		rendered: map[string]string{"addons-web": "name: web", "addons-db": "replicas: '1'"},
		report:   []string{"later parameters of a cluster", "changed names of Applications"},
	},
	"files of an ApplicationSet": {
		system: "argocd-applicationset",
		objects: `apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {name: guestbook, namespace: argocd}
spec:
  generators:
  - git: {repoURL: "` + layoutRepo + `", revision: main, files: [{path: "cluster-config/**/config.json"}]}
  template:
    metadata: {name: '{{cluster.name}}-guestbook'}
    spec:
      project: default
      source: {repoURL: "` + layoutRepo + `", targetRevision: main, path: guestbook}
      destination: {server: 'https://{{cluster.name}}.example', namespace: 'web-{{cluster.port}}'}
---
clusters: [{name: north, server: "https://north.example"}, {name: south, server: "https://south.example"}]
`,
		repo: map[string]string{
			"guestbook/web.yaml":                       configMap,
			"cluster-config/dev/a/config.json":         `{"cluster": {"name": "north", "port": 8080}}`,
			"cluster-config/prod/config.json":          `{"cluster": {"name": "south", "port": 1000000}}`,
			"cluster-config/prod/another.json":         `{"cluster": {"name": "lost"}}`,
			"cluster-config/prod/charts/x/values.yaml": "a: b\n",
		},
		want:     map[string][]string{"north": {"guestbook-main"}, "south": {"guestbook-main"}},
		rendered: map[string]string{"guestbook-main": "name: web"},
		report:   []string{"changed names of Applications", "changed parameters of a cluster"},
		contains: map[string]string{"edge/clusters.yaml": "guestbook.cluster.port: \"1e+06\""}, // as Argo CD writes a million
	},
}

// What an import writes passes lint and is what publishing would sign, with its manifests in the bundle too.
func TestWholeLayoutsPublish(t *testing.T) {
	for name, c := range layouts {
		t.Run(name, func(t *testing.T) {
			checkout := fstest.MapFS{}
			for file, text := range c.repo {
				checkout[file] = &fstest.MapFile{Data: []byte(text)}
			}
			objects := fstest.MapFS{"objects.yaml": {Data: []byte(c.objects)}}
			result, err := Import(t.Context(), c.system, objects, Options{Environment: "edge", Checkouts: map[string]fs.FS{layoutRepo: checkout}})
			require.NoError(t, err)
			var report []string
			for _, f := range result.Report.Findings {
				if line := string(f.Level) + " " + f.What; len(report) == 0 || report[len(report)-1] != line {
					report = append(report, line)
				}
			}
			require.Equal(t, c.report, report)
			on := map[string][]string{}
			for _, ct := range result.Report.Types {
				for _, cluster := range ct.Clusters {
					on[cluster] = ct.Targets
				}
			}
			require.Equal(t, c.want, on)
			for _, f := range result.Files {
				require.Contains(t, string(f.Data), c.contains[f.Path], f.Path)
			}
			requireClean(t, result)

			repo := filepath.Join(t.TempDir(), "apps.git")
			gittest.CommitFiles(t, repo, "main", c.repo)
			for _, delivery := range []string{"reference", "embedded"} {
				dir := filepath.Join(t.TempDir(), "platform")
				require.NoError(t, Write(dir, result.Files))
				types := filepath.Join(dir, "edge", "cluster-types.yaml")
				text, err := os.ReadFile(types)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(types, []byte(strings.ReplaceAll(string(text), "  annotations:\n", "  annotations:\n    wherry.dev/delivery: "+delivery+"\n")), 0o600))
				mirrors := map[string]string{layoutRepo: repo}
				built, err := platform.Build(t.Context(), platform.Source{Platform: dir, Environment: "edge", Mirrors: mirrors, Sandbox: child.Self(sandbox.Name)}, platform.Options{ToSign: true, Pin: &sources.Options{Mirrors: mirrors}})
				require.NoError(t, err)
				made := map[string]string{}
				for _, ct := range built.Result.ClusterTypes {
					require.Empty(t, ct.Failures, delivery)
					for _, a := range ct.Assignments {
						for _, f := range a.Files {
							made[a.Name] += string(f.Data)
							if ext := path.Ext(f.Path); ext == ".yaml" {
								require.NotContains(t, string(f.Data), "targetCustomizations", f.Path)
							}
						}
					}
				}
				if delivery == "embedded" {
					for assignment, text := range c.rendered {
						require.Contains(t, made[assignment], text, assignment)
					}
				}
			}
		})
	}
}

// A chart by its own URL has no counterpart: the report says what to do, and what is written lints.
func TestAChartByItsURLIsReported(t *testing.T) {
	for _, chart := range []string{"https://charts.example/radio-3.1.0.tgz", "git::https://git.example/radio//chart"} {
		checkout := fstest.MapFS{"radio/fleet.yaml": {Data: []byte("namespace: radio\nhelm: {chart: '" + chart + "'}\n")}}
		result, err := Import(t.Context(), "fleet", fstest.MapFS{"objects.yaml": {Data: []byte(fleetObjects("radio"))}}, Options{Checkouts: map[string]fs.FS{layoutRepo: checkout}})
		require.NoError(t, err)
		require.Equal(t, []Finding{{
			Missing, "radio/fleet.yaml", 1, "GitRepo edge/apps radio", "helm.chart " + chart,
			"Flux and embedded delivery take no chart by its own URL: write its chart repository, name and version into the Workload's manifests (repo, chart, version), or put the chart into git",
		}}, result.Report.Findings)
		requireClean(t, result)
		require.Equal(t, chart, targetsOf(t, result)["apps-radio-main"]["chartPath"])
	}
}

// A chart of a repository is named as embedded delivery needs it.
func TestAChartOfARepositoryIsEmbedded(t *testing.T) {
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	files := tar.NewWriter(zipped)
	for _, f := range [][2]string{{"radio/Chart.yaml", "apiVersion: v2\nname: radio\nversion: 3.1.0\n"}, {"radio/templates/cm.yaml", chartTemplate}, {"radio/values.yaml", "replicas: 1\n"}} {
		require.NoError(t, files.WriteHeader(&tar.Header{Name: f[0], Mode: 0o644, Size: int64(len(f[1]))}))
		_, err := files.Write([]byte(f[1]))
		require.NoError(t, err)
	}
	require.NoError(t, errors.Join(files.Close(), zipped.Close()))
	charts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/index.yaml" {
			_, _ = fmt.Fprintf(w, "apiVersion: v1\nentries:\n  radio:\n  - {name: radio, version: 3.1.0, digest: %s, urls: [radio-3.1.0.tgz]}\n", digest.FromBytes(archive.Bytes()).Encoded())
			return
		}
		_, _ = w.Write(archive.Bytes())
	}))
	t.Cleanup(charts.Close)
	checkout := fstest.MapFS{"radio/fleet.yaml": {Data: []byte("namespace: radio\nhelm: {repo: '" + charts.URL + "', chart: radio, version: 3.1.0}\n")}}
	result, err := Import(t.Context(), "fleet", fstest.MapFS{"objects.yaml": {Data: []byte(fleetObjects("radio"))}}, Options{Checkouts: map[string]fs.FS{layoutRepo: checkout}})
	require.NoError(t, err)
	require.Empty(t, result.Report.Findings)
	dir := filepath.Join(t.TempDir(), "platform")
	for i, f := range result.Files {
		if f.Path == "edge/cluster-types.yaml" {
			result.Files[i].Data = bytes.ReplaceAll(f.Data, []byte("  annotations:\n"), []byte("  annotations:\n    wherry.dev/delivery: embedded\n"))
		}
	}
	require.NoError(t, Write(dir, result.Files))
	reached := "apiVersion: wherry.dev/v1alpha1\nkind: Platform\nmetadata: {name: p}\nspec: {sources: {allowPrivate: ['127.0.0.1']}}\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "edge", "platform.yaml"), []byte(reached), 0o600))
	built, err := platform.Build(t.Context(), platform.Source{Platform: dir, Environment: "edge", Sandbox: child.Self(sandbox.Name)}, platform.Options{ToSign: true, Pin: &sources.Options{}})
	require.NoError(t, err)
	for _, ct := range built.Result.ClusterTypes {
		require.Empty(t, ct.Failures)
		require.Len(t, ct.Assignments, 1)
		var files []string
		for _, f := range ct.Assignments[0].Files {
			files = append(files, f.Path)
		}
		require.Contains(t, files, "charts/radio-3.1.0.tgz")
	}
}
