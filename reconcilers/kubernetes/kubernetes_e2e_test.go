//go:build e2e

package kubernetes_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes/kubernetestest"
	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
)

// site is a namespace, a reconciler, and somebody else's view of the cluster.
type site struct {
	*kubernetestest.Cluster
	ledger *reconcilertest.Ledger
	r      reconcilers.Reconciler
}

func newSite(t *testing.T) *site {
	s := &site{Cluster: kubernetestest.Connect(t, cluster.Config), ledger: &reconcilertest.Ledger{}}
	s.r = s.reconciler(t, s.Config)
	return s
}

func (s *site) reconciler(t *testing.T, config *rest.Config) reconcilers.Reconciler {
	r, err := kubernetes.New(config, s.ledger, kubernetes.Options{})
	require.NoError(t, err)
	return r
}

// assignment holds one file with the manifests, in which $NS stands for the site's namespace.
func (s *site) assignment(t *testing.T, name, manifests string) reconcilers.Assignment {
	t.Helper()
	a := reconcilers.Assignment{Dir: t.TempDir()}
	data := []byte(strings.ReplaceAll(manifests, "$NS", s.Name))
	a.Name, a.Namespace = name, s.Name
	a.Content = bundle.ContentDigest([]bundle.File{{Path: "all.yaml", Data: data}})
	require.NoError(t, os.WriteFile(filepath.Join(a.Dir, "all.yaml"), data, 0o600))
	return a
}

// apply applies the manifests and requires the outcome.
func (s *site) apply(t *testing.T, name, manifests string, state bundle.State, reason string) reconcilers.Result {
	t.Helper()
	res := s.r.Apply(t.Context(), s.assignment(t, name, manifests))
	require.Equal(t, state, res.State, "%s: %s", res.Reason, res.Message)
	require.Equal(t, reason, res.Reason, res.Message)
	return res
}

// remove removes until the assignment is gone.
func (s *site) remove(t *testing.T, name string) (reconcilers.Result, []reconcilers.Change) {
	t.Helper()
	var a reconcilers.Assignment
	a.Name = name
	var changes []reconcilers.Change
	for end := time.Now().Add(reconcilertest.Patience); ; time.Sleep(100 * time.Millisecond) {
		res := s.r.Remove(t.Context(), a)
		changes = append(changes, res.Changes...)
		if res.State != bundle.Progressing || time.Now().After(end) {
			require.Equal(t, bundle.Removed, res.State, "%s: %s", res.Reason, res.Message)
			return res, changes
		}
	}
}

// read returns an object, or nil.
func (s *site) read(t *testing.T, apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	err := s.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, u)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return u
}

// forget deletes what a test leaves on the cluster.
func (s *site) forget(apiVersion, kind, name string) {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetName(name)
	_ = s.Client.Delete(context.Background(), u)
}

func (s *site) data(t *testing.T, name string) map[string]string {
	t.Helper()
	u := s.read(t, "v1", "ConfigMap", s.Name, name)
	require.NotNil(t, u)
	data, _, err := unstructured.NestedStringMap(u.Object, "data")
	require.NoError(t, err)
	return data
}

func configMap(name, key, value string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {%s: %q}\n", name, key, value)
}

func TestANamespaceOfTheAssignmentGoesLast(t *testing.T) {
	s := newSite(t)
	manifests := "apiVersion: v1\nkind: Namespace\nmetadata: {name: $NS-own}\n" +
		strings.ReplaceAll(configMap("settings", "a", "1"), "{name: settings}", "{name: settings, namespace: $NS-own}")
	res := s.apply(t, "shop", manifests, bundle.Compliant, "")
	require.Equal(t, []reconcilers.Change{
		{Object: "Namespace/" + s.Name + "-own", Action: reconcilers.Created},
		{Object: "ConfigMap/" + s.Name + "-own/settings", Action: reconcilers.Created},
	}, res.Changes)

	res, changes := s.remove(t, "shop")
	require.Empty(t, res.Reason)
	require.Equal(t, []reconcilers.Change{
		{Object: "ConfigMap/" + s.Name + "-own/settings", Action: reconcilers.Deleted},
		{Object: "Namespace/" + s.Name + "-own", Action: reconcilers.Deleted},
	}, changes)
	require.Nil(t, s.read(t, "v1", "Namespace", "", s.Name+"-own"))
}

