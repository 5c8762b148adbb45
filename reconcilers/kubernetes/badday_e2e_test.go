//go:build e2e

package kubernetes_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
)

// put creates an object as the cluster's administrator does, and takes it away with the test. $NS stands for
// the site's namespace.
func (s *site) put(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(strings.ReplaceAll(manifest, "$NS", s.Name)), &u.Object))
	require.NoError(t, s.Create(t.Context(), u))
	t.Cleanup(func() { _ = s.Client.Delete(context.Background(), u) })
	return u
}

// refused waits until the API server acts on a rule that it was just given, and says words.
func (s *site) refused(t *testing.T, words string) {
	t.Helper()
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "probe"}}
	require.Eventually(t, func() bool {
		err := s.Create(t.Context(), probe.DeepCopy(), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), words)
	}, reconcilertest.Patience, 100*time.Millisecond)
}

// recovers waits until an assignment that was in trouble is compliant, without a change of its own.
func (s *site) recovers(t *testing.T, name, manifests string) {
	t.Helper()
	a := s.assignment(t, name, manifests)
	require.Eventually(t, func() bool { return s.r.Apply(t.Context(), a).State == bundle.Compliant },
		reconcilertest.Patience, 100*time.Millisecond)
}

func TestAKindThatIsDefinedLaterIsTaken(t *testing.T) {
	s := newSite(t)
	manifests := configMap("good", "a", "1") + "---\napiVersion: $NS.example.com/v1\nkind: Pump\nmetadata: {name: main}\n"
	res := s.apply(t, "shop", manifests, bundle.Failed, kubernetes.KindNotServed)
	require.Contains(t, res.Message, "(install what defines the kind, or write a version that is served)")
	require.Nil(t, s.read(t, "v1", "ConfigMap", s.Name, "good"))
	s.put(t, `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pumps.$NS.example.com}
spec:
  group: $NS.example.com
  scope: Namespaced
  names: {kind: Pump, plural: pumps, singular: pump, listKind: PumpList}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`)
	s.recovers(t, "shop", manifests)
	s.remove(t, "shop")
}

// The API server has to be on this machine, to reach a webhook's server at 127.0.0.1.
func TestWebhooks(t *testing.T) {
	ended := make(chan struct{})
	refusing := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if json.NewDecoder(r.Body).Decode(&review) == nil {
			review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: "label team is missing"}}
			_ = json.NewEncoder(w).Encode(review)
		}
	}))
	silent := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ended }))
	away := httptest.NewTLSServer(nil)
	away.Close()
	t.Cleanup(refusing.Close)
	t.Cleanup(silent.Close)
	t.Cleanup(func() { close(ended) })
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: refusing.Certificate().Raw})

	const unavailable = "(start the webhook's server, or delete its configuration)"
	for _, c := range []struct {
		name, policy    string
		server          *httptest.Server
		seconds         int // for which the API server waits
		state           bundle.State
		reason, message string
	}{
		{"one that refuses", "Fail", refusing, 30, bundle.Failed, kubernetes.AdmissionDenied, `"labels.example.com" denied the request: label team is missing (change the manifest, or the rule)`},
		{"one that does not answer", "Fail", silent, 1, bundle.Pending, kubernetes.WebhookUnavailable, unavailable},
		{"one that is not there", "Fail", away, 30, bundle.Pending, kubernetes.WebhookUnavailable, "connection refused " + unavailable},
		{"one that need not be there", "Ignore", away, 30, bundle.Compliant, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t)
			webhook := s.put(t, fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: $NS}
webhooks:
- name: labels.example.com
  clientConfig: {url: %q, caBundle: %s}
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE, UPDATE]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $NS}}
  failurePolicy: %s
  sideEffects: None
  timeoutSeconds: %d
  admissionReviewVersions: [v1]
`, c.server.URL, base64.StdEncoding.EncodeToString(authority), c.policy, c.seconds))
			if c.policy == "Fail" {
				s.refused(t, "")
			}
			res := s.apply(t, "shop", configMap("settings", "a", "1"), c.state, c.reason)
			require.Contains(t, res.Message, c.message)
			if c.state != bundle.Compliant {
				require.Contains(t, res.Message, `"labels.example.com"`)
				require.Empty(t, res.Changes)
			}
			require.NoError(t, s.Client.Delete(t.Context(), webhook))
			s.recovers(t, "shop", configMap("settings", "a", "1"))
		})
	}
}

func TestAPolicyThatRefuses(t *testing.T) {
	s := newSite(t)
	s.put(t, `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: $NS}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE, UPDATE]}]
  validations: [{expression: "false", message: this value is immutable here}]
`)
	binding := s.put(t, `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: $NS}
