//go:build e2e

package flux_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/e2e/harness"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
)

// Failures around Flux: the state, the reason, and a message that tells a person where to look.

func TestWithoutAKindFluxIsToBeInstalled(t *testing.T) {
	s := newSite(t)
	res := s.R.Apply(t.Context(), s.Assignment(t, "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Absent\nmetadata: {name: $NAME-shop}\n"))
	require.Equal(t, bundle.Failed, res.State)
	require.Equal(t, kubernetes.KindNotServed, res.Reason)
	require.Contains(t, res.Message, "the cluster does not serve Absent.kustomize.toolkit.fluxcd.io: install Flux")
}

func TestAFluxThatDoesNotRunIsNamed(t *testing.T) {
	s := newSite(t)
	push(t, s, "dev/settings.yaml", settings)
	resume, err := cluster.PauseFlux(namespace)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, resume()) })
	a := s.Assignment(t, objects)
	for _, res := range []reconcilers.Result{s.R.Apply(t.Context(), a), s.R.Observe(t.Context(), a)} {
		require.Equal(t, bundle.Progressing, res.State, "until the agent's deadline")
		require.Equal(t, kubernetes.NotReady, res.Reason)
		require.Contains(t, res.Message, "Flux has not taken it up; is its source-controller running?")
	}
	require.NoError(t, resume())
	s.Settled(t, a, bundle.Compliant)

	resume, err = cluster.PauseFlux(namespace)
	require.NoError(t, err)
	res := s.R.Remove(t.Context(), a)
	require.Equal(t, bundle.Progressing, res.State)
	require.Equal(t, kubernetes.Terminating, res.Reason)
	require.Contains(t, res.Message, "Kustomization/"+namespace+"/"+s.Name+"-shop")
	require.NotNil(t, s.ConfigMap(t, "settings"), "which only Flux takes away")
	require.NoError(t, resume())
	s.Removed(t, a)
	require.Nil(t, s.ConfigMap(t, "settings"))
}

func TestASourceThatCannotBeReached(t *testing.T) {
	s := newSite(t)
	own, err := harness.StartGit()
	require.NoError(t, err)
	commit, err := own.Commit(t.Context(), s.Name, "dev", map[string]string{"dev/settings.yaml": settings})
	require.NoError(t, err)
	local := strings.ReplaceAll(objects, "$GIT", own.URL)
	pinned := strings.Replace(local, "{branch: dev}", "{branch: dev, commit: "+commit+"}", 1)
	res := s.Settled(t, s.Assignment(t, pinned), bundle.Compliant)
	require.Equal(t, "dev@sha1:"+commit, res.Revision)
	require.NoError(t, own.Stop())

	s.annotate(t, s.object(t, "GitRepository", "shop"), requestedAt, "now")
	res = s.Settled(t, s.Assignment(t, pinned), bundle.Compliant)
	require.Equal(t, "dev@sha1:"+commit, res.Revision, "Flux has all that it is to have")
	conditions, _, _ := unstructured.NestedSlice(s.object(t, "GitRepository", "shop").Object, "status", "conditions")
	require.Contains(t, fmt.Sprint(conditions...), "GitOperationFailed")

	res = s.Stands(t, s.Assignment(t, local), bundle.Failed, "GitOperationFailed", "GitRepository/"+namespace+"/"+s.Name+"-shop: ")
	require.Equal(t, "dev@sha1:"+commit, res.Revision, "what runs goes on running")
	require.NotNil(t, s.ConfigMap(t, "settings"))
}