func TestANamespaceThatSomebodyElseUsesIsKept(t *testing.T) {
	for _, c := range []struct {
		name    string
		foreign func(namespace string) client.Object
		subject string
	}{
		{"by an object of another owner", func(ns string) client.Object {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "theirs"}}
		}, "ConfigMap/%s/theirs"},
		{"by data on a volume", func(ns string) client.Object {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "data-0"}}
			claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
			claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
			return claim
		}, "PersistentVolumeClaim/%s/data-0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t)
			own := s.Name + "-own"
			s.apply(t, "shop", "apiVersion: v1\nkind: Namespace\nmetadata: {name: $NS-own, labels: {tier: edge}}\n"+
				strings.ReplaceAll(configMap("settings", "a", "1"), "{name: settings}", "{name: settings, namespace: $NS-own}"), bundle.Compliant, "")
			require.NoError(t, s.Create(t.Context(), c.foreign(own)))
			t.Cleanup(func() { s.forget("v1", "Namespace", own) })

			res, changes := s.remove(t, "shop")
			require.Equal(t, kubernetes.NamespaceKept, res.Reason)
			require.Equal(t, "Namespace/"+own+" is kept, as "+fmt.Sprintf(c.subject, own)+" is in it", res.Message)
			require.Contains(t, changes, reconcilers.Change{Object: "Namespace/" + own, Action: reconcilers.Kept})
			require.Nil(t, s.read(t, "v1", "ConfigMap", own, "settings"))
			ns := s.read(t, "v1", "Namespace", "", own)
			require.Nil(t, ns.GetDeletionTimestamp())
			require.NotContains(t, ns.GetLabels(), kubernetes.OwnerLabel)
			require.Equal(t, "edge", ns.GetLabels()["tier"])
		})
	}
}

func TestANamespaceStaysWhileTheAssignmentHasObjectsInIt(t *testing.T) {
	s := newSite(t)
	inOwn := strings.ReplaceAll(configMap("settings", "a", "1"), "{name: settings}", "{name: settings, namespace: $NS-own}")
	s.apply(t, "shop", "apiVersion: v1\nkind: Namespace\nmetadata: {name: $NS-own}\n"+inOwn, bundle.Compliant, "")
	require.Empty(t, s.apply(t, "shop", inOwn, bundle.Compliant, "").Changes, "only the Namespace's own manifest went")
	require.NotNil(t, s.read(t, "v1", "ConfigMap", s.Name+"-own", "settings"))
	s.remove(t, "shop")
	require.Nil(t, s.read(t, "v1", "Namespace", "", s.Name+"-own"))
}

func TestAnObjectThatWasThereBeforeIsGivenBack(t *testing.T) {
	s := newSite(t)
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "shared"}, Data: map[string]string{"theirs": "1"}}
	require.NoError(t, s.Create(t.Context(), theirs))
	s.apply(t, "shop", configMap("shared", "ours", "2"), bundle.Compliant, "")
	require.Equal(t, map[string]string{"theirs": "1", "ours": "2"}, s.data(t, "shared"))
	require.NotContains(t, s.read(t, "v1", "ConfigMap", s.Name, "shared").GetLabels(), kubernetes.OwnerLabel)

	_, changes := s.remove(t, "shop")
	require.Equal(t, []reconcilers.Change{{Object: "ConfigMap/" + s.Name + "/shared", Action: reconcilers.Kept}}, changes)
	require.Equal(t, map[string]string{"theirs": "1"}, s.data(t, "shared"))
}

func TestAFieldOfAnotherManagerIsNotTaken(t *testing.T) {
	t.Run("in an object that was there before", func(t *testing.T) {
		s := newSite(t)
		theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "shared"}, Data: map[string]string{"level": "1"}}
		require.NoError(t, s.Create(t.Context(), theirs))
		res := s.apply(t, "shop", configMap("shared", "level", "2"), bundle.Failed, kubernetes.Conflict)
		require.Equal(t, "ConfigMap/"+s.Name+`/shared: .data.level is managed by "somebody"`, res.Message)
		require.Empty(t, res.Changes)
		require.Equal(t, map[string]string{"level": "1"}, s.data(t, "shared"))
		s.remove(t, "shop")
		require.Equal(t, map[string]string{"level": "1"}, s.data(t, "shared"))
	})
	t.Run("when another tool has applied it to an object of ours", func(t *testing.T) {
		s := newSite(t)
		manifests := configMap("settings", "level", "1")
		s.apply(t, "shop", manifests, bundle.Compliant, "")
		theirs := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"level": "9"}}}
		theirs.SetAPIVersion("v1")
		theirs.SetKind("ConfigMap")
		theirs.SetNamespace(s.Name)
		theirs.SetName("settings")
		require.NoError(t, s.Patch(t.Context(), theirs, client.Apply, client.FieldOwner("helm"), client.ForceOwnership))
		res := s.apply(t, "shop", manifests, bundle.Failed, kubernetes.Conflict)
		require.Contains(t, res.Message, `.data.level is managed by "helm"`)
		require.Equal(t, "9", s.data(t, "settings")["level"])
	})
}

