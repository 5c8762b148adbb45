package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fluxcd/pkg/ssa"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// prune deletes the objects of entries that the assignment created. It returns the entries that are not gone yet, and a
// text for each namespace that stays, with the reason.
func (p *pass) prune(ctx context.Context, entries []entry) (left []entry, kept []string, err error) {
	engines := false // has something left to do for the assignment
	for _, e := range forDeletion(entries) {
		if engines && (e.isNamespace() || e.Shared || p.plan.held(e)) {
			left = append(left, e) // the engine's objects in it are not gone yet, or still need it
			continue
		}
		gone, stays, err := p.pruneAs(ctx, e)
		if err != nil {
			return nil, nil, fmt.Errorf("prune %s: %w", e.subject(), err)
		}
		if stays != "" {
			kept = append(kept, stays)
		}
		if !gone {
			left = append(left, e)
			engines = engines || p.plan.engines(e.groupKind())
		}
	}
	return left, kept, nil
}

// pruneOne returns gone as true when nothing is left to do about e. Kept is the reason why a namespace stays.
func (a *access) pruneOne(ctx context.Context, e entry) (gone bool, kept string, err error) {
	a.r.seen.forget(e.id())
	e, err = a.r.served(ctx, e)
	if err != nil {
		return false, "", err
	}
	if e.Version == "" {
		return true, "", nil // no kind, no objects of it
	}
	live, err := a.look(ctx, e.bare())
	switch {
	case err != nil:
		return false, "", err
	case live == nil:
		return true, "", nil
	case e.Shared:
		gone, err = a.unshare(ctx, e, live)
		return gone, "", err
	case live.GetDeletionTimestamp() != nil:
		return false, "", nil
	case live.GetLabels()[OwnerLabel] != a.owner:
		return true, "", a.letGo(ctx, e, live)
	case e.isCRD():
		return true, "", a.leave(ctx, e, live)
	case e.isNamespace():
		return a.pruneNamespace(ctx, e, live)
	}
	if a.plan.engines(e.groupKind()) && a.r.engine.Release != nil {
		if ready, err := a.r.engine.Release(ctx, a.view(), live); !ready || err != nil {
			return false, "", err
		}
	}
	gone, err = a.delete(ctx, e)
	return gone, "", err
}

// served returns e in a version that the cluster serves, which may have changed since e was written. The version is
// empty if the cluster does not serve the kind.
func (r *Reconciler) served(ctx context.Context, e entry) (entry, error) {
	mapping, err := r.mapping(ctx, e.groupKind(), e.Version)
	if meta.IsNoMatchError(err) {
		mapping, err = r.mapping(ctx, e.groupKind())
	}
	switch {
	case meta.IsNoMatchError(err):
		e.Version = ""
	case err != nil:
		return entry{}, err
	default:
		e.Version = mapping.GroupVersionKind.Version
	}
	return e, nil
}

// delete deletes an object that carries our label and reports whether it is gone at once: finalizers
// may keep it for a while.
func (a *access) delete(ctx context.Context, e entry) (gone bool, err error) {
	opts := ssa.DefaultDeleteOptions()
	opts.Inclusions = map[string]string{OwnerLabel: a.owner}
	if _, err := a.manager.Delete(ctx, e.bare(), opts); err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	delete(a.live, e.id())
	live, err := a.look(ctx, e.bare())
	return live == nil, err
}

func (a *access) pruneNamespace(ctx context.Context, e entry, live *unstructured.Unstructured) (gone bool, kept string, err error) {
	if a.plan.occupied(e.Name) {
		return false, "", nil // the assignment still has objects in it
	}
	by, err := usedBy(ctx, a.r.discovery, a.acting(e.id()), a.owner, e.Name)
	switch {
	case err != nil:
		return false, "", err
	case by.ours:
		return false, "", nil
	case by.unknown != nil:
		return true, fmt.Sprintf("%s is kept, as what is in it may not be listed: %v", e.subject(), by.unknown), a.leave(ctx, e, live)
	case by.subject != "":
		return true, fmt.Sprintf("%s is kept, as %s is in it", e.subject(), by.subject), a.leave(ctx, e, live)
	}
	gone, err = a.delete(ctx, e)
	return gone, "", err
}

// letGo gives up an object that the assignment did not create, or that somebody else has taken over by
// changing its label. It removes our fields from the former, unless the object would be invalid without them.
func (a *access) letGo(ctx context.Context, e entry, live *unstructured.Unstructured) error {
	if e.Owned {
		return a.leave(ctx, e, live)
	}
	bare := e.bare()
	bare.SetResourceVersion(live.GetResourceVersion())
	err := a.acting(e.id()).Apply(ctx, client.ApplyConfigurationFromUnstructured(bare), client.FieldOwner(fieldManager(a.owner)))
	switch {
	case apierrors.IsInvalid(err):
		return a.leave(ctx, e, live)
	case err != nil && !apierrors.IsNotFound(err):
		return err
	case bare.GetResourceVersion() != live.GetResourceVersion():
		a.change(e.id(), reconcilers.Kept)
	}
	return nil
}

// leave removes our label and field manager from an object, and nothing else.
func (a *access) leave(ctx context.Context, e entry, live *unstructured.Unstructured) error {
	managers := slices.DeleteFunc(live.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == fieldManager(a.owner)
	})
	if len(managers) == 0 {
		managers = []metav1.ManagedFieldsEntry{{}} // the API's form of an empty list
	}
	metadata := map[string]any{"resourceVersion": live.GetResourceVersion(), "managedFields": managers}
	if live.GetLabels()[OwnerLabel] == a.owner {
		metadata["labels"] = map[string]any{OwnerLabel: nil}
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	err = a.acting(e.id()).Patch(ctx, e.bare(), client.RawPatch(types.MergePatchType, patch))
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	a.change(e.id(), reconcilers.Kept)
	return nil
}

// noteKept returns a successful result with the namespaces that stay.
func noteKept(res reconcilers.Result, kept []string) reconcilers.Result {
	if len(kept) > 0 && (res.State == bundle.Compliant || res.State == bundle.Removed) {
		res.Reason, res.Message = NamespaceKept, reconcilers.Clip(strings.Join(kept, "; "))
	}
	return res
}
