package zarf

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/wherry-dev/wherry/reconcilers"
)

// Reasons that this package gives, beside those that every reconciler has.
const (
	// Failed: these need another release, or somebody who changes the machine or the cluster.
	InvalidPackage    = "InvalidPackage"    // the files hold no package that can be deployed
	CreateFailed      = "CreateFailed"      // zarf cannot make a package of the files
	DeployFailed      = "DeployFailed"      // with zarf's own words
	RemoveFailed      = "RemoveFailed"      // with zarf's own words
	VerificationError = "VerificationError" // not signed, or by nobody who is trusted
	Conflict          = "Conflict"          // the package, or a field of its objects, is somebody else's
	ZarfNotFound      = "ZarfNotFound"      // no such program
	ZarfTooOld        = "ZarfTooOld"        // before MinVersion
	NotInitialized    = "NotInitialized"    // images need what "zarf init" brings
	NoCluster         = "NoCluster"         // the agent knows none, and the package is for one
	DeadlineExceeded  = "DeadlineExceeded"  // zarf did not end in time, and was killed
	Forbidden         = "Forbidden"         // the agent lacks a permission
	Unhealthy         = "Unhealthy"         // deployed, and an object reports that it has failed

	// Pending: these may pass.
	NoNodeOrPod          = "NoNodeOrPod" // zarf asks for a node and a pod that runs, and would wait 30 s
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

// reasonError is an error of which the reason is known.
type reasonError struct {
	reason  string
	waiting bool // trying again can help
	err     error
}

func (e *reasonError) Error() string { return e.err.Error() }
func (e *reasonError) Unwrap() error { return e.err }

func failure(reason, format string, args ...any) error {
	return &reasonError{reason: reason, err: fmt.Errorf(format, args...)}
}

func waiting(reason, format string, args ...any) error {
	return &reasonError{reason: reason, waiting: true, err: fmt.Errorf(format, args...)}
}

// local is an error of this machine.
func local(err error) error { return &reasonError{reason: LocalFailure, waiting: true, err: err} }

// failed turns an error into a result.
func failed(ctx context.Context, err error) reconcilers.Result {
	if ctx.Err() != nil {
		return reconcilers.Interrupted(fmt.Errorf("%w: %w", ctx.Err(), err))
	}
	reason, wait := classify(err)
	if wait {
		return reconcilers.Waiting(reason, err)
	}
	return reconcilers.Failure(reason, err)
}

// classify returns the reason of err, and whether trying again can help. What has none comes from a
// request to the API server.
func classify(err error) (reason string, wait bool) {
	var known *reasonError
	var answer apierrors.APIStatus
	switch {
	case errors.As(err, &known):
		return known.reason, known.waiting
	case errors.Is(err, exec.ErrNotFound):
		return ZarfNotFound, false
	case apierrors.IsForbidden(err):
		return Forbidden, false
	case apierrors.IsUnauthorized(err):
		return Unauthorized, true
	case errors.As(err, &answer):
		return APIServerError, true
	}
	return APIServerUnreachable, true
}
