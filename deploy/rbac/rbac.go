// Package rbac derives the permissions that the assignments of a bundle need on their cluster, and no more.
//
// Begin with For. A Role in each namespace allows access to the objects in it, including the Namespace object itself, so
// that a ClusterRole is needed for cluster-wide kinds only. The agent gets the permissions for its own requests, and for
// impersonating the ServiceAccounts of assignments. Each ServiceAccount gets the permissions for its assignments, but
// never any in the home namespace of an assignment of another account.
package rbac

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers/argo"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
	"github.com/wherry-dev/wherry/reconcilers/needs"
)

// Options are the settings of the agent and the cluster.
type Options struct {
	// Account and Namespace name the agent's ServiceAccount, and Role its Roles and ClusterRole.
	Account, Namespace, Role string
	// Impersonate is true if the agent requires a ServiceAccount for each workspace.
	Impersonate bool
	// ArgoNamespace is Argo CD's own namespace. Empty means argo.DefaultNamespace.
	ArgoNamespace string
	// Known are the resources of custom kinds, beside those that a bundle defines.
	Known map[schema.GroupKind]needs.Resource
}

// Permissions are the result of For.
type Permissions struct {
	// Notes are for a person to read before the permissions are given, sorted.
	Notes []string

	opts       Options
	grants     map[grant]map[rule]verbs
	namespaces map[string]bool // that the assignments create
	accounts   map[subject]bool
}

// subject is a ServiceAccount.
type subject struct{ namespace, name string }

// grant is the key of a subject's permissions in a namespace, or in the whole cluster if the namespace is empty.
type grant struct {
	namespace string
	to        subject
}

// rule is a resource, or one object of it if name is set.
type rule struct{ group, resource, name string }

// verbs are sorted and separated by spaces.
type verbs string

const (
	full    verbs = "create delete get patch"
	keeping verbs = "create get patch" // for objects that are never deleted
	known   verbs = "get patch"        // for objects that exist already
	reading verbs = "get"
	assumed verbs = "get impersonate"
)

// For returns the permissions for those assignments of bundles that are applied to a cluster as objects.
func For(bundles []*needs.Needs, opts Options) *Permissions {
	p := &Permissions{opts: opts, grants: map[grant]map[rule]verbs{}, namespaces: map[string]bool{}, accounts: map[subject]bool{}}
	homes := map[string][]subject{}
	for _, n := range bundles {
		for _, a := range applied(n) {
			if who, err := p.subjectOf(a); err == nil && a.Namespace != "" {
				homes[a.Namespace] = append(homes[a.Namespace], who)
			}
		}
	}
	kinds := newKinds(bundles, opts.Known)
	for _, n := range bundles {
		for _, a := range applied(n) {
			p.assignment(a, n, homes, kinds)
		}
	}
	p.missingNamespaces()
	for _, note := range kinds.guesses() {
		p.note("%s", note)
	}
	slices.Sort(p.Notes)
	p.Notes = slices.Compact(p.Notes)
	return p
}

// applied lists the assignments whose adapters apply objects.
func applied(n *needs.Needs) []bundle.Assignment {
	return slices.DeleteFunc(slices.Clone(n.Assignments), func(a bundle.Assignment) bool {
		return !slices.Contains([]string{"kubernetes", "flux", "argo"}, a.Adapter)
	})
}

func (p *Permissions) agent() subject { return subject{p.opts.Namespace, p.opts.Account} }

// subjectOf returns the ServiceAccount that applies an assignment.
func (p *Permissions) subjectOf(a bundle.Assignment) (subject, error) {
	namespace, name, err := kubernetes.Account(a, p.opts.Impersonate)
	if err != nil || name == "" {
		return p.agent(), err
	}
	return subject{namespace, name}, nil
}

func (p *Permissions) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

func (p *Permissions) allow(namespace string, to subject, r rule, v verbs) {
	g := grant{namespace, to}
	if p.grants[g] == nil {
		p.grants[g] = map[rule]verbs{}
	}
	all := slices.Concat(strings.Fields(string(p.grants[g][r])), strings.Fields(string(v)))
	slices.Sort(all)
	p.grants[g][r] = verbs(strings.Join(slices.Compact(all), " "))
}

