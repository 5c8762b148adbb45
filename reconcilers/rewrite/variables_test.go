package rewrite

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/wherry-dev/wherry/bundle"
)

func TestAKustomizationGetsSiteValuesAsVariables(t *testing.T) {
	const head = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: shop}\n"
	const site = "{kind: ConfigMap, name: wherry-site}"
	for _, c := range []struct {
		name, before, delivery, after string
		reads                         bool
	}{
		{"without variables", head + "spec: {path: ./}\n", "", head + "spec: {path: ./, postBuild: {substituteFrom: [" + site + "]}}\n", true},
		{"before those of its template", head + "spec: {postBuild: {substitute: {a: b}, substituteFrom: [{kind: Secret, name: s}]}}\n", "", head + "spec: {postBuild: {substitute: {a: b}, substituteFrom: [" + site + ", {kind: Secret, name: s}]}}\n", true},
		{"once", head + "spec: {postBuild: {substituteFrom: [{kind: Secret, name: s}, " + site + "]}}\n", "", head + "spec: {postBuild: {substituteFrom: [{kind: Secret, name: s}, " + site + "]}}\n", true},
		{"embedded, without variables", head + "spec: {path: ./}\n", bundle.Embedded, head + "spec: {path: ./}\n", false},
		{"embedded, with variables", head + "spec: {postBuild: {substitute: {a: b}}}\n", bundle.Embedded, head + "spec: {postBuild: {substitute: {a: b}, substituteFrom: [" + site + "]}}\n", true},
		{"what Flux will refuse", head + "spec: {postBuild: {substituteFrom: x}}\n", "", head + "spec: {postBuild: {substituteFrom: x}}\n", false},
		{"another kind", "apiVersion: v1\nkind: ConfigMap\n", "", "apiVersion: v1\nkind: ConfigMap\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, want := &unstructured.Unstructured{}, map[string]any{}
			require.NoError(t, yaml.Unmarshal([]byte(c.before), &o.Object))
			require.NoError(t, yaml.Unmarshal([]byte(c.after), &want))
			a := bundle.Assignment{Delivery: c.delivery}
			listed := Variables([]*unstructured.Unstructured{o}, a)
			before := o.DeepCopy()
			require.Equal(t, c.reads, Substitute(o, a))
			require.Equal(t, want, o.Object)
			var changes []Change
			if variablesOf(before) != variablesOf(o) {
				changes = []Change{{"Kustomization/shop", "spec.postBuild.substituteFrom", variablesOf(before), variablesOf(o)}}
			}
			require.Equal(t, changes, listed, "the list is that of what changes")
		})
	}
}
