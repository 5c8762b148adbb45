package flux

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
)

// substitute has a Kustomization take the site values as variables, before those that its template names, which override
// them. Embedded manifests have their values already: there a Kustomization without postBuild gets none, because Flux would
// begin to replace every other ${…} in them.
func substitute(o *unstructured.Unstructured, a bundle.Assignment) bool {
	if o.GroupVersionKind().GroupKind() != (schema.GroupKind{Group: kustomizeGroup, Kind: "Kustomization"}) {
		return false
	}
	if _, has, _ := unstructured.NestedMap(o.Object, "spec", "postBuild"); a.Delivery == bundle.Embedded && !has {
		return false
	}
	from, _, err := unstructured.NestedSlice(o.Object, "spec", "postBuild", "substituteFrom")
	if err != nil { // Flux refuses it
		return false
	}
	site := map[string]any{"kind": "ConfigMap", "name": kubernetes.SiteConfigMap}
	named := func(v any) bool {
		m, _ := v.(map[string]any)
		return m["kind"] == site["kind"] && m["name"] == site["name"]
	}
	if slices.ContainsFunc(from, named) {
		return true
	}
	return unstructured.SetNestedSlice(o.Object, append([]any{site}, from...), "spec", "postBuild", "substituteFrom") == nil
}
