//go:build e2e

package argo_test

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

// An Application that this package syncs is written, driven and taken away with the rights of the
// workspace's ServiceAccount.
func TestArgoCDIsToldInTheNameOfAServiceAccount(t *testing.T) {
	s := newSite(t)
	const settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n"
	commit, err := git.Commit(t.Context(), s.Name, "dev", map[string]string{"settings.yaml": settings})
	require.NoError(t, err)
	account := types.NamespacedName{Namespace: s.Name, Name: "wherry-retail"}
	s.Account(t, account)
	a := s.assignment(t, `apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: $NAME-shop}
spec:
  project: default
  source: {repoURL: $GIT/$NAME, targetRevision: dev, path: .}
  destination: {server: https://kubernetes.default.svc, namespace: $NAME}
`)
	a.Workspace, a.ServiceAccount = "retail", account.String()
	res := s.R.Apply(t.Context(), a)
	require.Equal(t, kubernetes.Forbidden, res.Reason, res.Message)
	require.Contains(t, res.Message, `wherry-retail" cannot get resource "applications" in API group "argoproj.io" in the namespace "`+namespace+`"`)
	require.Nil(t, s.application(t, "shop"))

	binding := s.Allow(t, account, namespace, schema.GroupResource{Group: "argoproj.io", Resource: "applications"})
	t.Cleanup(func() {
		_ = s.Client.Delete(context.Background(), binding)
		_ = s.Client.Delete(context.Background(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: binding.Name}})
	})
	require.Contains(t, s.Settled(t, a, bundle.Compliant).Revision, commit)
	require.NotNil(t, s.ConfigMap(t, "settings"))

	var gone reconcilers.Assignment
	gone.Name = a.Name
	s.Removed(t, gone)
	require.Nil(t, s.application(t, "shop"))
	require.Nil(t, s.ConfigMap(t, "settings"))
}
