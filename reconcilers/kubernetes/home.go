package kubernetes

import (
	"context"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
)

// WorkspaceRole is the ClusterRole to which the agent binds the ServiceAccount of a workspace that an assignment brings
// along. The site defines it, and so decides what workspaces may do in their namespaces.
const WorkspaceRole = "wherry-workspace"

// home returns the objects that have to be there before the assignment's ServiceAccount can act, in their order: its own
// Namespace and, in it, that ServiceAccount and the RoleBinding of its name to WorkspaceRole. The agent makes them itself, so
// they may hold nothing else that gives rights: templates may have printed a team's text into them.
func (p *pass) home(namespace string) []manifest {
	var home []manifest
	for _, is := range []func(manifest) bool{
		func(m manifest) bool { return entryOf(m, false).isNamespace() && m.GetName() == namespace },
		func(m manifest) bool { return m.GetNamespace() == namespace && isAccount(m.Unstructured, p.who) },
		func(m manifest) bool { return m.GetNamespace() == namespace && isBinding(m.Unstructured, p.who) },
	} {
		if i := slices.IndexFunc(p.plan.objects, is); i >= 0 {
			home = append(home, p.plan.objects[i])
		}
	}
	return home
}

// isAccount reports whether u is the ServiceAccount, and says nothing about it but labels and tokens.
func isAccount(u *unstructured.Unstructured, who account) bool {
	namespace, name := who.split()
	if u.GroupVersionKind() != serviceAccountKind || u.GetNamespace() != namespace || u.GetName() != name {
		return false
	}
	return only(u.Object, "apiVersion", "kind", "metadata", "automountServiceAccountToken") && plainMetadata(u)
}

// isBinding reports whether u binds the ServiceAccount, and nobody else, to WorkspaceRole.
func isBinding(u *unstructured.Unstructured, who account) bool {
	namespace, name := who.split()
	if u.GroupVersionKind() != rbacv1.SchemeGroupVersion.WithKind("RoleBinding") || u.GetNamespace() != namespace || u.GetName() != name {
		return false
	}
	var b rbacv1.RoleBinding
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, &b, true)
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: WorkspaceRole}
	subject := rbacv1.Subject{Kind: "ServiceAccount", Namespace: namespace, Name: name}
	return err == nil && plainMetadata(u) && b.RoleRef == role && slices.Equal(b.Subjects, []rbacv1.Subject{subject})
}

func plainMetadata(u *unstructured.Unstructured) bool {
	metadata, _, _ := unstructured.NestedMap(u.Object, "metadata")
	return only(metadata, "name", "namespace", "labels")
}

// only reports whether m has no other keys.
func only(m map[string]any, keys ...string) bool {
	for key := range m {
		if !slices.Contains(keys, key) {
			return false
		}
	}
	return true
}

// Bounds of the wait for the API server to learn of a new RoleBinding. After it the refused requests name the missing permission.
const (
	boundWithin = 5 * time.Second
	boundEvery  = 50 * time.Millisecond
)

// awaitBinding waits until the ServiceAccount has rights in its namespace beyond those that every user has.
func (p *pass) awaitBinding(ctx context.Context, namespace string) error {
	err := wait.PollUntilContextTimeout(ctx, boundEvery, boundWithin, true, func(ctx context.Context) (bool, error) {
		asked := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
		if err := p.session.Client.Create(ctx, asked); err != nil {
			return true, nil // nobody is obliged to answer that
		}
		return slices.ContainsFunc(asked.Status.ResourceRules, func(r authorizationv1.ResourceRule) bool {
			return !slices.Contains(r.APIGroups, authorizationv1.GroupName) && !slices.Contains(r.APIGroups, "authentication.k8s.io")
		}), nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return nil
	}
	return err
}