spec:
  policyName: $NS
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $NS}}}
`)
	s.refused(t, "")
	res := s.apply(t, "shop", configMap("settings", "a", "1"), bundle.Failed, kubernetes.AdmissionDenied)
	require.Contains(t, res.Message, `all.yaml: configmaps "settings" is forbidden: `)
	require.Contains(t, res.Message, "this value is immutable here (change the manifest, or the rule)")
	require.NoError(t, s.Client.Delete(t.Context(), binding))
	s.recovers(t, "shop", configMap("settings", "a", "1"))
}

func TestAQuotaThatIsUsedUp(t *testing.T) {
	s := newSite(t)
	s.apply(t, "west", configMap("west", "a", "1"), bundle.Compliant, "")
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "small"}}
	quota.Spec.Hard = corev1.ResourceList{"count/configmaps": resource.MustParse("1")}
	require.NoError(t, s.Create(t.Context(), quota))
	s.refused(t, "exceeded quota: small") // before its controller has counted, the API server refuses in other words
	res := s.apply(t, "shop", configMap("settings", "a", "1"), bundle.Failed, kubernetes.QuotaExceeded)
	require.Contains(t, res.Message, "exceeded quota: small, requested: count/configmaps=1")
	require.Contains(t, res.Message, "(raise the quota, or ask for less)")
	require.Equal(t, bundle.Compliant, s.r.Observe(t.Context(), s.assignment(t, "west", configMap("west", "a", "1"))).State)
	require.NoError(t, s.Client.Delete(t.Context(), quota))
	s.recovers(t, "shop", configMap("settings", "a", "1"))
}

// As with a metrics-server that is down: the content of a namespace cannot be listed completely.
func TestAnAPIOfAnotherServerThatIsDownKeepsNamespaces(t *testing.T) {
	s := newSite(t)
	own := "apiVersion: v1\nkind: Namespace\nmetadata: {name: $NS-own}\n"
	s.apply(t, "shop", own, bundle.Compliant, "")
	service := s.put(t, `apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.$NS.example.com}
spec:
  group: $NS.example.com
  version: v1
  groupPriorityMinimum: 10
  versionPriority: 10
  insecureSkipTLSVerify: true
  service: {name: nobody, namespace: $NS}
`)
	asked := discovery.NewDiscoveryClientForConfigOrDie(s.Config)
	require.Eventually(t, func() bool {
		_, err := asked.ServerPreferredNamespacedResources()
		return err != nil
	}, reconcilertest.Patience, 100*time.Millisecond)
	a := s.assignment(t, "shop", own)
	res := s.r.Remove(t.Context(), a)
	require.Equal(t, bundle.Pending, res.State, res.Message)
	require.Equal(t, kubernetes.APIServerError, res.Reason, res.Message)
	require.Contains(t, res.Message, s.Name+".example.com/v1")
	require.Contains(t, res.Message, "(repair the API server's extension, or delete its APIService)")
	require.Nil(t, s.read(t, "v1", "Namespace", "", s.Name+"-own").GetDeletionTimestamp())
	s.r = s.reconciler(t, s.Config) // one that has asked for nothing yet
	s.apply(t, "west", configMap("settings", "a", "1"), bundle.Compliant, "")
	require.NoError(t, s.Client.Delete(t.Context(), service))
	require.Eventually(t, func() bool { return s.r.Remove(t.Context(), a).State != bundle.Pending }, reconcilertest.Patience, 100*time.Millisecond)
	s.remove(t, "shop")
}

func TestTheAPIServerGoesAwayHalfWay(t *testing.T) {
	s := newSite(t)
	manifests := configMap("one", "a", "1") + configMap("two", "a", "1") + configMap("three", "a", "1")
	w := newWire(t, s.Config)
	const requests = 3*2 + 1 // get and dry run of each, the first apply

	config := w.config(s.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		left := requests
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if !asksForKinds(r) {
				left--
			}
			if left < 0 {
				w.cut()
			}
			return next.RoundTrip(r)
		})
	})
	s.r = s.reconciler(t, config)
	res := s.apply(t, "shop", manifests, bundle.Pending, kubernetes.APIServerUnreachable)
	require.Len(t, res.Changes, 1, "what was done is said")
	res = s.r.Observe(t.Context(), s.assignment(t, "shop", manifests))
	require.Equal(t, kubernetes.APIServerUnreachable, res.Reason)
	w.mend()
	s.r = s.reconciler(t, w.config(s.Config))
	require.Len(t, s.apply(t, "shop", manifests, bundle.Compliant, "").Changes, 2)
}

func TestASlowAPIServer(t *testing.T) {
	s := newSite(t)
	w := newWire(t, s.Config)
	w.delay(50 * time.Millisecond)
	s.r = s.reconciler(t, w.config(s.Config))
	s.apply(t, "shop", configMap("settings", "a", "1"), bundle.Compliant, "")

	w.delay(time.Hour)
	impatient := w.config(s.Config)
	impatient.Timeout = time.Second
	s.r = s.reconciler(t, impatient)
	s.apply(t, "shop", configMap("settings", "a", "2"), bundle.Pending, kubernetes.APIServerUnreachable)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	res := s.reconciler(t, w.config(s.Config)).Apply(ctx, s.assignment(t, "shop", configMap("settings", "a", "2")))
	require.Equal(t, bundle.Progressing, res.State)
	require.Equal(t, "Interrupted", res.Reason)

	w.mend()
	s.recovers(t, "shop", configMap("settings", "a", "2"))
}
