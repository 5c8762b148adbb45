package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/wherry-dev/wherry/scheduler"
)

// The tests of this file make random inputs, evaluate them by the other system's rules as its documentation has them, with
// Kubernetes' own selectors, and compare per cluster what the scheduler assigns from the imported platform.

// randomLabels draws labels from few keys and values, so that selectors often match.
func randomLabels(t *rapid.T, name string) map[string]string {
	return rapid.MapOfN(rapid.SampledFrom([]string{"env", "region", "size"}), rapid.SampledFrom([]string{"a", "b", "c", ""}), 0, 3).Draw(t, name)
}

// randomSelector draws a selector, or nil.
func randomSelector(t *rapid.T, name string) *metav1.LabelSelector {
	if rapid.IntRange(0, 3).Draw(t, name+" is given") == 0 {
		return nil
	}
	s := &metav1.LabelSelector{}
	if rapid.Bool().Draw(t, name+" has labels") {
		s.MatchLabels = rapid.MapOfN(rapid.SampledFrom([]string{"env", "region"}), rapid.SampledFrom([]string{"a", "b"}), 0, 1).Draw(t, name+" labels")
	}
	for i := range rapid.IntRange(0, 2).Draw(t, name+" expressions") {
		r := metav1.LabelSelectorRequirement{
			Key:      rapid.SampledFrom([]string{"env", "region", "size"}).Draw(t, fmt.Sprint(name, " key ", i)),
			Operator: rapid.SampledFrom([]metav1.LabelSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist"}).Draw(t, fmt.Sprint(name, " operator ", i)),
		}
		if r.Operator == "In" || r.Operator == "NotIn" {
			r.Values = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 2, rapid.ID).Draw(t, fmt.Sprint(name, " values ", i))
		}
		s.MatchExpressions = append(s.MatchExpressions, r)
	}
	return s
}

// selects asks Kubernetes.
func selects(t *rapid.T, s *metav1.LabelSelector, of map[string]string) bool {
	compiled, err := metav1.LabelSelectorAsSelector(s)
	require.NoError(t, err)
	return compiled.Matches(labels.Set(of))
}

// asYAML writes JSON, which is YAML, of values with Kubernetes' names of fields.
func asYAML(t *rapid.T, values ...any) []byte {
	var all []string
	for _, v := range values {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		all = append(all, string(text))
	}
	return []byte(strings.Join(all, "\n---\n"))
}

// requireSame compares per cluster.
func requireSame(t *rapid.T, want map[string][]string, system string, files fstest.MapFS, name func(*scheduler.Decided, map[string]string) string) {
	for _, all := range want {
		slices.Sort(all)
	}
	result, err := Import(context.Background(), system, files, Options{})
	require.NoError(t, err)
	require.Equal(t, want, assigned(t, result, name))
}

type testTarget struct {
	Name                 string                `json:"name,omitempty"`
	ClusterName          string                `json:"clusterName,omitempty"`
	ClusterSelector      *metav1.LabelSelector `json:"clusterSelector,omitempty"`
	ClusterGroup         string                `json:"clusterGroup,omitempty"`
	ClusterGroupSelector *metav1.LabelSelector `json:"clusterGroupSelector,omitempty"`
	DoNotDeploy          bool                  `json:"doNotDeploy,omitempty"`
	Namespace            string                `json:"namespace,omitempty"`
}

func randomTargets(t *rapid.T, name string, least int) []testTarget {
	all := []testTarget{}
	for i := range rapid.IntRange(least, 3).Draw(t, name) {
		id := fmt.Sprint(name, " ", i)
		one := testTarget{ClusterSelector: randomSelector(t, id+" clusters")}
		switch rapid.IntRange(0, 5).Draw(t, id+" form") {
		case 0:
			one.ClusterName = rapid.SampledFrom([]string{"c0", "c1"}).Draw(t, id+" cluster")
		case 1:
			one.ClusterGroup = rapid.SampledFrom([]string{"g0", "g1", "default"}).Draw(t, id+" group")
		case 2:
			one.ClusterGroupSelector = randomSelector(t, id+" groups")
		}
		all = append(all, one)
	}
	return all
}

type testCluster struct {
	name   string
	labels map[string]string
}

type testGroup struct {
	name     string
	labels   map[string]string
	selector *metav1.LabelSelector
}

func randomClusters(t *rapid.T) []testCluster {
	var all []testCluster
	for i := range rapid.IntRange(1, 6).Draw(t, "clusters") {
		all = append(all, testCluster{fmt.Sprintf("c%d", i), randomLabels(t, fmt.Sprint("labels of cluster ", i))})
	}
	return all
}

func TestFleetAssignsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clusters := randomClusters(t)
		var objects []any
		meta := func(kind, name string, labels map[string]string, spec any) map[string]any {
			return map[string]any{
				"apiVersion": "fleet.cattle.io/v1alpha1", "kind": kind, "spec": spec,
				"metadata": map[string]any{"name": name, "namespace": "fleet", "labels": labels},
			}
		}
		for _, c := range clusters {
			objects = append(objects, meta("Cluster", c.name, c.labels, map[string]any{}))
		}
		var groups []testGroup
		for i := range rapid.IntRange(0, 2).Draw(t, "groups") {
			g := testGroup{fmt.Sprintf("g%d", i), randomLabels(t, fmt.Sprint("labels of group ", i)), randomSelector(t, fmt.Sprint("selector of group ", i))}
			groups = append(groups, g)
			objects = append(objects, meta("ClusterGroup", g.name, g.labels, map[string]any{"selector": g.selector}))
		}
		want := map[string][]string{}
		for _, c := range clusters {
			want[c.name] = []string{}
		}
		files := fstest.MapFS{}
		for i := range rapid.IntRange(1, 3).Draw(t, "repositories") {
			targets := randomTargets(t, fmt.Sprint("targets ", i), 0)
			customizations := randomTargets(t, fmt.Sprint("customizations ", i), 0)
			for j := range customizations {
				customizations[j].Name = fmt.Sprint("v", j)
				customizations[j].Namespace = fmt.Sprint("custom", j)
				customizations[j].DoNotDeploy = rapid.IntRange(0, 4).Draw(t, fmt.Sprint("do not deploy ", i, j)) == 0
			}
			path := fmt.Sprintf("apps/a%d", i)
			objects = append(objects, meta("GitRepo", fmt.Sprintf("r%d", i), nil, map[string]any{"repo": "https://git.example/all", "paths": []string{path}, "targets": targets}))
			files[path+"/fleet.yaml"] = &fstest.MapFile{Data: asYAML(t, map[string]any{"namespace": "plain", "targetCustomizations": customizations})}
			for _, c := range clusters {
				if variant, deployed := fleetDeploys(t, c, groups, targets, customizations); deployed {
					want[c.name] = append(want[c.name], "./"+path+" "+variant)
					if makes := "makes " + variant; !slices.Contains(want[c.name], makes) { // Fleet makes the namespace
						want[c.name] = append(want[c.name], makes)
					}
				}
			}
		}
		files["objects.yaml"] = &fstest.MapFile{Data: asYAML(t, objects...)}
		requireSame(t, want, "fleet", files, func(_ *scheduler.Decided, m map[string]string) string {
			if made := m["makeNamespace"]; made != "" {
				return "makes " + made
			}
			return m["path"] + " " + m["namespace"]
		})
	})
}

// fleetDeploys decides by Fleet's rules: a target matches if all criteria that it gives hold; without any it matches
// nothing. The first customisation that matches counts.
func fleetDeploys(t *rapid.T, c testCluster, groups []testGroup, targets, customizations []testTarget) (variant string, deployed bool) {
	var of []testGroup
	for _, g := range groups {
		if g.selector != nil && selects(t, g.selector, c.labels) {
			of = append(of, g)
		}
	}
	if len(of) == 0 {
		of = []testGroup{{}}
	}
	match := func(target testTarget) bool {
		for _, g := range of {
			given, met := 0, 0
			criterion := func(is, holds bool) {
				if is {
					given++
					if holds {
						met++
					}
				}
			}
			criterion(target.ClusterName != "", target.ClusterName == c.name)
			criterion(target.ClusterGroup != "", target.ClusterGroup == g.name)
			criterion(target.ClusterGroupSelector != nil, target.ClusterGroupSelector != nil && selects(t, target.ClusterGroupSelector, g.labels))
			criterion(target.ClusterSelector != nil, target.ClusterSelector != nil && selects(t, target.ClusterSelector, c.labels))
			if given > 0 && given == met {
				return true
			}
		}
		return false
	}
	if !slices.ContainsFunc(targets, match) {
		return "", false
	}
	at := slices.IndexFunc(customizations, match)
	if at < 0 {
		return "plain", true
	}
	return customizations[at].Namespace, !customizations[at].DoNotDeploy
}

