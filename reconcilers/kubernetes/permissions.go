package kubernetes

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

var (
	namespaceKind      = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
	serviceAccountKind = schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"}
	roleBindingKind    = schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}
)

// rbacCommand prints the permissions that a bundle needs; see docs/install.md.
const rbacCommand = "wherry install agent … --rbac bundle --print"

// denial matches an API server's message about a missing permission, with user, verb, resource and namespace. It quotes
// no object.
var denial = lazyregexp.New(`User "[^"]*" cannot \S+ (?:resource|path) "[^"]*"(?: in API group "[^"]*")?(?: in the namespace "[^"]*"| at the cluster scope)?`)

// denied returns that part of an API server's refusal; empty if the refusal has another reason, such as an admission
// rule.
func denied(err error) string {
	var answer apierrors.APIStatus
	if !apierrors.IsForbidden(err) || !errors.As(err, &answer) {
		return ""
	}
	return denial.FindString(answer.Status().Message)
}

// permit returns a hint about a missing permission; it is empty if err has another cause.
func permit(err error) string {
	if denied(err) == "" {
		return ""
	}
	return fmt.Sprintf("if that is to be allowed, bind a Role to this user; %q prints what a bundle needs", rbacCommand)
}
