package flux

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
)

// mostMidway is how long Flux is given to end what it is about. Applying takes seconds; what takes longer is
// the wait for objects to get ready, and by then Flux has said what it applied.
const mostMidway = 10 * time.Second

// leave has the deletion of an object wait until Flux is not in the midst of it. What a Kustomization has
// brought is read off its status when it is deleted, and written there at the end: what one deleted meanwhile
// applies could be left behind for good.
func leave(now func() time.Time) func(context.Context, kubernetes.View, *unstructured.Unstructured) (bool, error) {
	return func(_ context.Context, _ kubernetes.View, o *unstructured.Unstructured) (bool, error) {
		return !midway(o, now()), nil
	}
}

func midway(o *unstructured.Unstructured, now time.Time) bool {
	group := o.GroupVersionKind().Group
	if group != kustomizeGroup && group != helmGroup || len(o.GetFinalizers()) == 0 || suspended(o) {
		return false
	}
	since := o.GetCreationTimestamp().Time
	if conditionOf(o, "Ready").status != "" {
		c := conditionOf(o, "Reconciling")
		if !c.is("True") || c.reason != "Progressing" {
			return false
		}
		since = c.since
	}
	return now.Sub(since) < mostMidway
}