// assignment adds the permissions for one assignment.
func (p *Permissions) assignment(a bundle.Assignment, n *needs.Needs, homes map[string][]subject, kinds *kinds) {
	who, err := p.subjectOf(a)
	if err != nil {
		p.note("assignment %s: %v; nothing is printed for it", a.Name, err)
		return
	}
	if who != p.agent() {
		p.accounts[who] = true
		p.allow(who.namespace, p.agent(), rule{"", "serviceaccounts", who.name}, assumed)
	}
	for _, name := range n.Namespaces[a.Name] {
		p.namespaces[name] = true
		to := who
		if name == a.Namespace {
			to = p.agent() // which creates it
		}
		p.within(a, name, to, homes, rule{"", "namespaces", name}, known)
	}
	for _, o := range n.Objects[a.Name] {
		if o.Kind.Group == "" && o.Kind.Kind == "Namespace" {
			continue
		}
		p.object(a, o, who, homes, kinds, full)
	}
	if namespace := who.namespace; who != p.agent() && namespace == a.Namespace {
		p.home(a, n)
	}
	for _, o := range n.Sources[a.Name] {
		p.object(a, o, who, homes, kinds, reading)
	}
	for _, o := range n.Followed[a.Name] {
		p.object(a, o, who, homes, kinds, reading)
	}
	for _, o := range n.Shared[a.Name] { // the agent's own, whoever applies the assignment
		p.allow(cmp.Or(o.Namespace, p.argo()), p.agent(), rule{"", strings.ToLower(o.Kind.Kind) + "s", o.Name}, full)
	}
	if a.Adapter == "argo" { // it reads these to explain why nothing happens
		p.within(a, p.argo(), who, homes, rule{argoGroup, "appprojects", ""}, reading)
		p.within(a, p.argo(), who, homes, rule{"", "configmaps", "argocd-cm"}, reading)
	}
}

// home adds the permissions to make the ServiceAccount and its RoleBinding, if the assignment may bring them along: its
// needs name kinds and no names. See kubernetes.WorkspaceRole.
func (p *Permissions) home(a bundle.Assignment, n *needs.Needs) {
	account := schema.GroupKind{Kind: "ServiceAccount"}
	binding := schema.GroupKind{Group: rbacv1.GroupName, Kind: "RoleBinding"}
	brings := func(kind schema.GroupKind) bool {
		return slices.ContainsFunc(n.Objects[a.Name], func(o needs.Object) bool {
			return o.Kind.GroupKind() == kind && cmp.Or(o.Namespace, a.Namespace) == a.Namespace
		})
	}
	if !brings(account) || !brings(binding) {
		return
	}
	p.allow(a.Namespace, p.agent(), rule{"", "serviceaccounts", ""}, full)
	p.allow(a.Namespace, p.agent(), rule{rbacv1.GroupName, "rolebindings", ""}, full)
	p.allow(a.Namespace, p.agent(), rule{rbacv1.GroupName, "clusterroles", kubernetes.WorkspaceRole}, "bind")
}

const argoGroup = "argoproj.io"

// argo returns the namespace of Argo CD, the default for its objects.
func (p *Permissions) argo() string { return cmp.Or(p.opts.ArgoNamespace, argo.DefaultNamespace) }

func (p *Permissions) object(a bundle.Assignment, o needs.Object, who subject, homes map[string][]subject, kinds *kinds, v verbs) {
	resource := kinds.resource(o)
	r := rule{o.Kind.Group, resource.Plural, ""}
	if o.Kind.Group == rbacv1.GroupName {
		p.note("assignment %s holds a %s: who applies it needs all rights that it gives, or the verbs escalate and bind, which are not printed", a.Name, o.Kind.Kind)
	}
	if o.Kind.Kind == "CustomResourceDefinition" {
		v = keeping
	}
	if resource.Namespaced {
		namespace := cmp.Or(o.Namespace, a.Namespace)
		if o.Namespace == "" && a.Adapter == "argo" && o.Kind.Group == argoGroup {
			namespace = p.argo()
		}
		p.within(a, namespace, who, homes, r, v)
		return
	}
	if who != p.agent() {
		p.note("assignment %s holds a %s, which is in no namespace: %s of %s may change all of them", a.Name, o.Kind.Kind, who.name, who.namespace)
	}
	p.allow("", who, r, v)
}

// within adds a permission in a namespace. A ServiceAccount gets none in the home namespace of an assignment of another
// account, nor in the namespaces of the cluster's own parts and of the agent.
func (p *Permissions) within(a bundle.Assignment, namespace string, who subject, homes map[string][]subject, r rule, v verbs) {
	at := homes[namespace]
	switch {
	case who == p.agent(), slices.Contains(at, who):
	case len(at) > 0, strings.HasPrefix(namespace, "kube-"), namespace == p.opts.Namespace:
		p.note("assignment %s holds %s in namespace %s, which is another's: not allowed to %s of %s", a.Name, r.resource, namespace, who.name, who.namespace)
		return
	default: // an engine's, such as flux-system
		p.note("assignment %s holds %s in namespace %s, which is not an assignment's: allowed to %s of %s", a.Name, r.resource, namespace, who.name, who.namespace)
	}
	p.allow(namespace, who, r, v)
}

// missingNamespaces adds a note with the namespaces that no assignment brings.
func (p *Permissions) missingNamespaces() {
	missing := map[string]bool{}
	for g := range p.grants {
		if g.namespace != "" && !p.namespaces[g.namespace] {
			missing[g.namespace] = true
		}
	}
	if len(missing) > 0 {
		p.note("no assignment brings these namespaces, which have to exist before the Roles in them: %s", strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
	}
}
