package flux

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fluxcd/cli-utils/pkg/object"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
)

// requestAnnotation asks Flux to reconcile an object now instead of after its interval. Afterwards Flux copies the value
// to status.lastHandledReconcileAt, whatever the result.
const requestAnnotation = "reconcile.fluxcd.io/requestedAt"

// asked reports whether a requested reconciliation of an object is outstanding.
func asked(o *unstructured.Unstructured) bool {
	at := o.GetAnnotations()[requestAnnotation]
	return at != "" && at != field(o, "status", "lastHandledReconcileAt")
}

// outcome is the result of an apply; kubernetes.View is one.
type outcome interface {
	Has(object.ObjMetadata) bool
	Changed(object.ObjMetadata) bool
}

// requests asks Flux to reconcile unchanged objects again; see requestOf.
func requests(now func() time.Time) func(context.Context, kubernetes.View) error {
	return func(ctx context.Context, v kubernetes.View) error {
		for _, o := range v.Objects {
			if !owns(o.GroupVersionKind().GroupKind()) || v.Changed(object.UnstructuredToObjMetadata(o)) {
				continue
			}
			err := v.Write(ctx, o, func(o *unstructured.Unstructured) (map[string]any, error) {
				return requestOf(o, v, v.Fresh, now()), nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// requestOf returns the annotation, as fields of an object, that asks Flux to reconcile o again, or nil. Flux notices
// when an object of its own changes or a source has a new revision, but not when a Secret or ConfigMap that an object
// refers to changes: until the next interval, the object's status belongs to the old content. With new content of an
// assignment, the request also goes to sources that follow a branch, a tag or a range, so that a release and the version
// that it was made for arrive together.
func requestOf(o *unstructured.Unstructured, done outcome, fresh bool, at time.Time) map[string]any {
	if suspended(o) || !(fresh && isPolled(o) || isOutdated(o, done, fresh)) {
		return nil
	}
	annotations := map[string]any{requestAnnotation: at.UTC().Format(time.RFC3339Nano)}
	return map[string]any{"metadata": map[string]any{"annotations": annotations}}
}

// isPolled reports whether an object is a source that Flux polls.
func isPolled(o *unstructured.Unstructured) bool {
	switch {
	case o.GroupVersionKind().Group != sourceGroup, o.GetKind() == "ExternalArtifact":
		return false
	case o.GetKind() == "HelmRepository" && field(o, "spec", "type") == "oci":
		return false // it has no status
	}
	return pinOf(o) == ""
}

// isOutdated reports whether o refers to an object of the assignment that this apply has changed, or that an interrupted
// apply of the same content may have changed.
func isOutdated(o *unstructured.Unstructured, done outcome, fresh bool) bool {
	return slices.ContainsFunc(inputs(o), func(id object.ObjMetadata) bool {
		return done.Changed(id) || fresh && done.Has(id)
	})
}

// inputs returns the Secrets and ConfigMaps that an object of Flux refers to, all of which are in its namespace:
// by fields such as secretRef, certSecretRef and configMapRef, and by the items of substituteFrom and
// valuesFrom.
func inputs(o *unstructured.Unstructured) []object.ObjMetadata {
	var found []object.ObjMetadata
	add := func(kind string, at any) {
		if reference, _ := at.(map[string]any); reference != nil {
			name, _ := reference["name"].(string)
			found = append(found, object.ObjMetadata{GroupKind: schema.GroupKind{Kind: kind}, Namespace: o.GetNamespace(), Name: name})
		}
	}
	var walk func(map[string]any)
	walk = func(fields map[string]any) {
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			value := fields[name]
			switch {
			case name == "values": // a chart's own
			case strings.HasSuffix(strings.ToLower(name), "secretref"):
				add("Secret", value)
			case name == "configMapRef":
				add("ConfigMap", value)
			case name == "substituteFrom", name == "valuesFrom":
				items, _ := value.([]any)
				for _, item := range items {
					reference, _ := item.(map[string]any)
					kind, _ := reference["kind"].(string)
					add(kind, item)
				}
			default:
				if below, ok := value.(map[string]any); ok {
					walk(below)
				}
			}
		}
	}
	spec, _ := o.Object["spec"].(map[string]any)
	walk(spec)
	return found
}
