package kubernetes

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/fluxcd/pkg/ssa"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// AccountPrefix begins the name of the default ServiceAccount of a workspace.
const AccountPrefix = "wherry-"

// account is the ServiceAccount, as NAMESPACE/NAME, that requests impersonate. Empty means the agent's own identity.
type account string

// newAccount checks the names, which go into a header of each request.
func newAccount(namespace, name string) (account, error) {
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		return "", fmt.Errorf("namespace %.80q of a ServiceAccount: %s", namespace, problems[0])
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return "", fmt.Errorf("name %.80q of a ServiceAccount: %s", name, problems[0])
	}
	return account(namespace + "/" + name), nil
}

func (w account) split() (namespace, name string) {
	namespace, name, _ = strings.Cut(string(w), "/")
	return namespace, name
}

// user is the API server's name for the ServiceAccount.
func (w account) user() string {
	namespace, name := w.split()
	return "system:serviceaccount:" + namespace + ":" + name
}

// Account returns the ServiceAccount that applies an assignment: the one that the assignment names or, if the site insists
// on one, that of its workspace. Both names are empty for the agent's own identity, as for an assignment without a
// workspace, which belongs to the platform. The error is about invalid names.
func Account(a bundle.Assignment, insist bool) (namespace, name string, err error) {
	who, err := accountOf(a, insist)
	namespace, name = who.split()
	return namespace, name, err
}

func accountOf(a bundle.Assignment, insist bool) (who account, err error) {
	switch {
	case a.ServiceAccount != "":
		namespace, name := account(a.ServiceAccount).split()
		who, err = newAccount(namespace, name)
	case insist && a.Workspace != "":
		who, err = newAccount(a.Namespace, AccountPrefix+a.Workspace)
	}
	if err != nil {
		return "", forbidden("the ServiceAccount of workspace %.80q: %w: name one that can exist in Platform.spec.workspaces", a.Workspace, err)
	}
	return who, nil
}

func forbidden(format string, args ...any) error {
	return reconcilers.ReleaseError(Forbidden, format, args...)
}

// maxAccounts bounds the clients that are kept, at some KiB each. A new one costs no request.
const maxAccounts = 64

// accounts are the clients for ServiceAccounts. They share the agent's connections and its list of served kinds.
type accounts struct {
	config     *rest.Config
	httpClient *http.Client
	mu         sync.Mutex
	clients    map[account]client.Client
}

// as returns the client that impersonates an account.
func (r *Reconciler) as(who account) (client.Client, error) {
	if who == "" {
		return r.client, nil
	}
	s := &r.accounts
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.clients[who]; c != nil {
		return c, nil
	}
	impersonating := *s.httpClient
	impersonating.Transport = transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{UserName: who.user()}, s.httpClient.Transport)
	c, err := client.New(s.config, client.Options{HTTPClient: &impersonating, Mapper: r.client.RESTMapper()})
	if err != nil {
		return nil, err
	}
	if s.clients == nil || len(s.clients) >= maxAccounts {
		s.clients = map[account]client.Client{}
	}
	s.clients[who] = c
	return c, nil
}

// assume makes the pass impersonate the assignment's ServiceAccount, if it has one. Only what that account needs to exist is
// created by the agent itself, and at once; see home.
func (p *pass) assume(ctx context.Context, a reconcilers.Assignment) (err error) {
	if p.who, err = accountOf(a.Assignment, p.r.impersonate); err != nil || p.who == "" {
		return err
	}
	if p.Client, err = p.r.as(p.who); err != nil {
		return err
	}
	home := p.home(a.Namespace)
	absent, err := p.enter(ctx, home, a.Namespace)
	if namespace, _ := p.who.split(); err != nil || absent && namespace == a.Namespace {
		return err
	}
	if slices.ContainsFunc(home, func(m manifest) bool { return isAccount(m.Unstructured, p.who) }) {
		return nil // it was made, or its absence is drift
	}
	return p.r.requireAccount(ctx, p.who)
}

