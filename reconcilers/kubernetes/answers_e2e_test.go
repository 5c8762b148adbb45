//go:build e2e

package kubernetes_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
)

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
		name, assignment, manifests, reason, message, todo string
	}{
		{"a kind that is not served", "shop", "apiVersion: example.com/v1\nkind: Pump\nmetadata: {name: a}\n", kubernetes.KindNotServed, "Pump/a: ", " (install what defines the kind, or write a version that is served)"},
		{"a version that is not served", "shop", "apiVersion: apps/v1beta1\nkind: Deployment\nmetadata: {name: a}\n", kubernetes.KindNotServed, "apps/v1beta1", " (install what defines the kind, or write a version that is served)"},
		{"a namespace that does not exist", "shop", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: nowhere}\n", kubernetes.NamespaceNotFound, `namespaces "nowhere" not found`, " (have a manifest of the assignment create the namespace)"},
		{"a field that the schema lacks", "shop", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {prots: [{port: 80}]}\n", kubernetes.InvalidManifest, "Service", ""},
		{"a value that is out of range", "shop", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 80000}]}\n", kubernetes.InvalidManifest, "Service", ""},
		{"a field that cannot change", "running", fmt.Sprintf(deployment, "other"), kubernetes.Immutable, "spec.selector", " (delete the object, and it is made anew, or give the new one another name)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			good := configMap("good", "a", "1")
			res := s.apply(t, c.assignment, c.manifests+good, bundle.Failed, c.reason)
			require.Contains(t, res.Message, "all.yaml, document 1: ", "the message names the file")
			require.Contains(t, res.Message, c.message)
			require.True(t, strings.HasSuffix(res.Message, c.todo), res.Message)
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
	require.Contains(t, res.Message, " (if that is to be allowed, bind a Role to this user; ")
	config = rest.AnonymousClientConfig(s.Config)
	config.BearerToken = "wrong"
	s.r = s.reconciler(t, config)
	res = s.apply(t, "shop", configMap("settings", "a", "1"), bundle.Pending, kubernetes.Unauthorized)
	require.Contains(t, res.Message, " (renew the agent's credentials)")
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
		if apierrors.IsConflict(err) { // with the controller, which looks again after each write
			return
		}
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { // until the controller has not come between
		report(appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{
			{Type: "Progressing", Status: "False", Reason: "ProgressDeadlineExceeded", Message: "no node"},
		}})
		res = s.r.Observe(t.Context(), a)
		return res.State == bundle.Failed && res.Reason == kubernetes.Unhealthy
	}, reconcilertest.Patience, 50*time.Millisecond)
	require.Eventually(t, func() bool {
		report(appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1, Conditions: []appsv1.DeploymentCondition{
			{Type: "Progressing", Status: "True", Reason: "NewReplicaSetAvailable"}, {Type: "Available", Status: "True"},
		}})
		return s.r.Observe(t.Context(), a).State == bundle.Compliant
	}, reconcilertest.Patience, 50*time.Millisecond)
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
	res := s.apply(t, "shop", configMap("settings", "a", "1"), bundle.Pending, kubernetes.NamespaceTerminating)
	require.Contains(t, res.Message, " (the namespace's status says what holds it)")
	// The namespace's controller may be about to delete it.
	require.NoError(t, s.Patch(t.Context(), held, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
}
