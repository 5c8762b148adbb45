package flux

import (
	"cmp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
)

// condition is one of an object's status.conditions. The zero value means that it is absent.
type condition struct {
	status, reason, message string
	observed                int64 // the observed generation
	since                   time.Time
}

func (c condition) is(status string) bool { return c.status == status }

func conditionOf(o *unstructured.Unstructured, name string) condition {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, item := range list {
		c, _ := item.(map[string]any)
		if t, _ := c["type"].(string); t != name {
			continue
		}
		found := condition{observed: o.GetGeneration()} // the default, if the controller gives none
		found.status, _ = c["status"].(string)
		found.reason, _ = c["reason"].(string)
		found.message, _ = c["message"].(string)
		at, _ := c["lastTransitionTime"].(string)
		found.since, _ = time.Parse(time.RFC3339, at)
		if n, ok := c["observedGeneration"].(int64); ok {
			found.observed = n
		}
		return found
	}
	return condition{}
}

func field(o *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, path...)
	return s
}

func suspended(o *unstructured.Unstructured) bool {
	yes, _, _ := unstructured.NestedBool(o.Object, "spec", "suspend")
	return yes
}

func observedGeneration(o *unstructured.Unstructured) int64 {
	n, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	return n
}

// controllerOf returns the name of an object's controller, such as source-controller: each of Flux's groups has one.
func controllerOf(o *unstructured.Unstructured) string {
	group, _, _ := strings.Cut(o.GroupVersionKind().Group, ".")
	return group + "-controller"
}

// readiness judges by the conditions that all of Flux's objects have: Ready, which counts for its observed generation,
// and Stalled, by which Flux gives up. Neither counts while a requested reconciliation is outstanding.
func readiness(o *unstructured.Unstructured) kubernetes.Verdict {
	ready, stalled := conditionOf(o, "Ready"), conditionOf(o, "Stalled")
	current := o.GetGeneration()
	switch {
	case suspended(o):
		return kubernetes.Verdict{State: bundle.Suspended, Reason: "Suspended", Message: subject(o) + " is suspended"}
	case asked(o):
		return kubernetes.Progressing(kubernetes.NotReady, "%s: Flux is asked to look again, and has not yet; is its %s running?", subject(o), controllerOf(o))
	case stalled.is("True") && stalled.observed == current:
		return kubernetes.Failed(cmp.Or(stalled.reason, ready.reason), "%s: %s", subject(o), stalled.message)
	case ready.status == "":
		return kubernetes.Progressing(kubernetes.NotReady, "%s: Flux has not taken it up; is its %s running?", subject(o), controllerOf(o))
	case ready.observed != current:
		return kubernetes.Progressing(kubernetes.NotReady, "%s: Flux has not seen the newest generation; is its %s running?", subject(o), controllerOf(o))
	case ready.is("False"):
		return kubernetes.Failed(ready.reason, "%s: %s", subject(o), ready.message)
	case !ready.is("True"):
		return kubernetes.Progressing(cmp.Or(ready.reason, kubernetes.NotReady), "%s: %s", subject(o), cmp.Or(conditionOf(o, "Reconciling").message, ready.message))
	case observedGeneration(o) != current:
		return kubernetes.Progressing(kubernetes.NotReady, "%s: Flux has not seen the newest generation", subject(o))
	}
	return kubernetes.Verdict{State: bundle.Compliant}
}