// enter creates the absent objects of the assignment's home, if the pass applies; otherwise it reports
// whether the Namespace is absent. Objects in an absent Namespace need no request, which the ServiceAccount could not make.
func (p *pass) enter(ctx context.Context, home []manifest, namespace string) (absent bool, err error) {
	for _, m := range home {
		p.actors[m.id()] = p.r.client
		if err := p.stake(ctx, m); err != nil {
			return false, err
		}
		switch {
		case p.live[m.id()] != nil:
			continue
		case !p.applying && entryOf(m, false).isNamespace():
			for _, m := range p.plan.objects {
				if m.GetNamespace() == namespace {
					p.live[m.id()] = nil
				}
			}
			return true, nil
		case !p.applying:
			continue
		}
		if err := p.create(ctx, m); err != nil {
			return false, err
		}
		if isBinding(m.Unstructured, p.who) {
			if err := p.awaitBinding(ctx, namespace); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

// create applies an object of the assignment's home before all others.
func (p *pass) create(ctx context.Context, m manifest) error {
	p.inventory = p.inventory.union([]manifest{m})
	if err := p.save(); err != nil {
		return err
	}
	_, err := p.manager.ApplyAll(ctx, []*unstructured.Unstructured{m.Unstructured}, ssa.ApplyOptions{})
	return err
}

// requireAccount returns an error with advice if a ServiceAccount does not exist. API servers do not check that: they allow
// impersonation of names without an account, with the permissions that were once bound to them.
func (r *Reconciler) requireAccount(ctx context.Context, who account) error {
	namespace, name := who.split()
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(serviceAccountKind)
	err := r.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, found)
	if !apierrors.IsNotFound(err) {
		return err
	}
	if there, terminating, err := r.namespaceState(ctx, namespace); err == nil && there && terminating {
		return waiting(NamespaceTerminating, fmt.Errorf("namespace %s, which has ServiceAccount %s, is being deleted", namespace, name))
	}
	return forbidden(`this assignment is applied in the name of ServiceAccount %s of namespace %s, which does not exist: create it with "kubectl -n %[2]s create serviceaccount %[1]s" and bind a Role to it, which %q prints`,
		name, namespace, rbacCommand)
}

// inTheNameOf records in an inventory the account that applies the objects of the assignment.
func (p *pass) inTheNameOf(inv inventory) inventory {
	for i, e := range inv.Objects {
		if _, held := p.plan.origins[e.id()]; held {
			inv.Objects[i].As = p.who
			if p.actors[e.id()] != nil { // its home
				inv.Objects[i].As = ""
			}
		}
	}
	return inv
}

// namespaceState asks about a namespace with the agent's own rights.
func (r *Reconciler) namespaceState(ctx context.Context, name string) (there, terminating bool, err error) {
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(namespaceKind)
	err = r.client.Get(ctx, types.NamespacedName{Name: name}, found)
	if apierrors.IsNotFound(err) {
		return false, false, nil
	}
	return true, found.DeletionTimestamp != nil, err
}

// actFor makes requests about e use the account that applied it.
func (a *access) actFor(e entry) (err error) {
	a.actors[e.id()], err = a.r.as(e.As)
	return err
}

// pruneAs prunes e as the account that applied it or, if that lacks the permission by now, as the account that applies the
// assignment now. It never uses permissions that neither of them has.
func (p *pass) pruneAs(ctx context.Context, e entry) (gone bool, kept string, err error) {
	if err := p.actFor(e); err != nil {
		return false, "", err
	}
	gone, kept, err = p.pruneOne(ctx, e)
	if apierrors.IsForbidden(err) && p.applying && p.who != e.As {
		again := e
		again.As = p.who
		if err := p.actFor(again); err != nil {
			return false, "", err
		}
		gone, kept, err = p.pruneOne(ctx, e)
	}
	if !apierrors.IsForbidden(err) || e.As == "" || e.Namespace == "" {
		return gone, kept, err
	}
	// The rights of a ServiceAccount may go with the namespace that they are for, and so does e.
	there, terminating, unknown := p.r.namespaceState(ctx, e.Namespace)
	if unknown != nil || there && !terminating {
		return false, "", err
	}
	return !there, "", nil
}
