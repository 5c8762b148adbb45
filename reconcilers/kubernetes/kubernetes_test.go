package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
)

func TestInventoryRoundTrip(t *testing.T) {
	inv := inventory{Schema: inventorySchema, Content: "sha256:abc", Objects: []entry{
		{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web", Owned: true},
		{Version: "v1", Kind: "Namespace", Name: "shop"},
	}}
	data, err := inv.marshal()
	require.NoError(t, err)
	require.JSONEq(t, `{"schema":1,"content":"sha256:abc","objects":[
		{"group":"apps","version":"v1","kind":"Deployment","namespace":"shop","name":"web","owned":true},
		{"version":"v1","kind":"Namespace","name":"shop"}]}`, string(data))
	got, err := parseInventory(data)
	require.NoError(t, err)
	require.Equal(t, inv, got)

	data, err = inventory{}.marshal()
	require.NoError(t, err)
	require.Nil(t, data, "nothing to remember is not an entry")
	for _, bad := range []string{"{", `{"schema":2}`, `[]`} {
		_, err = parseInventory([]byte(bad))
		require.ErrorContains(t, err, "inventory", bad)
	}
}

func TestInventoryKnowsWhatToPrune(t *testing.T) {
	found, err := parseManifests("a.yaml", []byte("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\n---\n"+
		"apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n"))
	require.NoError(t, err)
	found[1].SetLabels(map[string]string{OwnerLabel: "shop"})
	deployment := entry{Group: "apps", Version: "v1beta1", Kind: "Deployment", Namespace: "shop", Name: "web", Owned: true}
	stale := entry{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "old", Owned: true}
	inv := inventory{Content: "old", Objects: []entry{deployment, stale}}

	require.Equal(t, []entry{stale}, inv.without(found, nil), "another version is the same object")
	service := entry{Version: "v1", Kind: "Service", Namespace: "shop", Name: "web"}
	require.Equal(t, inventory{Content: "old", Objects: []entry{deployment, stale, service}}, inv.union(found))
	require.Equal(t, []entry{deployment, stale}, inv.Objects)

	service.Owned = true
	after := entry{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web"}
	require.Equal(t, inventory{Content: "new", Objects: []entry{stale, after, service}}, newInventory("new", found, nil, []entry{stale}))
}

func TestDeletionGoesFromTheOutsideIn(t *testing.T) {
	var entries []entry
	for _, k := range []string{
		"v1 Namespace", "apiextensions.k8s.io/v1 CustomResourceDefinition", "v1 ConfigMap", "apps/v1 Deployment", "example.com/v1 Pump",
		"admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration", "v1 ServiceAccount", "example.com/v1 Namespace",
	} {
		apiVersion, kind, _ := strings.Cut(k, " ")
		gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
		entries = append(entries, entry{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Name: "a"})
	}
	var got []string
	for _, e := range forDeletion(entries) {
		got = append(got, strings.TrimPrefix(e.Group+"/"+e.Kind, "/"))
	}
	require.Equal(t, []string{
		"admissionregistration.k8s.io/ValidatingWebhookConfiguration", "example.com/Pump", "apps/Deployment", "ConfigMap", "ServiceAccount",
		"example.com/Namespace", "apiextensions.k8s.io/CustomResourceDefinition", "Namespace",
	}, got)
}

func TestTheLabelFitsAnyName(t *testing.T) {
	require.Equal(t, "drone-hello.world_1", ownerOf("drone-hello.world_1"))
	long, odd := ownerOf(strings.Repeat("a", 64)), ownerOf("größe")
	require.NotEqual(t, long, odd)
	for _, owner := range []string{long, odd, ownerOf("")} {
		require.Regexp(t, "^sha256-[0-9a-f]{32}$", owner)
	}
}

// offline returns a pass whose API server cannot be reached and which knows three kinds.
func offline(t *testing.T) *pass {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, meta.RESTScopeNamespace)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, meta.RESTScopeRoot)
	mapper.Add(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, meta.RESTScopeRoot)
	c, err := client.New(&rest.Config{Host: "http://127.0.0.1:1"}, client.Options{Mapper: mapper})
	require.NoError(t, err)
	return (&Reconciler{client: c, ledger: &reconcilertest.Ledger{}, seen: newSeen()}).newPass("shop")
}

