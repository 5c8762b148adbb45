package argo

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/pkg/ssa/utils"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
)

// Reasons that this package gives beside those of package kubernetes and the types of Argo CD's conditions,
// such as ComparisonError.
const (
	Syncing       = "Syncing"       // progressing: a sync is under way, or about to begin
	Retrying      = "Retrying"      // progressing: one has failed, and Argo CD repeats it
	SyncFailed    = "SyncFailed"    // failed
	OutOfSync     = "OutOfSync"     // drifted, or progressing where Argo CD corrects it
	Degraded      = "Degraded"      // progressing, and failed after the deadline
	Missing       = "Missing"       // progressing: an object is not there
	Suspended     = "Suspended"     // suspended: Argo CD says so of the health
	OutsideWindow = "OutsideWindow" // pending: the AppProject has sync windows
	NotReconciled = "NotReconciled" // progressing or pending: Argo CD has not looked at it
	// RepoServerUnreachable is pending: the application-controller cannot reach the repo-server.
	RepoServerUnreachable = "RepoServerUnreachable"
)

// cluster is what judging reads beside the assignment's objects.
type cluster interface {
	// Get returns nil where there is no such object.
	Get(ctx context.Context, kind schema.GroupKind, key types.NamespacedName) (*unstructured.Unstructured, error)
}

// verdict is how one object stands.
type verdict struct {
	state       bundle.State
	reason      string
	message     string
	revision    string // that an Application has brought
	floating    bool
	application bool
}

func (e engine) judge(ctx context.Context, view kubernetes.View) reconcilers.Result {
	var verdicts []verdict
	for _, o := range view.Objects {
		v, err := e.judgeObject(ctx, view, o)
		if err != nil {
			return view.Failed(ctx, err)
		}
		verdicts = append(verdicts, v)
	}
	return sum(verdicts, view.Content.String())
}

func (e engine) judgeObject(ctx context.Context, c cluster, o *unstructured.Unstructured) (verdict, error) {
	if o.GroupVersionKind().GroupKind() != applicationKind {
		return judgePlain(o), nil
	}
	a, err := parse(o)
	if err != nil {
		return verdict{}, err
	}
	v := e.judgeApplication(ctx, c, a)
	v.revision, v.floating, v.application = a.running(), a.floating(), true
	return v, nil
}

// running names what Argo CD has brought: what it found the cluster Synced with, or what it synced last.
// Nothing is named where a sync has failed half-way.
func (a *application) running() string {
	state := a.Status.OperationState
	switch {
	case a.Status.Sync.Status == "Synced":
		return strings.Join(a.newest(), ", ")
	case state == nil || state.SyncResult == nil || state.Phase != "Succeeded":
		return ""
	case a.multiple():
		return strings.Join(state.SyncResult.Revisions, ", ")
	}
	return state.SyncResult.Revision
}

func (e engine) judgeApplication(ctx context.Context, c cluster, a *application) verdict {
	trouble := a.troubled()
	switch state := a.Status.OperationState; {
	case !a.Metadata.DeletionTimestamp.IsZero():
		return progressing(kubernetes.Terminating, "%s is being deleted", a.subject())
	case a.Operation != nil && blocked(state):
		return verdict{state: bundle.Pending, reason: OutsideWindow, message: a.subject() + ": " + state.Message}
	case a.Operation != nil:
		return a.judgeOperation()
	case trouble != "" && a.asked():
		return progressing(NotReconciled, "%s: Argo CD has not looked again after %s", a.subject(), a.trouble(trouble))
	case trouble != "":
		return a.judgeTrouble(trouble)
	case e.silent(a, e.silence(ctx, c, a)):
		return verdict{state: bundle.Pending, reason: NotReconciled, message: fmt.Sprintf("%s: Argo CD has not looked at it since %s: is its application-controller running?", a.subject(), a.since().UTC().Format(time.RFC3339))}
	case !a.fresh():
		return progressing(NotReconciled, "%s: Argo CD has not compared what is specified now", a.subject())
	case a.overtaken(e.Now()):
		return progressing(NotReconciled, "%s: Argo CD has not compared again after the sync that ended at %s", a.subject(), a.Status.OperationState.FinishedAt.UTC().Format(time.RFC3339))
	case a.last().failed():
		return failed(SyncFailed, "%s: %s", a.subject(), a.last().explain())
	case a.Status.Sync.Status == "OutOfSync":
		return a.judgeDifference(ctx, c)
	case a.Status.Sync.Status != "Synced":
		return progressing(kubernetes.NotReady, "%s: sync status is %s", a.subject(), a.Status.Sync.Status)
	}
	return e.judgeHealth(ctx, c, a)
}

// errorTypes are the conditions that Argo CD counts as errors, the first ones first to be named. What ends in
// Warning is none.
var errorTypes = []string{"InvalidSpecError", "UnknownError", "ComparisonError", "DeletionError"}

