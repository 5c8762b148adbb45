package kinds

import (
	"fmt"
	"slices"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// AnnotationPrefix begins our annotations on Kalypso's kinds.
const AnnotationPrefix = "wherry.dev/"

// The known annotations, without their prefix.
var (
	ClusterTypeAnnotations = []string{"adapter", "delivery", "pin", "valid-for", "drift", "on-failure", "health", "on-remove", "restart-on-config", "carry", "chart-values", "kube-version", "api-versions", "site-values", "platforms"}
	PolicyAnnotations      = []string{"under"}
	TemplateAnnotations    = []string{"missing-keys"}
	WorkloadAnnotations    = []string{"adapter", "carry", "chart-values", "delivery", "depends-on", "drift", "health", "on-failure", "on-remove", "restart-on-config", "uses-site-values", "wave"}
)

// Annotation is an annotation in effect for an assignment.
type Annotation struct {
	object *Common // that has it
	Key    string
	Value  string
	At     finding.Position
}

// Mistake returns an error about the annotation, at its place.
func (a Annotation) Mistake(hint, format string, args ...any) error {
	return finding.Errorf(finding.CodeAnnotationValue, a.At, hint, "annotation %s: %s", a.Key, fmt.Sprintf(format, args...))
}

// Origin names the annotation, the object that has it, and its place.
func (a Annotation) Origin() string {
	return fmt.Sprintf("annotation %s on %s %q at %s", a.Key, a.object.Kind, a.object.Metadata.Name, a.At)
}

// AnnotationFor finds the most specific annotation of that name: for the target, for its workload, or
// for the cluster type if that may have it.
func AnnotationFor(ct *ClusterType, t *Target, name string) (Annotation, bool) {
	places := []Annotation{
		{object: &t.Workload.Common, Key: t.Spec.Name + "." + AnnotationPrefix + name},
		{object: &t.Workload.Common, Key: AnnotationPrefix + name},
	}
	if slices.Contains(ClusterTypeAnnotations, name) {
		places = append(places, Annotation{object: &ct.Common, Key: AnnotationPrefix + name})
	}
	for _, a := range places {
		if text, ok := a.object.Metadata.Annotations[a.Key]; ok {
			a.Value, a.At = text.Value, a.object.Position(text.Line)
			return a, true
		}
	}
	return Annotation{}, false
}
