package doctor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/bundle/diagnosis"
	"github.com/wherry-dev/wherry/reconcilers/needs"
)

// manifests are outputs of templates: several documents, lists, JSON, and files that are no manifests.
var manifests = map[string]string{
	"till-live/namespace.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: till}\n",
	"till-live/reconciler.yaml": `apiVersion: kustomize.toolkit.fluxcd.io/v1beta2
kind: Kustomization
metadata: {name: till, namespace: till}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1beta2
kind: Kustomization
metadata: {name: other, namespace: till}
`,
	"till-live/list.json":      `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"till"}}]}`,
	"till-live/broken.yaml":    "a: [",
	"till-live/definition.yml": "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: menus.coffee.example}\nspec: {group: coffee.example, names: {kind: Menu, plural: menus}, versions: [{name: v1}]}\n",
	"till-live/menu.yaml":      "apiVersion: coffee.example/v1\nkind: Menu\nmetadata: {name: winter, namespace: till}\n",
	"till-live/README.md":      "apiVersion: nobody/v1\nkind: Reader\n",
}

// withNeeds is an examination that has read the manifests, on a cluster that serves what known says.
func withNeeds(t *testing.T, known map[schema.GroupKind]resource) *examination {
	t.Helper()
	f := newFixture(t)
	f.publish(time.Now().Add(2*time.Second), func(d *agenttest.Draft) { d.Adapter, d.Files = "kubernetes", manifests })
	e := &examination{Subject: f.subject, source: f.repo, served: &served{kinds: known}}
	e.Now, e.Kubernetes = time.Now, &rest.Config{}
	found := checkRelease(t.Context(), e)
	require.Equal(t, diagnosis.OK, found.Result, "%+v", found)
	return e
}

func TestWhatAReleaseHoldsIsReadFromItsTree(t *testing.T) {
	objects, assignments := withNeeds(t, nil).onCluster()
	require.Equal(t, 1, assignments)
	require.Equal(t, []needs.Object{
		{Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Namespace: "till"},
		{Kind: schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, Namespace: ""},
		{Kind: schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, Namespace: ""},
		{Kind: schema.GroupVersionKind{Group: "coffee.example", Version: "v1", Kind: "Menu"}, Namespace: "till"},
		{Kind: schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1beta2", Kind: "Kustomization"}, Namespace: "till"},
	}, objects)
}

func TestKindsThatAClusterServes(t *testing.T) {
	builtIn := func() map[schema.GroupKind]resource {
		return map[schema.GroupKind]resource{
			{Kind: "ConfigMap"}: {"configmaps", true, []string{"v1"}},
			{Kind: "Namespace"}: {"namespaces", false, []string{"v1"}},
			{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: {"customresourcedefinitions", false, []string{"v1"}},
		}
	}
	kustomization := schema.GroupKind{Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization"}
	tests := []struct {
		name   string
		change func(map[schema.GroupKind]resource)
		want   diagnosis.Finding
	}{
		{
			"Flux in another version, and a kind that the release brings",
			func(k map[schema.GroupKind]resource) {
				k[kustomization] = resource{"kustomizations", true, []string{"v1"}}
			},
			diagnosis.Finding{Result: diagnosis.OK, Message: "the cluster serves all that 1 assignments have; Flux serves Kustomization as v1", Remedy: ""},
		},
		{
			"no Flux",
			func(map[schema.GroupKind]resource) {},
			diagnosis.Finding{Result: diagnosis.Failed, Message: "the cluster does not serve Kustomization of kustomize.toolkit.fluxcd.io/v1beta2", Remedy: `install Flux and its CustomResourceDefinitions, such as with "flux install"`},
		},
		{
			"a kind in another version only",
			func(k map[schema.GroupKind]resource) {
				k[kustomization] = resource{"kustomizations", true, []string{"v1"}}
				k[schema.GroupKind{Kind: "ConfigMap"}] = resource{"configmaps", true, []string{"v2"}}
			},
			diagnosis.Finding{Result: diagnosis.Failed, Message: "the cluster does not serve ConfigMap of v1 (served: v2)", Remedy: "write the templates for a version that is served"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			known := builtIn()
			test.change(known)
			e := withNeeds(t, known)
			require.Equal(t, test.want, checkKinds(t.Context(), e))
		})
	}
}

func TestFilesThatAreNotWhatWasSignedAreNoRelease(t *testing.T) {
	e := withNeeds(t, nil)
	v := *e.offered
	v.Release.Content.DiffID = v.Tree.Digest
	_, err := needs.Read(t.Context(), e.source, &v)
	require.ErrorContains(t, err, "signed is")
}
