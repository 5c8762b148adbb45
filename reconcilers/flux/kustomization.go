package flux

import (
	"cmp"
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
)

// judgeKustomization judges whether Flux has applied the newest revision of the source, and runs it.
func judgeKustomization(ctx context.Context, c cluster, o *unstructured.Unstructured) (verdict, error) {
	source, err := sourceOf(ctx, c, o, "spec", "sourceRef")
	if err != nil {
		return verdict{}, err
	}
	v := readiness(o)
	applied := field(o, "status", "lastAppliedRevision")
	if v.state != bundle.Suspended {
		v = follow(o, source, v)
	}
	if v.state == bundle.Compliant {
		if v, err = judgeInventory(ctx, c, o); err != nil {
			return verdict{}, err
		}
	}
	v.revision, v.applies, v.floating = applied, true, source == nil || pinOf(source) == ""
	return v, nil
}

// follow corrects a verdict for the revision that it is about.
func follow(o, source *unstructured.Unstructured, v verdict) verdict {
	if source == nil {
		if v.state != bundle.Failed {
			v = progressing("ArtifactFailed", "%s: its source does not exist", subject(o))
		}
		return v
	}
	from := judgeSource(source)
	newest := from.revision
	applied, attempted := field(o, "status", "lastAppliedRevision"), field(o, "status", "lastAttemptedRevision")
	ready := conditionOf(o, "Ready")
	switch {
	case from.state == bundle.Failed: // what it says itself, whether or not it is one of the assignment's
		return from
	case from.state == bundle.Progressing:
		return progressing(from.reason, "%s: waits for its source: %s", subject(o), from.message)
	case v.state == bundle.Failed && temporary(o, ready):
		v.state = bundle.Progressing
	case v.state == bundle.Failed && ready.reason != "ArtifactFailed" && attempted != newest:
		return progressing(kubernetes.NotReady, "%s: Flux has not tried %s", subject(o), newest)
	case repeats(o, ready) && applied == newest:
		v = verdict{state: bundle.Compliant}
	case v.state == bundle.Compliant && applied != newest:
		return progressing(kubernetes.NotReady, "%s: Flux has applied %s, not yet %s", subject(o), cmp.Or(applied, "nothing"), newest)
	}
	return v
}

// temporary reports whether a failure passes by itself: something else has to be ready first, or Flux has
// broken off because of news. Flux says ArtifactFailed both where it waits for an artifact, before it has
// begun with it, and where there is something wrong with it, such as a path that it lacks.
func temporary(o *unstructured.Unstructured, ready condition) bool {
	switch ready.reason {
	case "DependencyNotReady", "HealthCheckCanceled":
		return true
	case "ArtifactFailed":
		return conditionOf(o, "Reconciling").reason != "ProgressingWithRetry" || strings.Contains(ready.message, "retrying in")
	}
	return false
}

// repeats reports whether Flux is at work on what it has applied in this generation before and found well,
// as it is at every interval.
func repeats(o *unstructured.Unstructured, ready condition) bool {
	history, _, _ := unstructured.NestedSlice(o.Object, "status", "history")
	if len(history) == 0 || !ready.is("Unknown") || asked(o) || observedGeneration(o) != o.GetGeneration() {
		return false
	}
	last, _ := history[0].(map[string]any)
	return last["lastReconciledStatus"] == "ReconciliationSucceeded"
}

// sourceOf returns what an object's reference at path names, or nil where that does not exist.
func sourceOf(ctx context.Context, c cluster, o *unstructured.Unstructured, path ...string) (*unstructured.Unstructured, error) {
	at := func(name string) string { return field(o, append(path[:len(path):len(path)], name)...) }
	key := types.NamespacedName{Namespace: cmp.Or(at("namespace"), o.GetNamespace()), Name: at("name")}
	return c.Get(ctx, schema.GroupKind{Group: sourceGroup, Kind: at("kind")}, key)
}
