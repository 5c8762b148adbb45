package kubernetestest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
)

// Account makes a ServiceAccount that may do nothing.
func (c *Cluster) Account(t *testing.T, account types.NamespacedName) {
	t.Helper()
	require.NoError(t, c.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: account.Name}}))
}

// Allow lets a ServiceAccount do with resources in a namespace what an assignment asks for, and returns when
// the API server knows it. The Role and its binding have the name of the account's namespace and its own.
func (c *Cluster) Allow(t *testing.T, account types.NamespacedName, namespace string, resources ...schema.GroupResource) *rbacv1.RoleBinding {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: account.Namespace + ":" + account.Name}
	role := &rbacv1.Role{ObjectMeta: meta}
	for _, r := range resources {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: []string{"get", "create", "patch", "delete"}})
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: account.Namespace, Name: account.Name}},
	}
	require.NoError(t, c.Create(t.Context(), role))
	require.NoError(t, c.Create(t.Context(), binding))
	for _, r := range resources {
		c.AwaitRight(t, account, namespace, r, true)
	}
	return binding
}

// AwaitRight waits until the API server knows that an account may, or may not any more, patch a resource in a
// namespace.
func (c *Cluster) AwaitRight(t *testing.T, account types.NamespacedName, namespace string, r schema.GroupResource, want bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + account.Namespace + ":" + account.Name,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "patch", Group: r.Group, Resource: r.Resource},
		}}
		return c.Create(t.Context(), review) == nil && review.Status.Allowed == want
	}, reconcilertest.Patience, 20*time.Millisecond)
}