func TestAscentAssignsTheSame(t *testing.T) {
	texts := rapid.SampledFrom([]string{"a", "b", "A b", "a/b", "é"})
	keys := rapid.SampledFrom([]string{"region", "workload", "Team name", "variant", "cluster-type"})
	rapid.Check(t, func(t *rapid.T) {
		metadata := func(name string, most int) map[string]string { return rapid.MapOfN(keys, texts, 0, most).Draw(t, name) }
		type entity = map[string]any
		apps, clusters, policies := map[string]map[string]string{}, map[string]map[string]string{}, []entity{}
		var objects []any
		for i := range rapid.IntRange(1, 4).Draw(t, "applications") {
			name := fmt.Sprintf("a%d", i)
			apps[name] = metadata("metadata of "+name, 3)
			objects = append(objects, entity{"name": name, "repo_url": "https://git.example/" + name, "repo_path": name, "metadata": apps[name]})
		}
		for i := range rapid.IntRange(1, 5).Draw(t, "clusters") {
			name := fmt.Sprintf("c%d", i)
			clusters[name] = metadata("metadata of "+name, 3)
			objects = append(objects, entity{"name": name, "environment": rapid.SampledFrom([]string{"dev", "Prod 1"}).Draw(t, "environment of "+name), "metadata": clusters[name]})
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "policies") {
			p := entity{"name": fmt.Sprintf("p%d", i), "app_selector": metadata(fmt.Sprint("applications of ", i), 1), "cluster_selector": metadata(fmt.Sprint("clusters of ", i), 2)}
			policies = append(policies, p)
			objects = append(objects, p)
		}
		has := func(all map[string]string, wanted any) bool {
			for key, value := range wanted.(map[string]string) {
				if got, ok := all[key]; !ok || got != value {
					return false
				}
			}
			return true
		}
		want := map[string][]string{}
		for cluster, of := range clusters {
			on := map[string]bool{}
			for _, p := range policies {
				for app, labels := range apps {
					if has(labels, p["app_selector"]) && has(of, p["cluster_selector"]) {
						on["https://git.example/"+app] = true
					}
				}
			}
			want[cluster] = append([]string{}, slices.Sorted(maps.Keys(on))...)
		}
		text, err := json.Marshal(objects)
		require.NoError(t, err)
		requireSame(t, want, "ascent", fstest.MapFS{"all.json": {Data: text}}, func(_ *scheduler.Decided, m map[string]string) string { return m["repo"] })
	})
}

func TestApplicationSetsAssignTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clusters := randomClusters(t)
		var objects []any
		want := map[string][]string{}
		for _, c := range clusters {
			of := map[string]string{"argocd.argoproj.io/secret-type": "cluster"}
			maps.Copy(of, c.labels)
			objects = append(objects, map[string]any{
				"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "s-" + c.name, "labels": of},
				"stringData": map[string]any{"name": c.name, "server": "https://" + c.name},
			})
			want[c.name] = []string{}
		}
		for i := range rapid.IntRange(1, 3).Draw(t, "sets") {
			s := randomSelector(t, fmt.Sprint("selector ", i))
			if s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
				s = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "argocd.argoproj.io/secret-type", Operator: "Exists"}}}
			}
			goTemplate := rapid.Bool().Draw(t, fmt.Sprint("Go templates ", i))
			text := func(name string) string {
				if goTemplate {
					return "{{ ." + name + " }}"
				}
				return "{{" + name + "}}"
			}
			parts := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"x", "y", "z"}), 1, 3, rapid.ID).Draw(t, fmt.Sprint("parts ", i))
			perCluster := rapid.Bool().Draw(t, fmt.Sprint("per cluster ", i))
			path := fmt.Sprintf("set%d/", i) + text("part")
			if perCluster {
				path += "/" + text("name")
			}
			var elements []any
			for _, p := range parts {
				elements = append(elements, map[string]any{"part": p})
			}
			generators := []any{map[string]any{"list": map[string]any{"elements": elements}}, map[string]any{"clusters": map[string]any{"selector": s}}}
			if rapid.Bool().Draw(t, fmt.Sprint("order ", i)) {
				slices.Reverse(generators)
			}
			objects = append(objects, map[string]any{
				"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "metadata": map[string]any{"name": fmt.Sprintf("set%d", i)},
				"spec": map[string]any{
					"goTemplate": goTemplate, "generators": []any{map[string]any{"matrix": map[string]any{"generators": generators}}},
					"template": map[string]any{
						"metadata": map[string]any{"name": text("name") + "-" + text("part")},
						"spec":     map[string]any{"source": map[string]any{"repoURL": "https://git.example/a", "path": path}, "destination": map[string]any{"server": text("server")}},
					},
				},
			})
			for _, c := range clusters {
				of := map[string]string{"argocd.argoproj.io/secret-type": "cluster"}
				maps.Copy(of, c.labels)
				if !selects(t, s, of) {
					continue
				}
				for _, p := range parts {
					one := fmt.Sprintf("set%d/%s", i, p)
					if perCluster {
						one += "/" + c.name
					}
					want[c.name] = append(want[c.name], one)
				}
			}
		}
		requireSame(t, want, "argocd-applicationset", fstest.MapFS{"all.yaml": {Data: asYAML(t, objects...)}}, func(_ *scheduler.Decided, m map[string]string) string {
			var spec struct {
				Source struct {
					Path string `yaml:"path"`
				} `yaml:"source"`
			}
			require.NoError(t, yaml.Unmarshal([]byte(m["spec"]), &spec))
			return spec.Source.Path
		})
	})
}