func TestObjectsAreGivenTheNamespaceThatTheyLack(t *testing.T) {
	const crd = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pumps.example.com}
spec: {group: example.com, scope: %s, names: {kind: Pump}}
---
apiVersion: example.com/v1
kind: Pump
metadata: {name: p}
`
	cm := func(metadata string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a" + metadata + "}\n"
	}
	for _, c := range []struct {
		name, namespace, data string
		want                  []string
		err                   string
	}{
		{name: "a namespaced object goes to the assignment's", namespace: "shop", data: cm(""), want: []string{"ConfigMap/shop/a"}},
		{name: "its own namespace stays", namespace: "shop", data: cm(", namespace: other"), want: []string{"ConfigMap/other/a"}},
		{name: "an object of the cluster loses one", namespace: "shop", data: "apiVersion: v1\nkind: Namespace\nmetadata: {name: a, namespace: x}\n", want: []string{"Namespace/a"}},
		{
			name: "a kind that comes along may be namespaced", namespace: "shop", data: fmt.Sprintf(crd, "Namespaced"),
			want: []string{"CustomResourceDefinition/pumps.example.com", "Pump/shop/p"},
		},
		{name: "or the cluster's", namespace: "shop", data: fmt.Sprintf(crd, "Cluster"), want: []string{"CustomResourceDefinition/pumps.example.com", "Pump/p"}},
		{name: "without any namespace it is an error", data: cm(""), err: "a.yaml: ConfigMap/a names no namespace, and neither does its assignment"},
		{
			name: "an object that is there twice is an error", namespace: "shop", data: cm("") + "---\n" + cm(", namespace: shop"),
			err: "a.yaml, document 2: ConfigMap/shop/a is also in a.yaml, document 1",
		},
		{
			name: "a kind that nobody serves is an error", data: "apiVersion: example.com/v1\nkind: Pump\nmetadata: {name: p}\n",
			err: `a.yaml: Pump/p: no matches for kind "Pump" in version "example.com/v1"`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := offline(t)
			var err error
			p.plan.objects, err = parseManifests("a.yaml", []byte(c.data))
			require.NoError(t, err)
			err = p.plan.place(t.Context(), p.r.mapping, c.namespace)
			if c.err != "" {
				require.EqualError(t, err, c.err)
				return
			}
			require.NoError(t, err)
			var got []string
			for _, m := range p.plan.objects {
				got = append(got, m.subject())
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestAnErrorSaysWhetherTryingAgainCanHelp(t *testing.T) {
	resource := schema.GroupResource{Resource: "configmaps"}
	cause := func(err *apierrors.StatusError, cause metav1.StatusCause) error {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, cause)
		return err
	}
	plain := func(message string) error { // how an API server answers errors that have no kind
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: "Failure", Code: 500, Message: message}}
	}
	for _, c := range []struct {
		name   string
		err    error
		state  bundle.State
		reason string
	}{
		{"no connection", errors.New("dial tcp: connection refused"), bundle.Pending, APIServerUnreachable},
		{"too many requests", apierrors.NewTooManyRequests("later", 1), bundle.Pending, APIServerError},
		{"its store is away", plain("etcdserver: leader changed"), bundle.Pending, APIServerError},
		{"a webhook that does not answer", apierrors.NewInternalError(errors.New(`failed calling webhook "a": timeout`)), bundle.Pending, WebhookUnavailable},
		{"a webhook that refuses", apierrors.NewBadRequest(`admission webhook "a" denied the request: no`), bundle.Failed, AdmissionDenied},
		{"a policy that refuses", apierrors.NewForbidden(resource, "a", errors.New("ValidatingAdmissionPolicy 'a' with binding 'b' denied request: immutable")), bundle.Failed, AdmissionDenied},
		{"a quota that is used up", apierrors.NewForbidden(resource, "a", errors.New("exceeded quota: small, requested: count/configmaps=1")), bundle.Failed, QuotaExceeded},
		{"an API of another server that is down", &discovery.ErrGroupDiscoveryFailed{}, bundle.Pending, APIServerError},
		{"an object that changed meanwhile", apierrors.NewConflict(resource, "a", errors.New("modified")), bundle.Pending, APIServerError},
		{"credentials that are not accepted", apierrors.NewUnauthorized("no"), bundle.Pending, Unauthorized},
		{"a namespace on its way out", cause(apierrors.NewForbidden(resource, "a", errors.New("no")), metav1.StatusCause{Type: "NamespaceTerminating"}), bundle.Pending, NamespaceTerminating},
		{"no permission", apierrors.NewForbidden(resource, "a", errors.New("no")), bundle.Failed, Forbidden},
		{"no such kind", &meta.NoKindMatchError{}, bundle.Failed, KindNotServed},
		{"a kind that was served until now", apierrors.NewGenericServerResponse(404, "patch", resource, "a", "", 0, true), bundle.Failed, KindNotServed},
		{"no such namespace", apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "a"), bundle.Failed, NamespaceNotFound},
		{"a value out of range", apierrors.NewInvalid(schema.GroupKind{Kind: "A"}, "a", nil), bundle.Failed, InvalidManifest},
		{"a field that the schema lacks", plain("failed to create typed patch object (x): .spec: field not declared in schema"), bundle.Failed, InvalidManifest},
		{"an object that is too large", apierrors.NewRequestEntityTooLargeError("limit is 3145728"), bundle.Failed, InvalidManifest},
		{"a conflict of managers", apierrors.NewApplyConflict([]metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict, Message: `conflict with "helm"`, Field: ".a"}}, ""), bundle.Failed, Conflict},
		{"what was found out before", invalid("no"), bundle.Failed, InvalidManifest},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := failed(t.Context(), fmt.Errorf("ConfigMap/a apply failed: %w", &objectError{origin: "a.yaml", err: c.err}))
			require.Equal(t, c.state, res.State)
			require.Equal(t, c.reason, res.Reason)
			require.NotEmpty(t, res.Message)
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, bundle.Progressing, failed(ended, errors.New("whatever")).State, "the end of the context comes first")
}

func TestWhatToDoIsNotCutOff(t *testing.T) {
	for _, text := range []string{"short", strings.Repeat("ö", bundle.MaxMessageBytes), "x" + strings.Repeat("ö", bundle.MaxMessageBytes)} {
		message := advised(errors.New(text), "do this").Error()
		require.LessOrEqual(t, len(message), bundle.MaxMessageBytes)
		require.True(t, utf8.ValidString(message))
		require.True(t, strings.HasSuffix(message, " (do this)"))
	}
	require.EqualError(t, advised(errors.New("clear"), ""), "clear")
}

func TestClaims(t *testing.T) {
	conflict := func(messages ...string) error {
		var causes []metav1.StatusCause
		for i, m := range messages {
			causes = append(causes, metav1.StatusCause{Type: metav1.CauseTypeFieldManagerConflict, Message: m, Field: fmt.Sprintf(".f%d", i)})
		}
		return fmt.Errorf("wrapped: %w", apierrors.NewApplyConflict(causes, "conflict"))
	}
	const byHand, bySubresource = `conflict with "kubectl-edit" using v1 at 2026-01-02T03:04:05Z`, `conflict with "hpa" with subresource "scale" using apps/v1`
	const byApply, tricky = `conflict with "helm"`, `conflict with "a \" using v1"`
	require.Equal(t, []claim{
		{"kubectl-edit", ".f0", false}, {"hpa", ".f1", false}, {"helm", ".f2", true}, {`a " using v1`, ".f3", true}, {"new wording", ".f4", true},
	}, claims(conflict(byHand, bySubresource, byApply, tricky, "new wording")))
	require.True(t, overwrittenByHand(conflict(byHand, bySubresource)))
	require.False(t, overwrittenByHand(conflict(byHand, byApply)))
	require.False(t, overwrittenByHand(conflict("new wording")), "what is not understood is not forced")
	require.False(t, overwrittenByHand(errors.New("no answer")))
	require.False(t, overwrittenByHand(nil))
}

