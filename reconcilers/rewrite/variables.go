package rewrite

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wherry-dev/wherry/bundle"
)

// SiteConfigMap is the name of the ConfigMap with the site values that the assignments of a namespace use. Its keys are those
// of sitevalues.Variable, since Flux takes no others.
const SiteConfigMap = "wherry-site"

// Substitute has a Kustomization of Flux take the site values as variables, before those that its template names, which
// override them. It reports whether the object reads the ConfigMap. Embedded manifests have their values already: there a
// Kustomization without postBuild gets none, because Flux would begin to replace every other ${…} in them.
func Substitute(o *unstructured.Unstructured, a bundle.Assignment) bool {
	if !isKind(o, kustomizeGroup, "Kustomization") {
		return false
	}
	if _, has, _ := unstructured.NestedMap(o.Object, "spec", "postBuild"); a.Delivery == bundle.Embedded && !has {
		return false
	}
	from, _, err := substituteFrom(o)
	if err != nil { // Flux refuses it
		return false
	}
	site := map[string]any{"kind": "ConfigMap", "name": SiteConfigMap}
	named := func(v any) bool {
		m, _ := v.(map[string]any)
		return m["kind"] == site["kind"] && m["name"] == site["name"]
	}
	if slices.ContainsFunc(from, named) {
		return true
	}
	return unstructured.SetNestedSlice(o.Object, append([]any{site}, from...), "spec", "postBuild", "substituteFrom") == nil
}

func substituteFrom(o *unstructured.Unstructured) ([]any, bool, error) {
	return unstructured.NestedSlice(o.Object, "spec", "postBuild", "substituteFrom")
}

// Variables lists what Substitute changes in the objects of an assignment with site values. The objects stay as they are.
func Variables(objects []*unstructured.Unstructured, a bundle.Assignment) (changes []Change) {
	for _, o := range objects {
		after := o.DeepCopy()
		if !Substitute(after, a) {
			continue
		}
		c := Change{Object: subject(o), Field: "spec.postBuild.substituteFrom", From: variablesOf(o), To: variablesOf(after)}
		if c.From != c.To {
			changes = append(changes, c)
		}
	}
	return changes
}

// variablesOf names the objects that a Kustomization takes variables from.
func variablesOf(o *unstructured.Unstructured) string {
	from, _, _ := substituteFrom(o)
	var names []string
	for _, v := range from {
		m, _ := v.(map[string]any)
		names = append(names, fmt.Sprintf("%v/%v", m["kind"], m["name"]))
	}
	return strings.Join(names, ", ")
}
