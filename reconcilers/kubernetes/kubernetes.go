// Package kubernetes applies plain manifests to a cluster by server-side apply.
//
// Two records limit the objects that a call may change. The label wherry.dev/assignment is on every object
// that an assignment created, and on no other: only such objects are ever deleted. The inventory, in the
// agent's ledger, lists the objects that an assignment has applied, and is saved before and after an apply: objects
// that it lists and the assignment no longer has are pruned. The API server records the owner of each field; each
// assignment has a field manager of its own. A field that somebody else manages is never taken over: the apply fails
// with the reason Conflict and names field and manager. Only a value that was overwritten by hand in an
// object of ours is put back.
//
// An object that existed before is applied to, but not labelled: when the assignment goes, its fields
// go and the object stays. Namespaces go last, and only when nobody else has anything in them and no
// PersistentVolumeClaim is left. CustomResourceDefinitions stay, as deleting one deletes everybody's
// objects of that kind.
package kubernetes

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/manifests"
	"github.com/wherry-dev/wherry/reconcilers"
)

// OwnerLabel is on every object that an assignment created; its value is the assignment's name, or a
// digest of a name that no label can hold.
const OwnerLabel = manifests.OwnerLabel

// Options are optional. The zero value works.
type Options struct {
	Log *slog.Logger // nil is silent
	// Engine is driven by the objects; nil if the objects are the purpose themselves.
	Engine *Engine
	// Impersonate is true if a workspace's objects are always applied as a ServiceAccount. If the assignment names
	// none, that is AccountPrefix and the workspace, in the assignment's namespace.
	Impersonate bool
}

// Reconciler is the engine for one cluster. It may be used by several goroutines, each with an
// assignment of its own.
type Reconciler struct {
	client      client.Client
	discovery   *discovery.DiscoveryClient
	accounts    accounts
	impersonate bool
	ledger      reconcilers.Ledger
	seen        *seen
	engine      *Engine
	log         *slog.Logger
}

var (
	_ reconcilers.Reconciler = (*Reconciler)(nil)
	_ reconcilers.Foreteller = (*Reconciler)(nil)
)

// requestTimeout bounds one request if config has no timeout of its own. API servers give a webhook,
// the slowest part of an apply, up to 30 s.
const requestTimeout = 45 * time.Second

// New returns a reconciler for the cluster of config. It connects at its first use, and then asks once for the kinds that
// the cluster serves. The error is about config. Without a limit in config, requests are not throttled: they follow one
// another, and API servers protect themselves.
func New(config *rest.Config, ledger reconcilers.Ledger, opts Options) (*Reconciler, error) {
	log := opts.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	config = rest.CopyConfig(config)
	if config.QPS == 0 {
		config.QPS = -1
	}
	if config.Timeout == 0 {
		config.Timeout = requestTimeout
	}
	config.WarningHandlerWithContext = warnings{log}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("access to the cluster: %w", err)
	}
	c, disco, err := clients(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("access to the cluster: %w", err)
	}
	return &Reconciler{
		client: c, discovery: disco, accounts: accounts{config: config, httpClient: httpClient}, impersonate: opts.Impersonate,
		ledger: ledger, seen: newSeen(), engine: opts.Engine, log: log,
	}, nil
}

func clients(config *rest.Config, httpClient *http.Client) (client.Client, *discovery.DiscoveryClient, error) {
	disco, err := discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, nil, err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	if err != nil {
		return nil, nil, err
	}
	c, err := client.New(config, client.Options{HTTPClient: httpClient, Mapper: mapper})
	return c, disco, err
}

// warnings logs what the API server has to say about requests that it accepts.
type warnings struct{ log *slog.Logger }

func (w warnings) HandleWarningHeaderWithContext(_ context.Context, code int, _, text string) {
	if code == 299 && text != "" {
		w.log.Warn("API server warns", "message", text)
	}
}

