package zarf

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/internal/program"
)

// Reasons that this package gives, beside those that every reconciler has.
const (
	// Failed: these need another release, or a change of the machine or the cluster.
	InvalidPackage    = "InvalidPackage"    // the files hold no package that can be deployed
	CreateFailed      = "CreateFailed"      // zarf cannot make a package of the files
	DeployFailed      = "DeployFailed"      // with zarf's message
	RemoveFailed      = "RemoveFailed"      // with zarf's message
	VerificationError = "VerificationError" // not signed with a trusted key
	Conflict          = "Conflict"          // the package, or a field of its objects, is somebody else's
	ZarfNotFound      = "ZarfNotFound"      // no such program
	ZarfTooOld        = "ZarfTooOld"        // before MinVersion
	NotInitialized    = "NotInitialized"    // the package's images or repositories need "zarf init"
	NoCluster         = "NoCluster"         // the package needs a cluster, and the agent has none
	DeadlineExceeded  = "DeadlineExceeded"  // zarf did not end in time, and was killed
	Forbidden         = "Forbidden"         // the agent lacks a permission
	Unhealthy         = "Unhealthy"         // deployed, and an object reports that it has failed

	// Pending: these may pass.
	NoNodeOrPod          = "NoNodeOrPod" // zarf requires a node and a running pod, and would wait 30 s
	NamespaceTerminating = "NamespaceTerminating"
	APIServerUnreachable = "APIServerUnreachable"
	APIServerError       = "APIServerError"
	Unauthorized         = "Unauthorized"
	LocalFailure         = "LocalFailure" // the agent's own disk
	NotApplied           = "NotApplied"   // by Observe: this content was not deployed yet

	// Progressing.
	Deploying = "Deploying"
	Removing  = "Removing"
	NotReady  = "NotReady" // deployed, and an object is no longer, or not yet, current

	// Drifted.
	Differs = "Differs"
	Missing = "Missing"
)

// faultOf returns the fault of a failure with the reason.
func faultOf(reason string) reconcilers.Fault {
	switch reason {
	case NoCluster, NotInitialized, ZarfNotFound, ZarfTooOld:
		return reconcilers.FaultSite
	}
	return reconcilers.FaultRelease
}

// failure is an error after which trying again does not help.
func failure(reason, format string, args ...any) error {
	return &reconcilers.Error{Reason: reason, Fault: faultOf(reason), Err: fmt.Errorf(format, args...)}
}

// waiting is an error whose cause may pass.
func waiting(reason, format string, args ...any) error {
	return &reconcilers.Error{Reason: reason, Err: fmt.Errorf(format, args...)}
}

// local is an error of this machine.
func local(err error) error { return &reconcilers.Error{Reason: LocalFailure, Err: err} }

// failed returns the result of a call that ended with err.
func failed(ctx context.Context, err error) reconcilers.Result {
	if ctx.Err() != nil {
		return reconcilers.Interrupted(fmt.Errorf("%w: %w", ctx.Err(), err))
	}
	if errors.Is(err, program.ErrClosed) {
		return reconcilers.Interrupted(err)
	}
	return classify(err).Result()
}

// classify returns err with its reason and its fault. An error without a known reason comes from a request to the
// API server.
func classify(err error) *reconcilers.Error {
	if known := reconcilers.Known(err); known != nil {
		return known
	}
	e := &reconcilers.Error{Err: err}
	var answer apierrors.APIStatus
	switch {
	case errors.Is(err, exec.ErrNotFound):
		e.Reason, e.Fault = ZarfNotFound, faultOf(ZarfNotFound)
	case apierrors.IsForbidden(err):
		e.Reason, e.Fault = Forbidden, faultOf(Forbidden)
	case apierrors.IsUnauthorized(err):
		e.Reason = Unauthorized
	case errors.As(err, &answer):
		e.Reason = APIServerError
	default:
		e.Reason = APIServerUnreachable
	}
	return e
}
