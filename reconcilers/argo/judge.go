package argo

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fluxcd/pkg/ssa/utils"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
	"github.com/wherry-dev/wherry/reconcilers/rewrite"
)

// Reasons that this package gives beside those of package kubernetes and the types of Argo CD's conditions,
// such as ComparisonError.
const (
	Syncing       = "Syncing"       // progressing: a sync is under way, or about to begin
	Retrying      = "Retrying"      // progressing: one has failed, and Argo CD repeats it
	SyncFailed    = "SyncFailed"    // failed
	OutOfSync     = "OutOfSync"     // drifted, or progressing where Argo CD corrects it
	Degraded      = "Degraded"      // progressing, and failed after the deadline
	Missing       = "Missing"       // progressing: an object does not exist
	Suspended     = "Suspended"     // suspended: Argo CD reports the health Suspended
	OutsideWindow = "OutsideWindow" // pending: the AppProject has sync windows
	NotReconciled = "NotReconciled" // progressing or pending: Argo CD has not looked at it
	// RepoServerUnreachable is pending: the application-controller cannot reach the repo-server.
	RepoServerUnreachable = "RepoServerUnreachable"
	// EndpointUnreachable is pending: the repo-server cannot reach the agent's endpoint, or does not know its CA yet.
	EndpointUnreachable = "EndpointUnreachable"
	// SourceNotPermitted is failed: the AppProject's sourceRepos lack the agent's endpoint.
	SourceNotPermitted = "SourceNotPermitted"
)

func (e engine) judgeObject(ctx context.Context, c kubernetes.Cluster, o *unstructured.Unstructured) (kubernetes.Verdict, error) {
	if o.GroupVersionKind().GroupKind() != applicationKind {
		return kubernetes.JudgePlain(o), nil
	}
	a, err := parse(o)
	if err != nil {
		return kubernetes.Verdict{}, err
	}
	v := e.judgeApplication(ctx, c, a)
	v.Revision, v.Floating, v.Applies = a.running(), a.floating(), true
	return v, nil
}

// running returns the revisions that Argo CD found the cluster Synced with, or synced last.
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

func (e engine) judgeApplication(ctx context.Context, c kubernetes.Cluster, a *application) kubernetes.Verdict {
	trouble := a.troubled()
	switch state := a.Status.OperationState; {
	case !a.Metadata.DeletionTimestamp.IsZero():
		return kubernetes.Progressing(kubernetes.Terminating, "%s is being deleted", a.subject())
	case a.Operation != nil && blocked(state):
		return kubernetes.Verdict{State: bundle.Pending, Reason: OutsideWindow, Message: a.subject() + ": " + state.Message}
	case a.Operation != nil:
		return a.judgeOperation()
	case trouble != "" && a.asked():
		return kubernetes.Progressing(NotReconciled, "%s: Argo CD has not looked again after %s", a.subject(), a.trouble(trouble))
	case trouble != "":
		return a.judgeTrouble(trouble)
	case e.silent(a, e.silence(ctx, c, a)):
		return kubernetes.Verdict{State: bundle.Pending, Reason: NotReconciled, Message: fmt.Sprintf("%s: Argo CD has not looked at it since %s: is its application-controller running?", a.subject(), a.since().UTC().Format(time.RFC3339))}
	case !a.fresh():
		return kubernetes.Progressing(NotReconciled, "%s: Argo CD has not compared what is specified now", a.subject())
	case a.overtaken(e.Now()):
		return kubernetes.Progressing(NotReconciled, "%s: Argo CD has not compared again after the sync that ended at %s", a.subject(), a.Status.OperationState.FinishedAt.UTC().Format(time.RFC3339))
	case a.last().failed():
		return kubernetes.Failed(SyncFailed, "%s: %s", a.subject(), a.last().explain())
	case a.Status.Sync.Status == "OutOfSync":
		return a.judgeDifference(ctx, c)
	case a.Status.Sync.Status != "Synced":
		return kubernetes.Progressing(kubernetes.NotReady, "%s: sync status is %s", a.subject(), a.Status.Sync.Status)
	}
	return e.judgeHealth(ctx, c, a)
}

// errorTypes are the conditions that Argo CD counts as errors, by precedence. Types that end in Warning are no errors.
var errorTypes = []string{"InvalidSpecError", "UnknownError", "ComparisonError", "DeletionError"}

// troubled returns the type of a condition that keeps Argo CD from comparing the present specification; empty if there is
// none. The first two types arise before a comparison, the others belong to one and count only if it is fresh.
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