func TestDifferencesAreNamedWithoutTheirValues(t *testing.T) {
	a := map[string]any{"metadata": map[string]any{"resourceVersion": "1", "labels": map[string]any{"example.com/a": "1"}}, "data": map[string]any{"pin": "1", "same": "x"}, "status": 1}
	b := map[string]any{"metadata": map[string]any{"resourceVersion": "2", "labels": map[string]any{"example.com/a": "2"}}, "data": map[string]any{"pin": "2", "same": "x"}, "spec": []any{1}}
	require.Equal(t, []string{".data.pin", ".metadata.labels[example.com/a]", ".spec"}, differences(a, b))
	b["more"] = true
	require.Equal(t, []string{".data.pin", ".metadata.labels[example.com/a]", ".more", "and 1 more"}, differences(a, b))
}

// assignment has one ConfigMap.
func assignment(t *testing.T) reconcilers.Assignment {
	a := reconcilers.Assignment{Dir: t.TempDir()}
	a.Name, a.Namespace, a.Content = "shop", "shop", "sha256:abc"
	require.NoError(t, os.WriteFile(filepath.Join(a.Dir, "a.yaml"), []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"), 0o600))
	return a
}

func TestAClusterThatIsAwayIsWaitedFor(t *testing.T) {
	r, err := New(&rest.Config{Host: "http://127.0.0.1:1"}, &reconcilertest.Ledger{}, Options{})
	require.NoError(t, err)
	for _, res := range []reconcilers.Result{r.Apply(t.Context(), assignment(t)), r.Observe(t.Context(), assignment(t))} {
		require.Equal(t, bundle.Pending, res.State, res.Message)
		require.Equal(t, APIServerUnreachable, res.Reason)
		require.Contains(t, res.Message, "127.0.0.1:1")
	}
}

func TestAClusterThatDoesNotAnswerIsLeftAtTheDeadline(t *testing.T) {
	silent := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-silent }))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(silent) })
	r, err := New(&rest.Config{Host: server.URL}, &reconcilertest.Ledger{}, Options{})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	res := r.Apply(ctx, assignment(t))
	require.Equal(t, bundle.Progressing, res.State)
	require.Equal(t, reconcilers.ReasonInterrupted, res.Reason)
}

