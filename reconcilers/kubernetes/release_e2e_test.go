//go:build e2e

package kubernetes_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
)

func TestWhatIsReleasedStaysAndCanBeTakenOver(t *testing.T) {
	s := newSite(t)
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "shared"}, Data: map[string]string{"theirs": "1"}}
	require.NoError(t, s.Create(t.Context(), theirs))
	manifests := "apiVersion: v1\nkind: Namespace\nmetadata: {name: $NS-own}\n" + configMap("settings", "level", "1") + configMap("shared", "ours", "2")
	s.apply(t, "shop", manifests, bundle.Compliant, "")
	t.Cleanup(func() { s.forget("v1", "Namespace", s.Name+"-own") })
	releaser, ok := s.r.(reconcilers.Releaser)
	require.True(t, ok)
	var shop reconcilers.Assignment
	shop.Name = "shop"

	res := releaser.Release(t.Context(), shop)

	require.Equal(t, bundle.Removed, res.State, "%s: %s", res.Reason, res.Message)
	require.Len(t, res.Changes, 3)
	require.Equal(t, map[string]string{"theirs": "1", "ours": "2"}, s.data(t, "shared"))
	for _, o := range []struct{ kind, namespace, name string }{{"Namespace", "", s.Name + "-own"}, {"ConfigMap", s.Name, "settings"}, {"ConfigMap", s.Name, "shared"}} {
		live := s.read(t, "v1", o.kind, o.namespace, o.name)
		require.NotContains(t, live.GetLabels(), kubernetes.OwnerLabel)
		for _, f := range live.GetManagedFields() {
			require.NotEqual(t, "wherry/shop", f.Manager)
		}
	}
	entry, err := s.ledger.Load("shop")
	require.NoError(t, err)
	require.Empty(t, entry)
	again := releaser.Release(t.Context(), shop)
	require.Equal(t, bundle.Removed, again.State)
	require.Empty(t, again.Changes)
	s.remove(t, "shop")
	require.Equal(t, map[string]string{"level": "1"}, s.data(t, "settings"), "nothing knows of it any more")

	s.apply(t, "other", configMap("settings", "level", "1"), bundle.Compliant, "")
	s.remove(t, "other")
	require.NotNil(t, s.read(t, "v1", "ConfigMap", s.Name, "settings"), "who takes it over did not make it")
}

func TestAssignmentsThatMakeTheSameNamespaceAtOnceShareIt(t *testing.T) {
	for range 5 {
		s := newSite(t)
		var all sync.WaitGroup
		results := make([]reconcilers.Result, 4)
		for i := range results {
			name := fmt.Sprintf("shop-%d", i)
			manifests := "apiVersion: v1\nkind: Namespace\nmetadata: {name: $NS-own}\n" +
				strings.ReplaceAll(configMap(name, "a", "1"), "{name: "+name+"}", "{name: "+name+", namespace: $NS-own}")
			a := s.assignment(t, name, manifests)
			all.Go(func() { results[i] = s.r.Apply(t.Context(), a) })
		}
		all.Wait()
		t.Cleanup(func() { s.forget("v1", "Namespace", s.Name+"-own") })
		for _, res := range results {
			require.Equal(t, bundle.Compliant, res.State, "%s: %s", res.Reason, res.Message)
		}
	}
}
