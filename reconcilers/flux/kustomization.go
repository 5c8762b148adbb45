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
func judgeKustomization(ctx context.Context, c kubernetes.Cluster, o *unstructured.Unstructured) (kubernetes.Verdict, error) {
	source, err := sourceOf(ctx, c, o, "spec", "sourceRef")
	if err != nil {
		return kubernetes.Verdict{}, err
	}
	v := readiness(o)
	applied := field(o, "status", "lastAppliedRevision")
	if v.State != bundle.Suspended {
		v = follow(o, source, v)
	}
	if v.State == bundle.Compliant {
		if v, err = judgeInventory(ctx, c, o); err != nil {
			return kubernetes.Verdict{}, err
		}
	}
	v.Revision, v.Applies, v.Floating = applied, true, source == nil || pinOf(source) == ""
	return v, nil
}

// follow adjusts a verdict on o by the state of its source, and by the revision that o has applied or tried.
func follow(o, source *unstructured.Unstructured, v kubernetes.Verdict) kubernetes.Verdict {
	if source == nil {
		if v.State != bundle.Failed {
			v = kubernetes.Progressing("ArtifactFailed", "%s: its source does not exist", subject(o))
		}
		return v
	}
	from := judgeSource(source)
	newest := from.Revision
	applied, attempted := field(o, "status", "lastAppliedRevision"), field(o, "status", "lastAttemptedRevision")
	ready := conditionOf(o, "Ready")
	switch {
	case from.State == bundle.Failed: // with the source's own reason, even if the source is no object of the assignment
		return from
	case from.State == bundle.Progressing:
		return kubernetes.Progressing(from.Reason, "%s: waits for its source: %s", subject(o), from.Message)
	case v.State == bundle.Failed && temporary(o, ready):
		v.State = bundle.Progressing
	case v.State == bundle.Failed && ready.reason != "ArtifactFailed" && attempted != newest:
		return kubernetes.Progressing(kubernetes.NotReady, "%s: Flux has not tried %s", subject(o), newest)
	case repeats(o, ready) && applied == newest:
		v = kubernetes.Verdict{State: bundle.Compliant}
	case v.State == bundle.Compliant && applied != newest:
		return kubernetes.Progressing(kubernetes.NotReady, "%s: Flux has applied %s, not yet %s", subject(o), cmp.Or(applied, "nothing"), newest)
	}
	return v
}

// temporary reports whether a failure passes by itself: something else has to be ready first, or Flux has
// broken off for a newer revision. Flux reports ArtifactFailed both while it waits for an artifact and if the artifact is
// wrong, for example lacks the path.
func temporary(o *unstructured.Unstructured, ready condition) bool {
	switch ready.reason {
	case "DependencyNotReady", "HealthCheckCanceled":
		return true
	case "ArtifactFailed":
		return conditionOf(o, "Reconciling").reason != "ProgressingWithRetry" || strings.Contains(ready.message, "retrying in")
	}
	return false
}

// repeats reports whether Flux is only repeating, as it does at every interval, an apply that has succeeded in this
// generation.
func repeats(o *unstructured.Unstructured, ready condition) bool {
	history, _, _ := unstructured.NestedSlice(o.Object, "status", "history")
	if len(history) == 0 || !ready.is("Unknown") || asked(o) || observedGeneration(o) != o.GetGeneration() {
		return false
	}
	last, _ := history[0].(map[string]any)
	return last["lastReconciledStatus"] == "ReconciliationSucceeded"
}

// sourceOf returns the object that the reference at path names, or nil if it does not exist.
func sourceOf(ctx context.Context, c kubernetes.Cluster, o *unstructured.Unstructured, path ...string) (*unstructured.Unstructured, error) {
	at := func(name string) string { return field(o, append(path[:len(path):len(path)], name)...) }
	key := types.NamespacedName{Namespace: cmp.Or(at("namespace"), o.GetNamespace()), Name: at("name")}
	return c.Get(ctx, schema.GroupKind{Group: sourceGroup, Kind: at("kind")}, key)
}
