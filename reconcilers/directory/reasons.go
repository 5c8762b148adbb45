package directory

import (
	"context"
	"errors"
	"io/fs"
	"syscall"

	"github.com/wherry-dev/wherry/reconcilers"
)

// Reasons that this package gives, beside those that every reconciler has.
const (
	Fetching            = "Fetching"            // pulling: the message says how far it is
	NotFetched          = "NotFetched"          // pending: Apply was not called yet
	Differs             = "Differs"             // drifted: files were added, changed or deleted
	Missing             = "Missing"             // drifted: the folder is gone
	InvalidAssignment   = "InvalidAssignment"   // failed: a name or a file that no folder can be made of
	InvalidArtifact     = "InvalidArtifact"     // failed: an artifact that no files can be made of
	ArtifactMismatch    = "ArtifactMismatch"    // failed: the registry serves something else
	ArtifactNotFound    = "ArtifactNotFound"    // failed
	ArtifactForbidden   = "ArtifactForbidden"   // failed: the registry wants a login, or another one
	ArtifactUnreachable = "ArtifactUnreachable" // pending
	NotOurs             = "NotOurs"             // failed: what somebody else has put there has the folder's name
	NotWritable         = "NotWritable"         // failed: permissions, or a read-only file system
	DiskFull            = "DiskFull"            // pending
	DiskError           = "DiskError"           // pending
)

// reasonError is an error of which the reason, and so the state, is known.
type reasonError struct {
	reason string
	err    error
}

func (e *reasonError) Error() string { return e.err.Error() }
func (e *reasonError) Unwrap() error { return e.err }

// failed turns an error into a result. What the next attempt may find mended is pending.
func failed(err error) reconcilers.Result {
	var known *reasonError
	var remote *linkError
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return reconcilers.Interrupted(err)
	case errors.As(err, &known) && known.reason == DiskFull:
		return reconcilers.Waiting(DiskFull, err)
	case errors.As(err, &remote):
		return remote.result(err)
	case errors.As(err, &known):
		return reconcilers.Failure(known.reason, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return reconcilers.Failure(NotWritable, err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return reconcilers.Waiting(DiskFull, err)
	}
	return reconcilers.Waiting(DiskError, err)
}