func TestAnObjectOfAnotherAssignmentIsNotTaken(t *testing.T) {
	s := newSite(t)
	s.apply(t, "east", configMap("settings", "a", "1"), bundle.Compliant, "")
	res := s.apply(t, "west", configMap("settings", "a", "1"), bundle.Failed, kubernetes.Conflict)
	require.Contains(t, res.Message, "belongs to assignment east")
	s.remove(t, "west")
	require.Equal(t, map[string]string{"a": "1"}, s.data(t, "settings"))
}

func TestASharedNamespaceGoesWithNeitherOfItsAssignments(t *testing.T) {
	s := newSite(t)
	ns := "apiVersion: v1\nkind: Namespace\nmetadata: {name: $NS-own, labels: {tier: edge}}\n"
	in := func(name string) string {
		return strings.ReplaceAll(configMap(name, "a", "1"), "{name: "+name+"}", "{name: "+name+", namespace: $NS-own}")
	}
	s.apply(t, "east", ns+in("east"), bundle.Compliant, "")
	s.apply(t, "west", ns+in("west"), bundle.Compliant, "")
	res, _ := s.remove(t, "east")
	require.Equal(t, kubernetes.NamespaceKept, res.Reason)
	require.Equal(t, bundle.Compliant, s.r.Observe(t.Context(), s.assignment(t, "west", ns+in("west"))).State)
	s.remove(t, "west")
	require.Nil(t, s.read(t, "v1", "Namespace", "", s.Name+"-own").GetDeletionTimestamp(), "kept once, kept for good")
	s.forget("v1", "Namespace", s.Name+"-own")
}

func TestAnObjectThatWasDetachedStaysAsItIs(t *testing.T) {
	s := newSite(t)
	s.apply(t, "shop", configMap("settings", "a", "1"), bundle.Compliant, "")
	u := s.read(t, "v1", "ConfigMap", s.Name, "settings")
	u.SetLabels(nil)
	require.NoError(t, s.Update(t.Context(), u))
	_, changes := s.remove(t, "shop")
	require.Equal(t, []reconcilers.Change{{Object: "ConfigMap/" + s.Name + "/settings", Action: reconcilers.Kept}}, changes)
	require.Equal(t, map[string]string{"a": "1"}, s.data(t, "settings"))
}

func TestTheLabelComesBackWithDriftCorrection(t *testing.T) {
	s := newSite(t)
	manifests := configMap("settings", "a", "1")
	s.apply(t, "shop", manifests, bundle.Compliant, "")
	u := s.read(t, "v1", "ConfigMap", s.Name, "settings")
	u.SetLabels(nil)
	require.NoError(t, s.Update(t.Context(), u))
	res := s.r.Observe(t.Context(), s.assignment(t, "shop", manifests))
	require.Equal(t, "ConfigMap/"+s.Name+"/settings differs in .metadata.labels", res.Message)
	s.apply(t, "shop", manifests, bundle.Compliant, "")
	require.Equal(t, "shop", s.read(t, "v1", "ConfigMap", s.Name, "settings").GetLabels()[kubernetes.OwnerLabel])
}

func TestALostLedgerIsRebuilt(t *testing.T) {
	s := newSite(t)
	manifests := configMap("settings", "a", "1")
	s.apply(t, "shop", manifests, bundle.Compliant, "")
	*s.ledger = reconcilertest.Ledger{}
	require.Equal(t, bundle.Compliant, s.r.Observe(t.Context(), s.assignment(t, "shop", manifests)).State)
	require.Empty(t, s.apply(t, "shop", manifests, bundle.Compliant, "").Changes)
	s.remove(t, "shop")
	require.Nil(t, s.read(t, "v1", "ConfigMap", s.Name, "settings"))
}

