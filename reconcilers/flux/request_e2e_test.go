//go:build e2e

package flux_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
)

// hourly is what objects has, but Flux looks at it by itself once an hour.
var hourly = strings.ReplaceAll(strings.ReplaceAll(objects, "interval: 1s", "interval: 1h"), "interval: 10m", "interval: 1h")

const requestedAt = "reconcile.fluxcd.io/requestedAt"

func note(text string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: $NAME-note}\ndata: {text: %q}\n", text)
}

// A branch is looked at with new content of the assignment, and not only an hour later.
func TestNewContentArrivesWithTheNewestVersion(t *testing.T) {
	s := newSite(t)
	first := push(t, s, "dev/settings.yaml", settings)
	a := s.Assignment(t, hourly+note("one"))
	require.Equal(t, first, s.Settled(t, a, bundle.Compliant).Revision)
	require.Empty(t, s.object(t, "GitRepository", "shop").GetAnnotations()[requestedAt], "what is new is looked at anyway")

	second := push(t, s, "dev/settings.yaml", strings.Replace(settings, `"1"`, `"2"`, 1))
	require.Equal(t, first, s.Settled(t, a, bundle.Compliant).Revision, "the same content changes nothing")

	b := s.Assignment(t, hourly+note("two"))
	require.Equal(t, second, s.Settled(t, b, bundle.Compliant).Revision)
	require.Equal(t, "2", s.ConfigMap(t, "settings").Data["version"])

	before := s.object(t, "GitRepository", "shop")
	require.NotEmpty(t, before.GetAnnotations()[requestedAt])
	require.Equal(t, bundle.Compliant, s.R.Observe(t.Context(), b).State, "a request is no drift")
	require.Empty(t, s.Settled(t, b, bundle.Compliant).Changes)
	require.Equal(t, before.GetAnnotations(), s.object(t, "GitRepository", "shop").GetAnnotations())
}

// A request of somebody else, as "flux reconcile" makes, is no drift either, and is waited for.
func TestSomebodyMayAskFluxToo(t *testing.T) {
	s := newSite(t)
	push(t, s, "dev/settings.yaml", settings)
	a := s.Assignment(t, hourly)
	s.Settled(t, a, bundle.Compliant)
	source := s.object(t, "GitRepository", "shop")
	s.annotate(t, source, requestedAt, "now")
	require.Equal(t, bundle.Compliant, s.Settled(t, a, bundle.Compliant).State)
	source = s.object(t, "GitRepository", "shop")
	require.Equal(t, "now", source.GetAnnotations()[requestedAt])
	handled, _, _ := unstructured.NestedString(source.Object, "status", "lastHandledReconcileAt")
	require.Equal(t, "now", handled)
}

// What a Kustomization takes its values from is another object, of which Flux does not see that it has changed.
func TestChangedValuesReachWhatFluxHasApplied(t *testing.T) {
	s := newSite(t)
	push(t, s, "dev/settings.yaml", strings.Replace(settings, `"1"`, `"${VERSION}"`, 1))
	const config = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: $NAME-config}\ndata: {VERSION: v%d}\n"
	const substitute = "  postBuild: {substituteFrom: [{kind: ConfigMap, name: $NAME-config}]}\n"
	for n := 1; n <= 3; n++ {
		a := s.Assignment(t, hourly+substitute+fmt.Sprintf(config, n))
		s.Settled(t, a, bundle.Compliant)
		require.Equal(t, fmt.Sprint("v", n), s.ConfigMap(t, "settings").Data["version"])
		if n == 1 {
			continue // Flux sees a new Kustomization by itself
		}
		before := s.object(t, "Kustomization", "shop").GetAnnotations()[requestedAt]
		require.NotEmpty(t, before)
		s.Settled(t, a, bundle.Compliant)
		require.Equal(t, before, s.object(t, "Kustomization", "shop").GetAnnotations()[requestedAt], "but no more than once")
	}
}

func (s *site) annotate(t *testing.T, o *unstructured.Unstructured, name, value string) {
	t.Helper()
	before := o.DeepCopy()
	annotations := map[string]string{name: value}
	for k, v := range o.GetAnnotations() {
		if k != name {
			annotations[k] = v
		}
	}
	o.SetAnnotations(annotations)
	require.NoError(t, s.Patch(t.Context(), o, client.MergeFrom(before)))
}
