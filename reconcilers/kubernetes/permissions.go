package kubernetes

import (
	"errors"
	"fmt"
	"regexp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	namespaceKind      = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
	serviceAccountKind = schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"}
)

// rbacCommand prints the permissions that a bundle needs; see docs/install.md.
const rbacCommand = "wherry install agent … --rbac bundle --print"

// denial is what API servers say where a permission is missing: who may not do what, and where. It quotes
// no object.
var denial = regexp.MustCompile(`User "([^"]*)" cannot \S+ (?:resource|path) "[^"]*"(?: in API group "[^"]*")?(?: in the namespace "[^"]*"| at the cluster scope)?`)

// denied returns that part of an API server's no, and whose permission it is about; empty where the no
// has another reason, such as an admission rule.
func denied(err error) (words, user string) {
	var answer apierrors.APIStatus
	if !apierrors.IsForbidden(err) || !errors.As(err, &answer) {
		return "", ""
	}
	m := denial.FindStringSubmatch(answer.Status().Message)
	if m == nil {
		return "", ""
	}
	return m[0], m[1]
}

// permit is what a person can do about a permission that is missing; empty where err does not say whose.
func permit(err error) string {
	_, user := denied(err)
	if user == "" {
		return ""
	}
	return fmt.Sprintf("if %s is to be allowed that, bind a Role to it: %q prints those that a bundle needs", user, rbacCommand)
}
