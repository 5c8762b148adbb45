package flux

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
)

// mostMidway is the time that Flux gets to end its current work. Applying takes seconds. Only the wait for objects to get
// ready takes longer, and by then Flux has written the applied objects into the status.
const mostMidway = 10 * time.Second

// leave delays the deletion of an object while Flux is reconciling it. When a Kustomization is deleted, Flux deletes the
// objects in its status, which it writes at the end of an apply: objects of an apply that runs during the deletion could be
// left behind for good.
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
