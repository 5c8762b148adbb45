package kubernetes

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

var _ reconcilers.Releaser = (*Reconciler)(nil)

// Release removes label and field manager from the objects of the inventory, so that others can take them over, and
// forgets the inventory. Everything else stays as it is.
func (r *Reconciler) Release(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	p := r.newPass(a.Name)
	res := reconcilers.Result{State: bundle.Removed}
	if err := p.release(ctx); err != nil {
		res = r.failed(ctx, err)
	}
	res.Changes = p.changes
	p.logChanges(ctx)
	return res
}

func (p *pass) release(ctx context.Context) error {
	if err := p.load(); err != nil {
		return err
	}
	for _, e := range p.inventory.Objects {
		if err := p.releaseOne(ctx, e); err != nil {
			return fmt.Errorf("release %s: %w", e.subject(), err)
		}
	}
	p.inventory = inventory{}
	return p.save()
}

// releaseOne releases e as the account that applied it.
func (a *access) releaseOne(ctx context.Context, e entry) error {
	a.r.seen.forget(e.id())
	if err := a.actFor(e); err != nil {
		return err
	}
	e, err := a.r.served(ctx, e)
	if err != nil || e.Version == "" { // no kind, no objects of it
		return err
	}
	live, err := a.look(ctx, e.bare())
	if err != nil || live == nil || !marked(live, a.owner) {
		return err
	}
	if e.Shared { // what stays may need it
		return a.stopUsing(ctx, e, live)
	}
	return a.leave(ctx, e, live)
}

// marked reports whether an object has the label or the field manager of an owner.
func marked(live *unstructured.Unstructured, owner string) bool {
	return live.GetLabels()[OwnerLabel] == owner || slices.ContainsFunc(live.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == fieldManager(owner)
	})
}
