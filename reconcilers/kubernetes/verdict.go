package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/pkg/ssa/utils"
	"github.com/opencontainers/go-digest"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// Cluster reads objects beside the assignment's own, for judging. View is one.
type Cluster interface {
	// Get returns nil where there is no such object.
	Get(ctx context.Context, kind schema.GroupKind, key types.NamespacedName) (*unstructured.Unstructured, error)
}

// Verdict is the state of one object.
type Verdict struct {
	State    bundle.State
	Reason   string
	Fault    reconcilers.Fault // of a failure; empty is reconcilers.FaultRelease
	Message  string
	Revision string // that the object has brought or, of a source, holds
	Floating bool
	Applies  bool // the revision is one that runs, not just one that was fetched
}

// Failed is the verdict on an object that has failed.
func Failed(reason, format string, args ...any) Verdict {
	return Verdict{State: bundle.Failed, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Progressing is the verdict on an object that is on its way.
func Progressing(reason, format string, args ...any) Verdict {
	return Verdict{State: bundle.Progressing, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// JudgePlain judges an object by kstatus.
func JudgePlain(o *unstructured.Unstructured) Verdict {
	s, err := status.Compute(o)
	switch {
	case err != nil:
		return Progressing(NotReady, "%s: %v", utils.FmtUnstructured(o), err)
	case s.Status == status.FailedStatus:
		return Failed(Unhealthy, "%s: %s", utils.FmtUnstructured(o), s.Message)
	case s.Status != status.CurrentStatus:
		return Progressing(NotReady, "%s: %s", utils.FmtUnstructured(o), s.Message)
	}
	return Verdict{State: bundle.Compliant}
}

// JudgeAll combines the verdicts of judge on all objects into a result. Its reason is that of the first object in the
// worst state. If no object applies a revision, the content's digest is the revision.
func JudgeAll(ctx context.Context, c Cluster, objects []*unstructured.Unstructured, content digest.Digest,
	judge func(context.Context, Cluster, *unstructured.Unstructured) (Verdict, error),
) (reconcilers.Result, error) {
	res := reconcilers.Result{State: bundle.Compliant}
	var verdicts []Verdict
	var revisions []string
	applies := false
	for _, o := range objects {
		v, err := judge(ctx, c, o)
		if err != nil {
			return reconcilers.Result{}, err
		}
		verdicts = append(verdicts, v)
		res.Floating = res.Floating || v.Floating
		applies = applies || v.Applies
		if v.Applies && v.Revision != "" && !slices.Contains(revisions, v.Revision) {
			revisions = append(revisions, v.Revision)
		}
	}
	slices.Sort(revisions)
	if res.Revision = List(revisions, ", "); !applies {
		res.Revision = content.String()
	}
	if res.State, res.Reason, res.Message = worst(verdicts); res.State == bundle.Failed {
		res.Fault = faultOf(verdicts)
	}
	return res, nil
}

// faultOf returns the site's fault only if no failure is the release's.
func faultOf(verdicts []Verdict) reconcilers.Fault {
	for _, v := range verdicts {
		if v.State == bundle.Failed && v.Fault != reconcilers.FaultSite {
			return reconcilers.FaultRelease
		}
	}
	return reconcilers.FaultSite
}

// severity orders states: an assignment stands as the worst of its objects.
var severity = [...]bundle.State{bundle.Failed, bundle.Drifted, bundle.Pending, bundle.Progressing, bundle.Suspended}

// worst is the worst state of all, with the reason of the first object in it and the messages of all.
func worst(verdicts []Verdict) (state bundle.State, reason, message string) {
	for _, state := range severity {
		var messages []string
		for _, v := range verdicts {
			if v.State == state && len(messages) == 0 {
				reason = v.Reason
			}
			if v.State == state && !slices.Contains(messages, v.Message) {
				messages = append(messages, v.Message)
			}
		}
		if len(messages) > 0 {
			return state, reason, reconcilers.Clip(strings.Join(messages, "; "))
		}
	}
	return bundle.Compliant, "", ""
}

// List joins the first few of items.
func List(items []string, separator string) string {
	const most = 5
	if len(items) > most {
		items = append(slices.Clone(items[:most]), fmt.Sprintf("and %d more", len(items)-most))
	}
	return reconcilers.Clip(strings.Join(items, separator))
}