// judgeTrouble judges by an error condition. A repo-server that is down is not the assignment's fault: gRPC reports
// Unavailable or, if it hangs, DeadlineExceeded.
func (a *application) judgeTrouble(kind string) kubernetes.Verdict {
	message := a.trouble(kind)
	if kind == "ComparisonError" && strings.Contains(message, "code = Unavailable desc = connection error") {
		return kubernetes.Verdict{State: bundle.Pending, Reason: RepoServerUnreachable, Message: a.subject() + ": " + message}
	}
	if a.Metadata.Annotations[rewrite.ServedAnnotation] != "" && unreached.MatchString(message) {
		return kubernetes.Verdict{State: bundle.Pending, Reason: EndpointUnreachable, Message: a.subject() + ": " + message}
	}
	return kubernetes.Failed(kind, "%s: %s", a.subject(), message)
}

// unreached matches Argo CD's messages about an endpoint that cannot be reached. Kubernetes may take a minute to bring a new
// CA into the repo-server's pod.
var unreached = lazyregexp.New(`x509: |tls: |dial tcp|connection (refused|reset)|i/o timeout|no such host|unexpected EOF`)

// blocked reports whether an operation waits for a sync window, which only the text of Argo CD's message tells.
func blocked(state *operationState) bool {
	return state != nil && state.Phase == "Running" && strings.HasPrefix(state.Message, "Sync operation blocked by sync window")
}

func (a *application) judgeOperation() kubernetes.Verdict {
	state := a.Status.OperationState
	switch {
	case state == nil || state.Phase != "Running" && state.Phase != "Terminating":
		return kubernetes.Progressing(Syncing, "%s: Argo CD has been asked for a sync, and has not begun", a.subject())
	case state.FinishedAt != nil: // so it marks one that it will repeat
		return kubernetes.Progressing(Retrying, "%s: %s", a.subject(), state.explain())
	}
	return kubernetes.Progressing(Syncing, "%s: %s%s", a.subject(), cmp.Or(state.Message, state.Phase), a.hint())
}

// hint returns the cause if a sync takes longer than necessary, or "".
func (a *application) hint() string {
	const many = 20 // objects, from which on the delay is noticeable
	if len(a.Status.Resources) < many || slices.Contains(a.Spec.SyncPolicy.SyncOptions, "ApplyOutOfSyncOnly=true") {
		return ""
	}
	return "; all objects are applied again for each change, as its syncOptions lack ApplyOutOfSyncOnly=true"
}

// explain returns Argo CD's message about a sync, with the messages about the objects that failed.
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
	return kubernetes.List(words, ", ")
}

// judgeDifference judges an Application that is compared and OutOfSync while no sync is running.
func (a *application) judgeDifference(ctx context.Context, c kubernetes.Cluster) kubernetes.Verdict {
	differing, onlyToPrune := a.differing()
	message := fmt.Sprintf("%s: OutOfSync with %s: %s", a.subject(), strings.Join(a.newest(), ", "), kubernetes.List(differing, ", "))
	drifted := kubernetes.Verdict{State: bundle.Drifted, Reason: OutOfSync, Message: message}
	switch {
	case a.trouble("SyncError") != "":
		return kubernetes.Failed("SyncError", "%s: %s", a.subject(), a.trouble("SyncError"))
	case !a.automated():
		return drifted
	case a.last() != nil && !a.Spec.SyncPolicy.Automated.SelfHeal:
		return drifted
	case onlyToPrune && !a.Spec.SyncPolicy.Automated.Prune:
		return drifted
	case a.windows(ctx, c):
		return kubernetes.Verdict{State: bundle.Pending, Reason: OutsideWindow, Message: fmt.Sprintf("%s; AppProject %s has sync windows", message, a.project())}
	}
	return kubernetes.Progressing(OutOfSync, "%s", message)
}

// windows reports whether the AppProject may keep Argo CD from beginning a sync by itself, of which Argo CD
// says nothing in the Application.
func (a *application) windows(ctx context.Context, c kubernetes.Cluster) bool {
	project, err := c.Get(ctx, projectKind, types.NamespacedName{Namespace: a.Metadata.Namespace, Name: a.project()})
	if project == nil || err != nil {
		return false // the reason stays unsaid
	}
	windows, _, _ := unstructured.NestedSlice(project.Object, "spec", "syncWindows")
	return len(windows) > 0
}

func subject(o *unstructured.Unstructured) string { return utils.FmtUnstructured(o) }