// Apply applies the manifests that differ from the cluster, prunes, and says how the objects are. When
// one of them cannot be applied, none that is no CustomResourceDefinition, Namespace or ClusterRole is.
func (r *Reconciler) Apply(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	p := r.newPass(a.Name)
	res, err := p.apply(ctx, a)
	if claimedMeanwhile(err) {
		changes := p.changes
		p = r.newPass(a.Name)
		p.changes = changes
		res, err = p.apply(ctx, a)
	}
	if err != nil {
		res = r.failed(ctx, err)
	}
	res.Changes = p.changes
	p.logChanges(ctx)
	return res
}

func (p *pass) apply(ctx context.Context, a reconcilers.Assignment) (reconcilers.Result, error) {
	p.applying = true
	if err := p.prepare(ctx, a); err != nil {
		return reconcilers.Result{}, err
	}
	old := p.inventory
	p.inventory = p.inTheNameOf(old.union(p.plan.objects).using(p.shared))
	if err := p.save(); err != nil {
		return reconcilers.Result{}, err
	}
	if err := p.applyStages(ctx); err != nil {
		return reconcilers.Result{}, err
	}
	left, kept, err := p.prune(ctx, old.without(p.plan.objects, p.shared))
	if err != nil {
		return reconcilers.Result{}, err
	}
	if err := p.drive(ctx, old.Content != a.Desired()); err != nil {
		return reconcilers.Result{}, err
	}
	p.inventory = p.inTheNameOf(newInventory(a.Desired(), p.plan.objects, p.shared, left))
	if err := p.save(); err != nil {
		return reconcilers.Result{}, err
	}
	return p.judge(ctx, a.Content, kept), nil
}

// Observe compares every object with its manifest, by a dry run, and says how the objects are.
func (r *Reconciler) Observe(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	p := r.newPass(a.Name)
	if err := p.prepare(ctx, a); err != nil {
		return r.failed(ctx, err)
	}
	drift, err := p.drift(ctx)
	if err != nil {
		return r.failed(ctx, err)
	}
	switch {
	case drift == "":
		return p.judge(ctx, a.Content, nil)
	case p.inventory.Content != a.Desired():
		return reconcilers.Result{State: bundle.Pending, Reason: NotApplied, Message: reconcilers.Clip(drift)}
	}
	return reconcilers.Result{State: bundle.Drifted, Reason: Differs, Message: reconcilers.Clip(drift)}
}

// Remove deletes what the inventory lists and the assignment created.
func (r *Reconciler) Remove(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	p := r.newPass(a.Name)
	res, err := p.remove(ctx)
	if err != nil {
		res = r.failed(ctx, err)
	}
	res.Changes = p.changes
	p.logChanges(ctx)
	return res
}

func (p *pass) remove(ctx context.Context) (reconcilers.Result, error) {
	if err := p.load(); err != nil {
		return reconcilers.Result{}, err
	}
	left, kept, err := p.prune(ctx, p.inventory.Objects)
	if err != nil {
		return reconcilers.Result{}, err
	}
	p.inventory = inventory{Objects: left}
	if err := p.save(); err != nil {
		return reconcilers.Result{}, err
	}
	if len(left) > 0 {
		return reconcilers.Result{State: bundle.Progressing, Reason: Terminating, Message: reconcilers.Clip(names(left))}, nil
	}
	return noteKept(reconcilers.Result{State: bundle.Removed}, kept), nil
}

// logChanges logs objects one by one; that and how an assignment changed is the agent's to log.
func (p *pass) logChanges(ctx context.Context) {
	for _, c := range p.changes {
		p.r.log.DebugContext(ctx, "object changed", "assignment", p.assignment, "object", c.Object, "action", c.Action)
	}
}

// mapping returns how the cluster serves a kind; the error is meta.IsNoMatchError where it does not. The
// mapper knows no context: a request that it makes may outlive the call, by requestTimeout at most.
func (r *Reconciler) mapping(ctx context.Context, kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	type answer struct {
		mapping *meta.RESTMapping
		err     error
	}
	done := make(chan answer, 1)
	go func() {
		m, err := r.client.RESTMapper().RESTMapping(kind, versions...)
		done <- answer{m, err}
	}()
	select {
	case a := <-done:
		return a.mapping, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
