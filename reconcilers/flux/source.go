package flux

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
	"github.com/wherry-dev/wherry/reconcilers/rewrite"
)

// judgeSource judges a source. An unreachable source that has already fetched the revision to which it is pinned is
// complete.
func judgeSource(o *unstructured.Unstructured) kubernetes.Verdict {
	pin := pinOf(o)
	if o.GetKind() == "HelmRepository" {
		return judgeHelmRepository(o)
	}
	v := readiness(o)
	v.Revision, v.Floating = field(o, "status", "artifact", "revision"), pin == ""
	if rewrite.IsServed(o) {
		v.Fault = reconcilers.FaultSite // of a failure: the content is there, and verified
	}
	holds := pin != "" && endsWith(v.Revision, pin)
	switch {
	case v.State == bundle.Failed && holds && conditionOf(o, "Stalled").status != "True":
		v.State, v.Reason, v.Message = bundle.Compliant, "", ""
	case v.State == bundle.Compliant && v.Revision == "", v.State == bundle.Compliant && pin != "" && !holds:
		w := kubernetes.Progressing("NoArtifact", "%s: Flux has not fetched %s", subject(o), pin)
		w.Revision, w.Floating = v.Revision, v.Floating
		return w
	}
	return v
}

// judgeHelmRepository judges a chart repository. One in a registry has neither an index nor a status.
func judgeHelmRepository(o *unstructured.Unstructured) kubernetes.Verdict {
	v := kubernetes.Verdict{State: bundle.Compliant}
	if field(o, "spec", "type") != "oci" {
		v = readiness(o)
	}
	return v
}

// pinOf returns the commit or digest to which a source is pinned; empty if it follows a branch, a tag or a range.
func pinOf(o *unstructured.Unstructured) string {
	switch o.GetKind() {
	case "GitRepository":
		return field(o, "spec", "ref", "commit")
	case "OCIRepository":
		return field(o, "spec", "ref", "digest")
	}
	return ""
}

// endsWith reports whether a revision, such as main@sha1:b3f or latest@sha256:9c1, is that of a commit or
// digest.
func endsWith(revision, pin string) bool {
	_, after, found := strings.Cut(revision, "@")
	if !found {
		after = revision
	}
	_, encoded, _ := strings.Cut(after, ":")
	return pin != "" && (after == pin || encoded == pin)
}
