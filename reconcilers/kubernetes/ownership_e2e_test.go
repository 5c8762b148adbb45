//go:build e2e

package kubernetes_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
)

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
		require.Equal(t, "ConfigMap/"+s.Name+`/shared: .data.level is managed by "somebody" (leave it out of the manifest, or have that manager give it up)`, res.Message)
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
		applied := client.ApplyConfigurationFromUnstructured(theirs)
		require.NoError(t, s.Apply(t.Context(), applied, client.FieldOwner("helm"), client.ForceOwnership))
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