func TestAKindAndAnObjectOfItComeTogetherAndTheKindStays(t *testing.T) {
	s := newSite(t)
	group := s.Name + ".example.com"
	crd := fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pumps.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {kind: Pump, plural: pumps, singular: pump, listKind: PumpList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, group)
	pump := "---\napiVersion: " + group + "/v1\nkind: Pump\nmetadata: {name: main}\nspec: {rate: 3}\n"
	s.apply(t, "east", crd+pump, bundle.Compliant, "")
	require.NotNil(t, s.read(t, group+"/v1", "Pump", s.Name, "main"), "in the assignment's namespace")

	_, changes := s.remove(t, "east")
	require.Equal(t, []reconcilers.Change{
		{Object: "Pump/" + s.Name + "/main", Action: reconcilers.Deleted},
		{Object: "CustomResourceDefinition/pumps." + group, Action: reconcilers.Kept},
	}, changes)
	kept := s.read(t, "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "pumps."+group)
	require.NotContains(t, kept.GetLabels(), kubernetes.OwnerLabel)
	t.Cleanup(func() { s.forget("apiextensions.k8s.io/v1", "CustomResourceDefinition", kept.GetName()) })

	changed := strings.Replace(crd, "singular: pump,", "singular: pump, shortNames: [pu],", 1)
	s.apply(t, "west", changed+pump, bundle.Compliant, "")
}

func TestWhatTheAPIServerRefusesHasAReason(t *testing.T) {
	const deployment = `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: %s}}
  template: {metadata: {labels: {app: %[1]s}}, spec: {containers: [{name: web, image: nginx}]}}
`
	s := newSite(t)
	s.apply(t, "running", fmt.Sprintf(deployment, "web"), bundle.Progressing, kubernetes.NotReady)
	for _, c := range []struct {
		name, assignment, manifests, reason, message string
	}{
		{"a kind that is not served", "shop", "apiVersion: example.com/v1\nkind: Pump\nmetadata: {name: a}\n", kubernetes.KindNotServed, "Pump/a: "},
		{"a version that is not served", "shop", "apiVersion: apps/v1beta1\nkind: Deployment\nmetadata: {name: a}\n", kubernetes.KindNotServed, "apps/v1beta1"},
		{"a namespace that does not exist", "shop", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: nowhere}\n", kubernetes.NamespaceNotFound, `namespaces "nowhere" not found`},
		{"a field that the schema lacks", "shop", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {prots: [{port: 80}]}\n", kubernetes.InvalidManifest, "Service"},
		{"a value that is out of range", "shop", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 80000}]}\n", kubernetes.InvalidManifest, "Service"},
		{"a field that cannot change", "running", fmt.Sprintf(deployment, "other"), kubernetes.Immutable, "spec.selector"},
	} {
		t.Run(c.name, func(t *testing.T) {
			good := configMap("good", "a", "1")
			res := s.apply(t, c.assignment, c.manifests+good, bundle.Failed, c.reason)
			require.Contains(t, res.Message, "all.yaml, document 1: ", "the message names the file")
			require.Contains(t, res.Message, c.message)
			require.Nil(t, s.read(t, "v1", "ConfigMap", s.Name, "good"), "nothing is applied unless all of it can be")
		})
	}
}

func TestWithoutPermissionNothingIsApplied(t *testing.T) {
	s := newSite(t)
	config := rest.CopyConfig(s.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "nobody"}
	s.r = s.reconciler(t, config)
	res := s.apply(t, "shop", configMap("settings", "a", "1"), bundle.Failed, kubernetes.Forbidden)
	require.Contains(t, res.Message, `User "nobody" cannot get resource "configmaps"`)
	config = rest.AnonymousClientConfig(s.Config)
	config.BearerToken = "wrong"
	s.r = s.reconciler(t, config)
	s.apply(t, "shop", configMap("settings", "a", "1"), bundle.Pending, kubernetes.Unauthorized)
}

func TestSecretsDoNotReachMessages(t *testing.T) {
	s := newSite(t)
	const secret = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"
	for name, content := range map[string]string{
		"a number":           "stringData: {pin: 4711815}\n",
		"no base64":          "data: {pin: \"4711815!\"}\n",
		"an impossible type": "type: kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: \"4711815\"}\n",
		"a bad field":        "immutable: \"4711815\"\n",
	} {
		t.Run(name, func(t *testing.T) {
			res := s.apply(t, "shop", secret+content, bundle.Failed, kubernetes.InvalidManifest)
			require.NotContains(t, res.Message, "4711815")
			require.Contains(t, res.Message, "Secret/"+s.Name+"/s")
		})
	}
	manifests := secret + "stringData: {pin: \"4711815\"}\n"
	s.apply(t, "shop", manifests, bundle.Compliant, "")
	u := s.read(t, "v1", "Secret", s.Name, "s")
	require.NoError(t, unstructured.SetNestedField(u.Object, "NDcxMTgxNg==", "data", "pin"))
	require.NoError(t, s.Update(t.Context(), u))
	res := s.r.Observe(t.Context(), s.assignment(t, "shop", manifests))
	require.Equal(t, bundle.Drifted, res.State)
	require.Equal(t, "Secret/"+s.Name+"/s differs in .data.pin", res.Message)
}