// troubled returns the type of a condition that keeps Argo CD from comparing what is specified now; empty
// where nothing does. The first two stand before a comparison is made, the others are about one.
func (a *application) troubled() string {
	for i, kind := range errorTypes {
		if a.trouble(kind) != "" && (i < 2 || a.fresh()) {
			return kind
		}
	}
	return ""
}

func (a *application) trouble(kind string) string {
	i := slices.IndexFunc(a.Status.Conditions, func(c condition) bool { return c.Type == kind })
	if i < 0 {
		return ""
	}
	return cmp.Or(a.Status.Conditions[i].Message, kind)
}

// judgeTrouble judges by an error condition. The repo-server that is down is no fault of an assignment's:
// gRPC says Unavailable or, where it hangs, DeadlineExceeded.
func (a *application) judgeTrouble(kind string) verdict {
	message := a.trouble(kind)
	if kind == "ComparisonError" && strings.Contains(message, "code = Unavailable desc = connection error") {
		return verdict{state: bundle.Pending, reason: RepoServerUnreachable, message: a.subject() + ": " + message}
	}
	return failed(kind, "%s: %s", a.subject(), message)
}

// blocked reports whether an operation waits for a sync window, of which Argo CD says it in words alone.
func blocked(state *operationState) bool {
	return state != nil && state.Phase == "Running" && strings.HasPrefix(state.Message, "Sync operation blocked by sync window")
}

func (a *application) judgeOperation() verdict {
	state := a.Status.OperationState
	switch {
	case state == nil || state.Phase != "Running" && state.Phase != "Terminating":
		return progressing(Syncing, "%s: Argo CD has been asked for a sync, and has not begun", a.subject())
	case state.FinishedAt != nil: // so it marks one that it will repeat
		return progressing(Retrying, "%s: %s", a.subject(), state.explain())
	}
	return progressing(Syncing, "%s: %s%s", a.subject(), cmp.Or(state.Message, state.Phase), a.hint())
}

// hint says why a sync takes long, where it need not.
func (a *application) hint() string {
	const many = 20 // objects, from which on it is felt
	if len(a.Status.Resources) < many || slices.Contains(a.Spec.SyncPolicy.SyncOptions, "ApplyOutOfSyncOnly=true") {
		return ""
	}
	return "; all objects are applied again for each change, as its syncOptions lack ApplyOutOfSyncOnly=true"
}

// explain says what Argo CD says of a sync, and of the objects that it failed with.
func (s *operationState) explain() string {
	words := []string{s.Message}
	if s.SyncResult != nil {
		for _, r := range s.SyncResult.Resources {
			bad := r.Status == "SyncFailed" || r.HookPhase == "Failed" || r.HookPhase == "Error"
			if bad && r.Message != "" && !strings.Contains(s.Message, r.Message) {
				words = append(words, r.name()+": "+r.Message)
			}
		}
	}
	return list(words)
}

// judgeDifference judges what is compared, and not as it should be, while no sync is under way.
func (a *application) judgeDifference(ctx context.Context, c cluster) verdict {
	differing, onlyToPrune := a.differing()
	message := fmt.Sprintf("%s: OutOfSync with %s: %s", a.subject(), strings.Join(a.newest(), ", "), list(differing))
	drifted := verdict{state: bundle.Drifted, reason: OutOfSync, message: message}
	switch {
	case a.trouble("SyncError") != "":
		return failed("SyncError", "%s: %s", a.subject(), a.trouble("SyncError"))
	case !a.automated():
		return drifted
	case a.last() != nil && !a.Spec.SyncPolicy.Automated.SelfHeal:
		return drifted
	case onlyToPrune && !a.Spec.SyncPolicy.Automated.Prune:
		return drifted
	case a.windows(ctx, c):
		return verdict{state: bundle.Pending, reason: OutsideWindow, message: fmt.Sprintf("%s; AppProject %s has sync windows", message, a.project())}
	}
	return progressing(OutOfSync, "%s", message)
}

// windows reports whether the AppProject may keep Argo CD from beginning a sync by itself, of which Argo CD
// says nothing in the Application.
func (a *application) windows(ctx context.Context, c cluster) bool {
	project, err := c.Get(ctx, projectKind, types.NamespacedName{Namespace: a.Metadata.Namespace, Name: a.project()})
	if project == nil || err != nil {
		return false // the reason stays unsaid
	}
	windows, _, _ := unstructured.NestedSlice(project.Object, "spec", "syncWindows")
	return len(windows) > 0
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

func subject(o *unstructured.Unstructured) string { return utils.FmtUnstructured(o) }

func failed(reason, format string, args ...any) verdict {
	return verdict{state: bundle.Failed, reason: reason, message: fmt.Sprintf(format, args...)}
}

func progressing(reason, format string, args ...any) verdict {
	return verdict{state: bundle.Progressing, reason: reason, message: fmt.Sprintf(format, args...)}
}
