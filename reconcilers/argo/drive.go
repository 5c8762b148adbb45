package argo

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/fluxcd/cli-utils/pkg/object"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
)

// drive has Argo CD get on with the assignment's Applications.
func (e engine) drive(ctx context.Context, v kubernetes.View) error {
	for _, o := range v.Objects {
		if o.GroupVersionKind().GroupKind() != applicationKind {
			continue
		}
		changed := v.Changed(object.UnstructuredToObjMetadata(o))
		err := v.Write(ctx, o, func(o *unstructured.Unstructured) (map[string]any, error) {
			a, err := parse(o)
			if err != nil {
				return nil, err
			}
			return e.next(a, changed), nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// next returns what to write into an Application so that Argo CD gets on; nil where there is nothing to be
// done, as with one that is well. Changed tells one whose specification this call has changed.
func (e engine) next(a *application, changed bool) map[string]any {
	state := a.Status.OperationState
	switch {
	case !a.Metadata.DeletionTimestamp.IsZero():
		return nil
	case a.Operation != nil && state != nil && state.Phase == "Running" && e.Now().Sub(state.StartedAt.Time) > e.Deadline && !blocked(state):
		return map[string]any{"status": map[string]any{"operationState": map[string]any{"phase": "Terminating"}}}
	case changed && (a.Operation != nil || a.automated() && !a.abandoned()):
		return a.refresh("normal")
	case a.Operation != nil:
		return nil
	case changed:
		return a.sync(1)
	case a.troubled() != "":
		return a.refresh("hard") // the error of a source may be one that Argo CD has kept
	case a.wanting():
		return a.sync(a.tried() + 1)
	case !a.fresh() || a.Status.Sync.Status == "Unknown" || e.silent(a, Silence(nil, e.Poll)):
		return a.refresh("normal")
	}
	return nil
}

// mostTries bounds the syncs of a revision that fail.
const mostTries = 2

// wanting reports whether an Application needs a sync that Argo CD does not begin by itself.
func (a *application) wanting() bool {
	last := a.last()
	list, onlyToPrune := a.differing()
	switch {
	case last.failed():
		return a.tried() < mostTries
	case !a.fresh():
		return !a.automated()
	case a.Status.Sync.Status != "OutOfSync":
		return false
	case a.automated():
		policy := a.Spec.SyncPolicy.Automated
		return last != nil && !policy.SelfHeal && len(list) > 0 && (policy.Prune || !onlyToPrune)
	}
	return true
}

// abandoned reports whether Argo CD syncs no more by itself, whatever is specified: it does not know of which
// revision the last sync was.
func (a *application) abandoned() bool {
	state := a.Status.OperationState
	return state.failed() && state.SyncResult == nil
}

// attemptKey names, in the info of an operation, how often this revision was tried. Argo CD keeps it with
// the operation's state.
const attemptKey = "wherry.dev/attempt"

// tried returns the number of failed syncs of the newest revision.
func (a *application) tried() int {
	last := a.last()
	if !last.failed() {
		return 0
	}
	i := slices.IndexFunc(last.Operation.Info, func(i info) bool { return i.Name == attemptKey })
	if i < 0 {
		return 1 // Argo CD's own, or a person's
	}
	n, _ := strconv.Atoi(last.Operation.Info[i].Value)
	return n
}

// refresh asks Argo CD to look now, unless it was asked and has not done so.
func (a *application) refresh(how string) map[string]any {
	if a.asked() {
		return nil
	}
	return map[string]any{"metadata": map[string]any{"annotations": map[string]any{refreshKey: how}}}
}

// automaticRetries is how often Argo CD repeats a failing sync where the Application does not say it, as it
// does in syncs that it begins by itself.
const automaticRetries = 5

// sync asks Argo CD to sync the present specification.
func (a *application) sync(attempt int) map[string]any {
	policy := a.Spec.SyncPolicy
	retry := map[string]any{"limit": automaticRetries}
	switch {
	case attempt > 1:
		retry = map[string]any{"limit": 0}
	case policy.Retry != nil:
		retry = policy.Retry
	}
	sync := map[string]any{"prune": policy.Automated == nil || policy.Automated.Prune, "syncOptions": policy.SyncOptions}
	revisions := a.targets()
	if a.multiple() {
		sync["revisions"] = revisions
	} else {
		sync["revision"] = revisions[0]
	}
	return map[string]any{"operation": map[string]any{
		"initiatedBy": map[string]any{"username": "wherry"},
		"info":        []info{{attemptKey, strconv.Itoa(attempt)}},
		"retry":       retry,
		"sync":        sync,
	}}
}

// targets are the revisions to sync: those that were compared, or what the sources name.
func (a *application) targets() []string {
	if newest := a.newest(); a.fresh() && !slices.Contains(newest, "") && len(newest) == len(a.Spec.sources()) {
		return newest
	}
	var names []string
	for _, source := range a.Spec.sources() {
		names = append(names, cmp.Or(text(source, "targetRevision"), "HEAD"))
	}
	return names
}
