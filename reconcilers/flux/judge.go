package flux

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/pkg/ssa/utils"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
)

// cluster is what judging reads beside the assignment's objects.
type cluster interface {
	// Get returns nil where there is no such object.
	Get(ctx context.Context, kind schema.GroupKind, key types.NamespacedName) (*unstructured.Unstructured, error)
}

// verdict is how one object stands.
type verdict struct {
	state    bundle.State
	reason   string
	message  string
	revision string // that the object has applied or, of a source, holds
	floating bool
	applies  bool // the revision is one that runs, not just one that was fetched
}

func judge(ctx context.Context, view kubernetes.View) reconcilers.Result {
	var verdicts []verdict
	for _, o := range view.Objects {
		v, err := judgeObject(ctx, view, o)
		if err != nil {
			return view.Failed(ctx, err)
		}
		verdicts = append(verdicts, v)
	}
	return sum(verdicts, view.Content.String())
}

func judgeObject(ctx context.Context, c cluster, o *unstructured.Unstructured) (verdict, error) {
	switch kind := o.GroupVersionKind().GroupKind(); {
	case kind.Group == sourceGroup:
		return judgeSource(o), nil
	case kind == schema.GroupKind{Group: kustomizeGroup, Kind: "Kustomization"}:
		return judgeKustomization(ctx, c, o)
	case kind == schema.GroupKind{Group: helmGroup, Kind: "HelmRelease"}:
		return judgeRelease(ctx, c, o)
	}
	return judgePlain(o), nil
}

// judgePlain judges any other object by kstatus.
func judgePlain(o *unstructured.Unstructured) verdict {
	s, err := status.Compute(o)
	switch {
	case err != nil:
		return progressing(kubernetes.NotReady, "%s: %v", subject(o), err)
	case s.Status == status.FailedStatus:
		return failed(kubernetes.Unhealthy, "%s: %s", subject(o), s.Message)
	case s.Status != status.CurrentStatus:
		return progressing(kubernetes.NotReady, "%s: %s", subject(o), s.Message)
	}
	return verdict{state: bundle.Compliant}
}

// severity orders states: an assignment stands as the worst of its objects.
var severity = [...]bundle.State{bundle.Failed, bundle.Progressing, bundle.Suspended}

// sum makes a result of the verdicts. Its reason is that of the first object in the worst state. Where
// nothing applies a revision, the content is what runs.
func sum(verdicts []verdict, content string) reconcilers.Result {
	res := reconcilers.Result{State: bundle.Compliant}
	for _, state := range severity {
		i := slices.IndexFunc(verdicts, func(v verdict) bool { return v.state == state })
		if i < 0 {
			continue
		}
		var messages []string
		for _, v := range verdicts {
			if v.state == state && !slices.Contains(messages, v.message) {
				messages = append(messages, v.message)
			}
		}
		res.State, res.Reason, res.Message = state, verdicts[i].reason, reconcilers.Clip(strings.Join(messages, "; "))
		break
	}
	var revisions []string
	applies := false
	for _, v := range verdicts {
		res.Floating = res.Floating || v.floating
		applies = applies || v.applies
		if v.applies && v.revision != "" && !slices.Contains(revisions, v.revision) {
			revisions = append(revisions, v.revision)
		}
	}
	res.Revision = join(revisions)
	if !applies {
		res.Revision = content
	}
	return res
}

// join lists revisions in a stable order, the first few of them.
func join(revisions []string) string {
	const most = 3
	slices.Sort(revisions)
	if len(revisions) > most {
		revisions = append(revisions[:most:most], fmt.Sprintf("and %d more", len(revisions)-most))
	}
	return strings.Join(revisions, ", ")
}

func subject(o *unstructured.Unstructured) string { return utils.FmtUnstructured(o) }

func failed(reason, format string, args ...any) verdict {
	return verdict{state: bundle.Failed, reason: reason, message: fmt.Sprintf(format, args...)}
}

func progressing(reason, format string, args ...any) verdict {
	return verdict{state: bundle.Progressing, reason: reason, message: fmt.Sprintf(format, args...)}
}
