package flux

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wherry-dev/wherry/bundle"
)

// judgeRelease judges a HelmRelease. One that Flux has remediated, by a rollback or an uninstall, has
// failed, even though something runs.
func judgeRelease(ctx context.Context, c cluster, o *unstructured.Unstructured) (verdict, error) {
	v, remediated := readiness(o), conditionOf(o, "Remediated")
	switch ready := conditionOf(o, "Ready"); {
	case v.state == bundle.Suspended:
	case remediated.is("True") && remediated.observed == o.GetGeneration():
		v = failed(remediated.reason, "%s: %s", subject(o), remediated.message)
	case v.state == bundle.Failed && passing(ready.reason):
		v.state = bundle.Progressing
	}
	v.revision, v.applies, v.floating = chartOf(o), true, true
	source, err := sourceOf(ctx, c, o, "spec", "chartRef")
	if err != nil {
		return verdict{}, err
	}
	if source != nil {
		v.floating = pinOf(source) == ""
	}
	return v, nil
}

// passing are reasons for which a release waits for something else.
func passing(reason string) bool {
	switch reason {
	case "ArtifactFailed", "DependencyNotReady", "SourceNotReady", "HelmChartNotReady":
		return true
	}
	return false
}

// chartOf is the version of the chart that is deployed.
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
