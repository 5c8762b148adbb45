package impact

import (
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
)

const (
	configMap  = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: platform-config}\ndata: {A: \"1\"}\n"
	deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  template:
    spec:
      containers:
        - name: web
          image: web:1
          envFrom: [{configMapRef: {name: platform-config}}]
`
)

// state is an assignment for the adapter kubernetes with these manifests. Config may be empty.
func state(config digest.Digest, manifests string) State {
	return State{
		Files:   map[string][]byte{"platform-config.yaml": []byte(configMap), "reconciler.yaml": []byte(manifests)},
		Adapter: "kubernetes", Config: config,
	}
}

func TestRestarts(t *testing.T) {
	replaced := func(old, now string) string { return strings.Replace(deployment, old, now, 1) }
	flux := state("", "kind: Kustomization\n")
	flux.Adapter = "flux"
	for name, c := range map[string]struct {
		old, now State
		want     []string
		unknown  bool
	}{
		"the same":                       {old: state("", deployment), now: state("", deployment)},
		"another image":                  {old: state("", deployment), now: state("", replaced("web:1", "web:2")), want: []string{"Deployment/web"}},
		"only the order of keys differs": {old: state("", deployment), now: state("", replaced("          image: web:1\n          envFrom: [{configMapRef: {name: platform-config}}]\n", "          envFrom: [{configMapRef: {name: platform-config}}]\n          image: web:1\n"))},
		"more replicas":                  {old: state("", deployment), now: state("", replaced("replicas: 2", "replicas: 3"))},
		"a new workload":                 {old: state("", configMap), now: state("", deployment)},
		"a removed workload":             {old: state("", deployment), now: state("", configMap)},
		"no replicas":                    {old: state("", deployment), now: state("", strings.Replace(replaced("web:1", "web:2"), "replicas: 2", "replicas: 0", 1))},
		"a paused Deployment":            {old: state("", deployment), now: state("", strings.Replace(replaced("web:1", "web:2"), "replicas: 2", "paused: true", 1))},
		"a StatefulSet that waits for its pods to be deleted": {
			old: state("", replaced("Deployment", "StatefulSet")),
			now: state("", strings.NewReplacer("Deployment", "StatefulSet", "replicas: 2", "updateStrategy: {type: OnDelete}", "web:1", "web:2").Replace(deployment)),
		},
		"a DaemonSet":                                {old: state("", replaced("Deployment", "DaemonSet")), now: state("", strings.NewReplacer("Deployment", "DaemonSet", "web:1", "web:2").Replace(deployment)), want: []string{"DaemonSet/web"}},
		"a configuration for which it restarts":      {old: state("sha256:a", deployment), now: state("sha256:b", deployment), want: []string{"Deployment/web"}},
		"a workload without the configuration":       {old: state("sha256:a", replaced("name: platform-config", "name: other")), now: state("sha256:b", replaced("name: platform-config", "name: other"))},
		"asking for restarts":                        {old: state("", deployment), now: state("sha256:b", deployment), want: []string{"Deployment/web"}},
		"manifests that Flux fetches":                {old: flux, now: flux, unknown: true},
		"text that is no YAML, as a template may be": {old: state("", "a: ["), now: state("", "\t{")},
	} {
		t.Run(name, func(t *testing.T) {
			got, known := Restarts(c.old, c.now)
			require.Equal(t, c.want, got)
			require.Equal(t, !c.unknown, known)
		})
	}
}

func TestFactsAreSums(t *testing.T) {
	var f Facts
	f.Add(TypeFacts{ClusterType: "large", Counts: Counts{Clusters: 3, ChangedClusters: 1, Added: 1, Bytes: 100, TotalBytes: 100}})
	f.Add(TypeFacts{ClusterType: "drone", Counts: Counts{Clusters: 2, ChangedClusters: 2, Removed: 1, Restarts: 1, Bytes: 50, TotalBytes: 100, UpTo: true}})
	require.Equal(t, Counts{Clusters: 5, ChangedClusters: 3, Added: 1, Removed: 1, Restarts: 1, Bytes: 100, TotalBytes: 200, UpTo: true}, f.Counts)
	require.Equal(t, 3, f.Type("large").Clusters)
	require.Equal(t, TypeFacts{ClusterType: "none"}, f.Type("none"))
}
