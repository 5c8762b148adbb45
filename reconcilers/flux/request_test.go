package flux

import (
	"slices"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/object"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// done is an assignment's objects, of which an apply has changed some.
type done struct{ has, changed []string }

func (d done) Has(id object.ObjMetadata) bool {
	return slices.Contains(d.has, id.GroupKind.Kind+"/"+id.Name)
}

func (d done) Changed(id object.ObjMetadata) bool {
	return slices.Contains(d.changed, id.GroupKind.Kind+"/"+id.Name)
}

func TestFluxIsAskedWhereItDoesNotSeeAChange(t *testing.T) {
	const bucket = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: Bucket\nmetadata: {name: shop}\n"
	const repository = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: HelmRepository\nmetadata: {name: shop}\n"
	const values = release + "spec: {valuesFrom: [{kind: Secret, name: values}], values: {secretRef: {name: theirs}}}\n"
	const substitute = kustomization + "spec: {postBuild: {substituteFrom: [{kind: ConfigMap, name: config}]}, decryption: {secretRef: {name: age}}}\n"
	for _, c := range []struct {
		name, object string
		done         done
		fresh, want  bool
	}{
		{"a branch, with new content", fetched, done{}, true, true},
		{"a branch, with the same content", fetched, done{}, false, false},
		{"a commit", pinned, done{}, true, false},
		{"a bucket", bucket, done{}, true, true},
		{"an index of charts", repository, done{}, true, true},
		{"charts in a registry", repository + "spec: {type: oci}\n", done{}, true, false},
		{"a suspended branch", git + "spec: {suspend: true}\n", done{}, true, false},
		{"a Kustomization", applied, done{}, true, false},
		{"values that changed", substitute, done{changed: []string{"ConfigMap/config"}}, false, true},
		{"values that may have changed in an apply that was cut off", substitute, done{has: []string{"ConfigMap/config"}}, true, true},
		{"values that did not change", substitute, done{has: []string{"ConfigMap/config"}}, false, false},
		{"values of somebody else's", substitute, done{has: []string{"ConfigMap/other"}}, true, false},
		{"a key that changed", substitute, done{changed: []string{"Secret/age"}}, false, true},
		{"values of a chart that changed", values, done{changed: []string{"Secret/values"}}, false, true},
		{"what a chart calls as Flux does", values, done{changed: []string{"Secret/theirs"}}, false, false},
		{"credentials that changed", git + "spec: {ref: {commit: b2}, secretRef: {name: login}}\n", done{changed: []string{"Secret/login"}}, false, true},
		{"a key to verify with that changed", git + "spec: {ref: {commit: b2}, verify: {secretRef: {name: pgp}}}\n", done{changed: []string{"Secret/pgp"}}, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := time.Date(2030, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))
			got := requestOf(parse(t, c.object)[0], c.done, c.fresh, at)
			want := map[string]any(nil)
			if c.want {
				want = map[string]any{"metadata": map[string]any{"annotations": map[string]any{requestAnnotation: "2030-01-02T02:04:05.000000006Z"}}}
			}
			require.Equal(t, want, got)
		})
	}
}

func TestARequestIsOpenUntilFluxHasTakenItUp(t *testing.T) {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	require.False(t, asked(o))
	o.SetAnnotations(map[string]string{requestAnnotation: "b"})
	require.True(t, asked(o))
	require.NoError(t, unstructured.SetNestedField(o.Object, "a", "status", "lastHandledReconcileAt"))
	require.True(t, asked(o))
	require.NoError(t, unstructured.SetNestedField(o.Object, "b", "status", "lastHandledReconcileAt"))
	require.False(t, asked(o))
}