func TestStatusDecides(t *testing.T) {
	s := newSite(t)
	const manifests = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: nginx}]}}
`
	a := s.assignment(t, "shop", manifests)
	res := s.r.Apply(t.Context(), a)
	require.Equal(t, bundle.Progressing, res.State)
	require.Contains(t, res.Message, "Deployment/"+s.Name+"/web")
	require.Equal(t, a.Content.String(), res.Revision)

	d := &appsv1.Deployment{}
	report := func(status appsv1.DeploymentStatus) {
		require.NoError(t, s.Get(t.Context(), types.NamespacedName{Namespace: s.Name, Name: "web"}, d))
		status.ObservedGeneration, d.Status = d.Generation, status
		err := s.Status().Update(t.Context(), d)
		if apierrors.IsConflict(err) {
			require.NoError(t, s.Get(t.Context(), types.NamespacedName{Namespace: s.Name, Name: "web"}, d))
			d.Status = status
			err = s.Status().Update(t.Context(), d)
		}
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { // once no controller writes the status any more
		report(appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{
			{Type: "Progressing", Status: "False", Reason: "ProgressDeadlineExceeded", Message: "no node"},
		}})
		res = s.r.Observe(t.Context(), a)
		return res.State == bundle.Failed && res.Reason == kubernetes.Unhealthy
	}, 20*time.Second, 50*time.Millisecond)
	require.Eventually(t, func() bool {
		report(appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1, Conditions: []appsv1.DeploymentCondition{
			{Type: "Progressing", Status: "True", Reason: "NewReplicaSetAvailable"}, {Type: "Available", Status: "True"},
		}})
		return s.r.Observe(t.Context(), a).State == bundle.Compliant
	}, 20*time.Second, 50*time.Millisecond)
}

func TestAFinalizerKeepsRemoveFromClaimingSuccess(t *testing.T) {
	s := newSite(t)
	s.apply(t, "shop", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, finalizers: [example.com/wait]}\n", bundle.Compliant, "")
	var a reconcilers.Assignment
	a.Name = "shop"
	for range 2 {
		res := s.r.Remove(t.Context(), a)
		require.Equal(t, bundle.Progressing, res.State)
		require.Equal(t, kubernetes.Terminating, res.Reason)
		require.Equal(t, "ConfigMap/"+s.Name+"/settings", res.Message)
	}
	u := s.read(t, "v1", "ConfigMap", s.Name, "settings")
	u.SetFinalizers(nil)
	require.NoError(t, s.Update(t.Context(), u))
	s.remove(t, "shop")
}

func TestANamespaceOnItsWayOutIsWaitedFor(t *testing.T) {
	s := newSite(t)
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "held", Finalizers: []string{"example.com/wait"}}}
	require.NoError(t, s.Create(t.Context(), held))
	require.NoError(t, s.Client.Delete(t.Context(), s.read(t, "v1", "Namespace", "", s.Name)))
	s.apply(t, "shop", configMap("settings", "a", "1"), bundle.Pending, kubernetes.NamespaceTerminating)
	held = &corev1.ConfigMap{}
	require.NoError(t, s.Get(t.Context(), types.NamespacedName{Namespace: s.Name, Name: "held"}, held))
	held.Finalizers = nil
	require.NoError(t, s.Update(t.Context(), held))
}

func TestRequestsAreFew(t *testing.T) {
	s := newSite(t)
	var requests atomic.Int64
	config := rest.CopyConfig(s.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			requests.Add(1)
			return next.RoundTrip(r)
		})
	})
	count := func(call func()) int { requests.Store(0); call(); return int(requests.Load()) }
	content := func(v string) string {
		return configMap("one", "a", "1") + configMap("two", "a", v) + configMap("three", "a", "1")
	}
	require.Zero(t, count(func() { s.r = s.reconciler(t, config) }), "a constructor asks nobody")
	apply := func(v string) func() {
		return func() { s.apply(t, "shop", content(v), bundle.Compliant, "") }
	}
	require.Equal(t, 2+3*3, count(apply("1")), "discovery, and for each object: get, dry run, apply")
	require.Equal(t, 3*2, count(apply("1")), "unchanged: get, dry run")
	require.Equal(t, 3*2+1, count(apply("2")), "one changed")
	observe := func() {
		require.Equal(t, bundle.Compliant, s.r.Observe(t.Context(), s.assignment(t, "shop", content("2"))).State)
	}
	require.Equal(t, 3, count(observe), "known to agree: get")
	s.r = s.reconciler(t, config)
	require.Equal(t, 2+3*2, count(observe), "after a restart: discovery, get, dry run")
	require.Equal(t, 3, count(observe))
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
