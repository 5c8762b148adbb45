package kubernetes

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/object"
	"github.com/fluxcd/pkg/ssa/utils"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/rewrite"
)

// Shared objects belong to the agent and are used by several assignments, such as a Secret with the CA of the agent's
// endpoint. SharedManager owns their content. Each assignment owns one annotation in them, under its own field manager, so
// that the users are found in the object itself: assignments come and go at the same time, and a new machine knows nothing
// of the old one's. The object goes with the last annotation.
const (
	SharedManager = "wherry/shared"
	// SharedLabel is on the shared objects that the agent has created.
	SharedLabel = "wherry.dev/shared"
	// userPrefix begins the annotation of an assignment.
	userPrefix = "used-by.wherry.dev/"
)

// usedBySelf reports whether an assignment uses a shared object.
func usedBySelf(live *unstructured.Unstructured, owner string) bool {
	_, uses := live.GetAnnotations()[userPrefix+owner]
	return uses
}

func usedByAny(live *unstructured.Unstructured) bool {
	for key := range live.GetAnnotations() {
		if strings.HasPrefix(key, userPrefix) {
			return true
		}
	}
	return false
}

// lookShared reads a shared object with the agent's own rights.
func (a *access) lookShared(ctx context.Context, s rewrite.Shared) (*unstructured.Unstructured, error) {
	id := object.UnstructuredToObjMetadata(s.Unstructured)
	a.actors[id] = a.r.client
	live, err := a.look(ctx, s.Unstructured)
	if err == nil && live != nil && !s.Joins && live.GetLabels()[SharedLabel] == "" {
		return nil, &reconcilers.Error{
			Reason: Conflict, Fault: reconcilers.FaultSite,
			Err: fmt.Errorf("%s: the agent needs this name, but another owner created the object (delete or rename it)", utils.FmtUnstructured(s.Unstructured)),
		}
	}
	return live, err
}

// shareDiffers says how a shared object differs from what the assignment needs; empty if it does not.
func (a *access) shareDiffers(ctx context.Context, s rewrite.Shared) (string, error) {
	live, err := a.lookShared(ctx, s)
	switch {
	case err != nil:
		return "", err
	case live == nil && s.Union:
		there, err := a.namespaceThere(ctx, s.GetNamespace())
		if err != nil || !there {
			return "", err
		}
		return utils.FmtUnstructured(s.Unstructured) + " is missing", nil
	case live == nil:
		return utils.FmtUnstructured(s.Unstructured) + " is missing", nil
	case !holds(live, s):
		return utils.FmtUnstructured(s.Unstructured) + " differs", nil
	case !usedBySelf(live, a.owner):
		return utils.FmtUnstructured(s.Unstructured) + " lacks the annotation of the assignment", nil
	}
	return "", nil
}

// holds reports whether a live object has the content of a shared one.
func holds(live *unstructured.Unstructured, s rewrite.Shared) bool {
	for _, path := range [][]string{{"data"}, {"metadata", "labels"}} {
		want, _, _ := unstructured.NestedStringMap(s.Object, path...)
		have, _, _ := unstructured.NestedStringMap(live.Object, path...)
		for key, value := range want {
			if have[key] != value {
				return false
			}
		}
		if path[0] == "data" && !s.Joins && !s.Union && len(have) != len(want) {
			return false
		}
	}
	return true
}

// share brings a shared object to the cluster, and notes that the assignment uses it.
func (a *access) share(ctx context.Context, s rewrite.Shared) error {
	live, err := a.lookShared(ctx, s)
	if err != nil {
		return err
	}
	if s.Union {
		return a.shareUnion(ctx, s, live)
	}
	id := object.UnstructuredToObjMetadata(s.Unstructured)
	if live == nil || !holds(live, s) {
		want := s.DeepCopy()
		if !s.Joins || live == nil {
			labels := want.GetLabels()
			if labels == nil {
				labels = map[string]string{}
			}
			labels[SharedLabel] = "true"
			want.SetLabels(labels)
		}
		if live, err = a.applyShared(ctx, want, SharedManager, live != nil && !s.Joins); err != nil {
			return err
		}
	}
	if usedBySelf(live, a.owner) {
		return nil
	}
	use := entryOf(manifest{s.Unstructured, ""}, false).bare()
	use.SetAnnotations(map[string]string{userPrefix + a.owner: ""})
	use.SetUID(live.GetUID()) // another assignment may have deleted it just now
	live, err = a.applyShared(ctx, use, fieldManager(a.owner), false)
	a.live[id] = live
	return err
}