func TestAKustomizationThatDoesNotGetOn(t *testing.T) {
	const stuck = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  progressDeadlineSeconds: 1
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {nodeSelector: {wherry.dev/nowhere: "yes"}, containers: [{name: web, image: registry.invalid/web:1}]}}
`
	for _, c := range []struct {
		name, more, text string
		state            bundle.State
		reason, message  string
	}{
		{"one that waits for what never gets ready", "  wait: true\n", stuck, bundle.Failed, "HealthCheckFailed", "Deployment/"},
		{"one that waits for another that is not there", "  dependsOn: [{name: $NAME-absent}]\n", settings, bundle.Progressing, "DependencyNotReady", "-absent"},
		{"one that is suspended", "  suspend: true\n", settings, bundle.Suspended, "Suspended", "Kustomization/"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t)
			push(t, s, "dev/all.yaml", c.text)
			a := s.Assignment(t, objects+c.more)
			s.Stands(t, a, c.state, c.reason, c.message)

			push(t, s, "dev/all.yaml", settings)
			s.Settled(t, s.Assignment(t, objects), bundle.Compliant)
		})
	}
}

// Flux takes every field that its repository holds. Whoever owned it before is told so by his own tool: where
// that is the adapter kubernetes, by Conflict.
func TestAnObjectOfSomebodyElseInTheInventoryOfFlux(t *testing.T) {
	s := newSite(t)
	r, err := kubernetes.New(s.Config, &reconcilertest.Ledger{}, kubernetes.Options{})
	require.NoError(t, err)
	other := s.Assignment(t, strings.Replace(settings, `"1"`, `"theirs"`, 1))
	other.Name, other.Namespace = "other", s.Name
	require.Equal(t, bundle.Compliant, r.Apply(t.Context(), other).State)

	push(t, s, "dev/settings.yaml", settings)
	s.Settled(t, s.Assignment(t, objects), bundle.Compliant)
	require.Equal(t, "1", s.ConfigMap(t, "settings").Data["version"])
	for _, res := range []reconcilers.Result{r.Observe(t.Context(), other), r.Apply(t.Context(), other)} {
		require.Equal(t, bundle.Failed, res.State)
		require.Equal(t, kubernetes.Conflict, res.Reason)
		require.Contains(t, res.Message, `.data.version is managed by "kustomize-controller"`)
	}
}

// An object of Flux's itself which somebody else applies is not taken from him.
func TestAnObjectOfFluxThatSomebodyElseApplies(t *testing.T) {
	s := newSite(t)
	push(t, s, "dev/settings.yaml", settings)
	a := s.Assignment(t, objects)
	s.Settled(t, a, bundle.Compliant)
	source := s.object(t, "GitRepository", "shop")
	source.Object["spec"].(map[string]any)["interval"] = "7m"
	source.SetManagedFields(nil)
	source.SetResourceVersion("")
	s.applyAs(t, "gitops-of-somebody-else", source)
	for _, res := range []reconcilers.Result{s.R.Observe(t.Context(), a), s.R.Apply(t.Context(), a)} {
		require.Equal(t, bundle.Failed, res.State)
		require.Equal(t, kubernetes.Conflict, res.Reason)
		require.Contains(t, res.Message, `.spec.interval is managed by "gitops-of-somebody-else"`)
	}
}

// failing lets an API server answer so many requests, and no more: then it is gone, or says nothing.
type failing struct {
	http.RoundTripper
	left   int
	silent bool
}

func (f *failing) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.left--; f.left >= 0 {
		return f.RoundTripper.RoundTrip(r)
	}
	if f.silent {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return nil, errors.New("connection refused")
}

// through returns a reconciler, as after a restart, with an API server that fails after n requests.
func (s *site) through(t *testing.T, n int, silent bool) reconcilers.Reconciler {
	t.Helper()
	config := rest.CopyConfig(s.Config)
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &failing{rt, n, silent} })
	r, err := create(config, reconcilertest.DiskLedger(s.Ledger))
	require.NoError(t, err)
	return r
}

func TestAnAPIServerThatGoesHalfWay(t *testing.T) {
	s := newSite(t)
	push(t, s, "dev/settings.yaml", settings)
	var a reconcilers.Assignment
	cuts := 0
	for n := 0; ; n++ {
		a = s.Assignment(t, hourly+note(strings.Repeat("x", n))) // each time there is something to do
		res := s.through(t, n, false).Apply(t.Context(), a)
		if res.State == bundle.Compliant || res.State == bundle.Progressing {
			break
		}
		cuts++
		require.Equal(t, bundle.Pending, res.State, res.Message)
		require.Equal(t, kubernetes.APIServerUnreachable, res.Reason)
		require.Contains(t, res.Message, "connection refused")
		require.Less(t, n, 100)
	}
	require.Greater(t, cuts, 5)
	s.Settled(t, a, bundle.Compliant)
	require.NotNil(t, s.ConfigMap(t, "settings"))
}

func TestAnAPIServerThatSaysNothing(t *testing.T) {
	s := newSite(t)
	push(t, s, "dev/settings.yaml", settings)
	a := s.Assignment(t, objects)
	s.Settled(t, a, bundle.Compliant)
	for _, n := range []int{0, 4} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		res := s.through(t, n, true).Observe(ctx, a)
		cancel()
		require.Equal(t, bundle.Progressing, res.State)
		require.Equal(t, reconcilers.ReasonInterrupted, res.Reason)
	}
}

// What Flux brings into a namespace that is on its way out does not arrive, and Flux says why.
func TestANamespaceThatIsOnItsWayOut(t *testing.T) {
	s := newSite(t)
	push(t, s, "dev/settings.yaml", settings)
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "held", Finalizers: []string{"example.com/wait"}}}
	require.NoError(t, s.Create(t.Context(), held))
	require.NoError(t, s.Client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}))
	s.Stands(t, s.Assignment(t, objects), bundle.Failed, "ReconciliationFailed", "is being terminated")
	// The namespace's controller may be about to delete it.
	require.NoError(t, s.Patch(t.Context(), held, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
}