func TestFilesThatCannotBeReadAreNoTroubleOfTheCluster(t *testing.T) {
	a := assignment(t)
	a.Dir = filepath.Join(a.Dir, "gone")
	p := offline(t)
	res := failed(t.Context(), p.prepare(t.Context(), a))
	require.Equal(t, bundle.Pending, res.State)
	require.Equal(t, FilesUnreadable, res.Reason)
	require.Contains(t, res.Message, a.Dir)
}

// badLedger fails in one way or the other.
type badLedger struct{ entry string }

func (l badLedger) Load(string) ([]byte, error) { return []byte(l.entry), nil }
func (badLedger) Save(string, []byte) error     { return errors.New("disk full") }

func TestNothingIsDoneWithoutALedger(t *testing.T) {
	for _, c := range []struct {
		name, entry, reason string
		state               bundle.State
	}{
		{"an entry that cannot be read", "{", LedgerUnreadable, bundle.Failed},
		{"an entry that cannot be saved", "", LedgerNotSaved, bundle.Pending},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := offline(t)
			p.r.ledger = badLedger{c.entry}
			err := errors.Join(p.load(), p.save())
			res := failed(t.Context(), err)
			require.Equal(t, c.state, res.State)
			require.Equal(t, c.reason, res.Reason)
		})
	}
}
