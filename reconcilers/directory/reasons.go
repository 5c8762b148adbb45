package directory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/wherry-dev/wherry/reconcilers"
)

// Reasons that this package gives, beside those that every reconciler has.
const (
	Fetching            = "Fetching"            // pulling: the message gives the progress
	NotFetched          = "NotFetched"          // pending: Apply was not called yet
	Differs             = "Differs"             // drifted: files were added, changed or deleted
	Missing             = "Missing"             // drifted: the folder is gone
	InvalidAssignment   = "InvalidAssignment"   // failed: a name or a file that no folder can be made of
	InvalidArtifact     = "InvalidArtifact"     // failed: an artifact that no files can be made of
	ArtifactMismatch    = "ArtifactMismatch"    // failed: the registry serves something else
	ArtifactNotFound    = "ArtifactNotFound"    // failed
	ArtifactForbidden   = "ArtifactForbidden"   // failed: the registry wants a login, or another one
	ArtifactUnreachable = "ArtifactUnreachable" // pending
	NotOurs             = "NotOurs"             // failed: somebody else's files have the folder's name
	NotWritable         = "NotWritable"         // failed: permissions, or a read-only file system
	DiskFull            = "DiskFull"            // pending
	DiskError           = "DiskError"           // pending
)

// notOurs is the error of a name in the root that somebody else's files have.
func notOurs(format string, args ...any) error {
	return &reconcilers.Error{Reason: NotOurs, Fault: reconcilers.FaultSite, Err: fmt.Errorf(format, args...)}
}

// failed returns the result of a call that ended with err. It is pending if the next attempt may succeed.
func (r *Reconciler) failed(err error) reconcilers.Result {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return reconcilers.Interrupted(err)
	}
	e := classify(err)
	switch {
	case e.Reason != NotWritable:
	case errors.Is(err, syscall.EROFS):
		e.Err = fmt.Errorf("%s is read-only: add ReadWritePaths=%s to the agent's unit, or mount it for writing: %w", r.root, r.root, e.Err)
	default:
		e.Err = fmt.Errorf("the agent's user may not write in %s: give it the folder with chown: %w", r.root, e.Err)
	}
	return e.Result()
}

// classify returns err with its reason and its fault.
func classify(err error) *reconcilers.Error {
	e := &reconcilers.Error{Err: err}
	known := reconcilers.Known(err)
	var remote *linkError
	switch {
	case known != nil && known.Reason == DiskFull:
		return known
	case errors.As(err, &remote):
		e.Reason, e.Fault = remote.classify()
	case known != nil:
		return known
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		e.Reason, e.Fault = NotWritable, reconcilers.FaultSite
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Reason = DiskFull
	default:
		e.Reason = DiskError
	}
	return e
}
