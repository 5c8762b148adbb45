package argo

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
)

// finalizer has Argo CD take away what an Application has brought before the Application goes.
const finalizer = "resources-finalizer.argocd.argoproj.io"

// release makes the deletion of an Application one of what it has brought. Argo CD takes away what it knows of:
// what a sync creates at that time would be left behind for good. So it is to begin no more syncs, to end the
// one that is under way, and to look once more, before the Application is deleted.
func (engine) release(ctx context.Context, v kubernetes.View, o *unstructured.Unstructured) (ready bool, err error) {
	if o.GroupVersionKind().GroupKind() != applicationKind {
		return true, nil
	}
	err = v.Write(ctx, o, func(o *unstructured.Unstructured) (map[string]any, error) {
		a, err := parse(o)
		if err != nil {
			return nil, err
		}
		var fields map[string]any
		fields, ready = a.leave()
		return fields, nil
	})
	return ready, err
}

// calm is how long before Argo CD's comparison a sync has to have ended for all that it did to be known there.
// Argo CD learns of it by watches.
const calm = 2 * time.Second

var lookAgain = map[string]any{refreshKey: "normal"}

// leave returns what to write into an Application that is to go, and whether it is ready to after that.
func (a *application) leave() (fields map[string]any, ready bool) {
	metadata := map[string]any{}
	if !a.cascades() {
		metadata["finalizers"] = append([]string{finalizer}, a.Metadata.Finalizers...)
	}
	state := a.Status.OperationState
	switch {
	case a.Spec.SyncPolicy.Automated != nil:
		fields = map[string]any{"spec": map[string]any{"syncPolicy": map[string]any{"automated": nil}}}
		metadata["annotations"] = lookAgain
	case a.Operation != nil && state != nil && state.Phase == "Running":
		fields = map[string]any{"status": map[string]any{"operationState": map[string]any{"phase": "Terminating"}}}
	case a.Operation != nil, a.asked():
	case state != nil && state.FinishedAt != nil && a.Status.ReconciledAt.Sub(state.FinishedAt.Time) < calm:
		metadata["annotations"] = lookAgain
	default:
		ready = true
	}
	if len(metadata) > 0 {
		if fields == nil {
			fields = map[string]any{}
		}
		fields["metadata"] = metadata
	}
	return fields, ready
}
