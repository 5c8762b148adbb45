//go:build e2e

package flux_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
)

// What a workspace tells Flux, and what Flux has brought for it, is written and read with the rights of its
// ServiceAccount.
func TestFluxIsToldInTheNameOfAServiceAccount(t *testing.T) {
	s := newSite(t)
	revision := push(t, s, "dev/settings.yaml", settings)
	account := types.NamespacedName{Namespace: s.Name, Name: "wherry-retail"}
	a := s.Assignment(t, objects)
	a.Workspace, a.ServiceAccount = "retail", account.String()
	forbidden := func(words string) {
		t.Helper()
		res := s.R.Apply(t.Context(), a)
		s.Observed(t, a, res, func(res reconcilers.Result) bool {
			return res.State == bundle.Failed && res.Reason == kubernetes.Forbidden
		})
		require.Contains(t, s.R.Observe(t.Context(), a).Message, words)
	}
	forbidden("ServiceAccount wherry-retail of namespace " + s.Name + ", which does not exist")
	s.Account(t, account)
	forbidden(`User "system:serviceaccount:` + s.Name + `:wherry-retail" cannot get resource "gitrepositories" in API group "source.toolkit.fluxcd.io" in the namespace "` + namespace + `"`)
	require.Nil(t, s.object(t, "Kustomization", "shop"))

	binding := s.Allow(
		t, account, namespace,
		schema.GroupResource{Group: "source.toolkit.fluxcd.io", Resource: "gitrepositories"}, schema.GroupResource{Group: "kustomize.toolkit.fluxcd.io", Resource: "kustomizations"},
	)
	t.Cleanup(func() {
		_ = s.Client.Delete(context.Background(), binding)
		_ = s.Client.Delete(context.Background(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: binding.Name}})
	})
	forbidden(`cannot get resource "configmaps" in API group "" in the namespace "` + s.Name + `"`) // which Flux has brought
	s.Allow(t, account, s.Name, schema.GroupResource{Resource: "configmaps"})
	require.Equal(t, revision, s.Settled(t, a, bundle.Compliant).Revision)

	var gone reconcilers.Assignment
	gone.Name = a.Name
	s.Observed(t, a, s.R.Remove(t.Context(), gone), func(reconcilers.Result) bool {
		return s.R.Remove(t.Context(), gone).State == bundle.Removed
	})
	require.Nil(t, s.object(t, "GitRepository", "shop"))
	require.Nil(t, s.ConfigMap(t, "settings"))
}
