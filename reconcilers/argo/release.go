package argo

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
)

// finalizer makes Argo CD delete an Application's objects before the Application itself is gone.
const finalizer = "resources-finalizer.argocd.argoproj.io"

// release prepares an Application for a deletion that includes its objects. Argo CD deletes the objects that it knows:
// those that a sync creates at that moment would be left behind for good. So before the deletion, Argo CD has to begin no
// more syncs, end the running one, and refresh once more.
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

// calm is the time between the end of a sync and Argo CD's comparison after which the comparison includes all objects of
// the sync. Argo CD learns of them by watches.
const calm = 2 * time.Second

var lookAgain = map[string]any{refreshKey: "normal"}

// leave returns the fields to write into an Application before its deletion, and whether it is ready for the deletion.
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
