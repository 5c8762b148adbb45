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

// judgeRelease judges whether Flux has released the newest version of the chart, and left it in place: a
// release that was remediated, by a rollback or an uninstall, has failed, even though something runs. That it
// was counts until Flux tries again, of which Ready is Unknown.
//
// The conditions are those that helm-controller documents for helm.toolkit.fluxcd.io/v2.
func judgeRelease(ctx context.Context, c kubernetes.Cluster, o *unstructured.Unstructured) (kubernetes.Verdict, error) {
	source, err := chartSource(ctx, c, o)
	if err != nil {
		return kubernetes.Verdict{}, err
	}
	v, ready, remediated := readiness(o), conditionOf(o, "Ready"), conditionOf(o, "Remediated")
	switch {
	case v.State == bundle.Suspended, asked(o):
	case remediated.is("True") && remediated.observed == o.GetGeneration() && !ready.is("Unknown"):
		v = kubernetes.Failed(remediated.reason, "%s: %s", subject(o), remediated.message)
	case v.State == bundle.Failed && passing(ready.reason):
		v.State = bundle.Progressing
	}
	if v.State != bundle.Suspended && source != nil {
		v = followChart(o, source, v)
	}
	v.Revision, v.Applies = chartOf(o), true
	v.Floating = source == nil || pinOf(source) == ""
	return v, nil
}

// chartSource returns the source of a release's chart: the OCIRepository or HelmChart that the release refers to, or the
// HelmChart that Flux has made for it. It returns nil if that object does not exist.
func chartSource(ctx context.Context, c kubernetes.Cluster, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if field(o, "spec", "chartRef", "name") != "" {
		return sourceOf(ctx, c, o, "spec", "chartRef")
	}
	namespace, name, found := strings.Cut(field(o, "status", "helmChart"), "/")
	if !found {
		return nil, nil
	}
	return c.Get(ctx, schema.GroupKind{Group: sourceGroup, Kind: "HelmChart"}, types.NamespacedName{Namespace: namespace, Name: name})
}

// followChart adjusts a verdict on o by the state of its chart's source, and by the version that o has released or tried.
func followChart(o, source *unstructured.Unstructured, v kubernetes.Verdict) kubernetes.Verdict {
	from := judgeSource(source)
	switch {
	case from.State == bundle.Failed:
		return from
	case from.State == bundle.Progressing:
		return kubernetes.Progressing(from.Reason, "%s: waits for its chart: %s", subject(o), from.Message)
	case v.State != bundle.Progressing && !tried(o, from.Revision):
		return kubernetes.Progressing(kubernetes.NotReady, "%s: Flux has released %s, not yet %s", subject(o), cmp.Or(chartOf(o), "nothing"), from.Revision)
	}
	return v
}

// tried reports whether the release's status belongs to a revision of its chart: a version, or the digest of one for a
// chart from an OCIRepository. It returns true if the controller gives no revision.
func tried(o *unstructured.Unstructured, revision string) bool {
	if digest := field(o, "status", "lastAttemptedRevisionDigest"); digest != "" {
		return endsWith(revision, digest)
	}
	version := field(o, "status", "lastAttemptedRevision")
	return version == "" || strings.Contains(revision, "@") || version == revision
}

// passing reports whether a release with this reason waits for something else.
func passing(reason string) bool {
	switch reason {
	case "ArtifactFailed", "DependencyNotReady", "SourceNotReady", "HelmChartNotReady":
		return true
	}
	return false
}

// chartOf returns the version of the deployed chart.
func chartOf(o *unstructured.Unstructured) string {
	history, _, _ := unstructured.NestedSlice(o.Object, "status", "history")
	for _, item := range history {
		if release, _ := item.(map[string]any); release["status"] == "deployed" {
			version, _ := release["chartVersion"].(string)
			return version
		}
	}
	return ""
}