// applyShared applies fields of a shared object. Fields of the agent's own object that were overwritten by hand are taken
// back.
func (a *access) applyShared(ctx context.Context, u *unstructured.Unstructured, manager string, own bool) (*unstructured.Unstructured, error) {
	id, before := object.UnstructuredToObjMetadata(u), u.DeepCopy()
	c := a.acting(id)
	err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(manager))
	if own && (overwrittenByHand(err) || claimedByAssignments(err)) {
		u = before
		err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(manager), client.ForceOwnership)
	}
	if err != nil {
		delete(a.live, id)
		if u.GetUID() != "" && (apierrors.IsConflict(err) && len(claims(err)) == 0 || apierrors.IsInvalid(err)) {
			return nil, waiting(NotApplied, fmt.Errorf("%s was deleted meanwhile", utils.FmtUnstructured(before)))
		}
		return nil, &objectError{origin: utils.FmtUnstructured(before), secret: utils.IsSecret(before), err: err}
	}
	action := reconcilers.Configured
	if a.live[id] == nil {
		action = reconcilers.Created
	}
	a.change(id, action)
	a.live[id] = u
	return u, nil
}

// unshare ends the assignment's use of a shared object, and deletes the object after the last use. If somebody else has
// put content into it, only the agent's goes. Gone is false if it has to be called again.
func (a *access) unshare(ctx context.Context, e entry, live *unstructured.Unstructured) (gone bool, err error) {
	if err := a.stopUsing(ctx, e, live); err != nil {
		return false, err
	}
	live = a.live[e.id()]
	switch {
	case live == nil || usedByAny(live) || !managedBy(live, SharedManager):
		return true, nil
	case live.GetDeletionTimestamp() != nil:
		return false, nil
	case live.GetLabels()[SharedLabel] == "" || hasForeignData(live):
		_, err := a.applyShared(ctx, e.bare(), SharedManager, false)
		return err == nil, err
	}
	uid, version := live.GetUID(), live.GetResourceVersion()
	err = a.acting(e.id()).Delete(ctx, e.bare(), client.Preconditions{UID: &uid, ResourceVersion: &version})
	switch {
	case apierrors.IsConflict(err): // perhaps another assignment uses it since
		delete(a.live, e.id())
		return false, nil
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, err
	}
	a.change(e.id(), reconcilers.Deleted)
	return true, nil
}

// hasForeignData reports whether somebody else manages data of a shared object.
func hasForeignData(live *unstructured.Unstructured) bool {
	return slices.ContainsFunc(live.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager != SharedManager && f.FieldsV1 != nil && bytes.Contains(f.FieldsV1.GetRawBytes(), []byte(`"f:data"`))
	})
}

// stopUsing removes the annotation of the assignment from a shared object.
func (a *access) stopUsing(ctx context.Context, e entry, live *unstructured.Unstructured) error {
	if !usedBySelf(live, a.owner) && !managedBy(live, fieldManager(a.owner)) {
		return nil
	}
	bare := e.bare()
	bare.SetUID(live.GetUID())
	_, err := a.applyShared(ctx, bare, fieldManager(a.owner), false)
	if err != nil && reconcilers.Known(err) != nil && reconcilers.Known(err).Reason == NotApplied { // gone meanwhile
		return nil
	}
	return err
}

func managedBy(live *unstructured.Unstructured, manager string) bool {
	return slices.ContainsFunc(live.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == manager })
}
