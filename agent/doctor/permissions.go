package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diagnosis"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
)

func checkPermissions(ctx context.Context, e *examination) diagnosis.Finding {
	if e.served == nil || e.content == nil {
		return diagnosis.Skipf("%s", e.whyNot())
	}
	config := rest.CopyConfig(e.Kubernetes)
	config.QPS, config.Timeout = -1, checkTime
	c, err := client.New(config, client.Options{})
	if err != nil {
		return diagnosis.Failf("mend the kubeconfig", "%v", err)
	}
	missing, err := e.missingPermissions(ctx, &reviewer{c: c})
	switch {
	case err != nil:
		return diagnosis.Failf("let the agent's user create selfsubjectaccessreviews, as the ClusterRole system:basic-user does", "%v", err)
	case len(missing) > 0:
		return diagnosis.Failf(`bind a ClusterRole with them to the agent's user or service account, or what "wherry install agent … --rbac bundle --print" prints`,
			"not allowed: %s", strings.Join(missing, "; "))
	default:
		_, assignments := e.onCluster()
		return diagnosis.Okf("all that %d assignments need is allowed", assignments)
	}
}

// missingPermissions asks for what the agent does itself: for an assignment that is applied in the name of a
// ServiceAccount, it makes the namespace and assumes the account.
func (e *examination) missingPermissions(ctx context.Context, r *reviewer) (missing []string, err error) {
	objects, _ := e.objectsOf(func(a bundle.Assignment) bool { return e.accountOf(a) == [2]string{} })
	namespaces := map[schema.GroupResource][]string{}
	var resources []schema.GroupResource
	for _, o := range objects {
		served, known := e.served.kinds[o.Kind.GroupKind()]
		gr := schema.GroupResource{Group: o.Kind.Group, Resource: served.name}
		if !known || gr == namespaceResource {
			continue
		}
		if _, seen := namespaces[gr]; !seen {
			resources = append(resources, gr)
			namespaces[gr] = []string{}
		}
		if served.namespaced && o.Namespace != "" && !slices.Contains(namespaces[gr], o.Namespace) && len(namespaces[gr]) < maxNamespaces {
			namespaces[gr] = append(namespaces[gr], o.Namespace)
		}
	}
	for _, gr := range resources {
		for _, verb := range []string{"get", "create", "patch", "delete"} {
			missing = append(missing, r.deniedIn(ctx, verb, gr, namespaces[gr])...)
		}
	}
	missing = append(missing, e.missingForNamespaces(ctx, r)...)
	missing = append(missing, e.missingForAccounts(ctx, r)...)
	return missing, r.err
}

// accountOf returns namespace and name of the ServiceAccount in whose name an assignment is applied. Names
// that cannot be are the assignment's failure.
func (e *examination) accountOf(a bundle.Assignment) [2]string {
	namespace, name, _ := kubernetes.Account(a, e.Adapters.Impersonate)
	return [2]string{namespace, name}
}

var (
	namespaceResource = schema.GroupResource{Resource: "namespaces"}
	accountResource   = schema.GroupResource{Resource: "serviceaccounts"}
)

// missingForNamespaces asks whether the agent may make and delete the namespaces that assignments bring. That it may not list all
// kinds, without which they stay, is a choice. Where
// it may work with each of them that is enough: then somebody else has made them, and keeps them.
func (e *examination) missingForNamespaces(ctx context.Context, r *reviewer) (missing []string) {
	var names []string
	for _, a := range e.applied() {
		names = append(names, e.content.Namespaces[a.Name]...)
	}
	if names = unique(names); len(names) == 0 {
		return nil
	}
	given := func(name string) bool {
		return r.mayI(ctx, "get", namespaceResource, name, name) && r.mayI(ctx, "patch", namespaceResource, name, name)
	}
	if !r.mayI(ctx, "create", namespaceResource, "", "") && !slices.ContainsFunc(names[:min(len(names), maxNamespaces)], func(name string) bool { return !given(name) }) {
		return nil
	}
	for _, verb := range []string{"get", "create", "patch", "delete"} {
		missing = append(missing, r.deniedIn(ctx, verb, namespaceResource, nil)...)
	}
	return missing
}

func (e *examination) missingForAccounts(ctx context.Context, r *reviewer) (missing []string) {
	var asked [][2]string
	for _, a := range e.applied() {
		account := e.accountOf(a)
		if account == [2]string{} || slices.Contains(asked, account) || len(asked) == maxNamespaces {
			continue
		}
		asked = append(asked, account)
		for _, verb := range []string{"get", "impersonate"} {
			if !r.mayI(ctx, verb, accountResource, account[0], account[1]) {
				missing = append(missing, fmt.Sprintf("%s serviceaccounts %s in %s", verb, account[1], account[0]))
			}
		}
	}
	return missing
}

// reviewer asks the API server what the agent may do, until it does not answer.
type reviewer struct {
	c   client.Client
	err error
}

func (r *reviewer) deniedIn(ctx context.Context, verb string, gr schema.GroupResource, namespaces []string) (denied []string) {
	if r.mayI(ctx, verb, gr, "", "") {
		return nil
	}
	if len(namespaces) == 0 {
		return []string{verb + " " + gr.String()}
	}
	for _, ns := range namespaces {
		if !r.mayI(ctx, verb, gr, ns, "") {
			denied = append(denied, fmt.Sprintf("%s %s in %s", verb, gr, ns))
		}
	}
	return denied
}

// mayI asks about objects in a namespace, or with an empty one everywhere, or about one that has a name.
func (r *reviewer) mayI(ctx context.Context, verb string, gr schema.GroupResource, namespace, name string) bool {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: gr.Group, Resource: gr.Resource, Name: name},
	}}
	if r.err == nil {
		r.err = r.c.Create(ctx, review)
	}
	return review.Status.Allowed
}
