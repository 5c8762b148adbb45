package reconcilers

import (
	"errors"
	"fmt"

	"github.com/wherry-dev/wherry/bundle"
)

// Fault tells who can fix a failure.
type Fault string

const (
	// FaultRelease means that another release could fix the failure.
	FaultRelease Fault = "release"
	// FaultSite means that only the site can fix the failure: an engine, a program, an account or a
	// permission is missing, or something else is in the way. Every release would fail. Once the site has fixed
	// it, the same release continues by itself.
	FaultSite Fault = "site"
)

// Error is an error whose reason and fault are known. Adapters wrap it like any other error; Known finds it again.
type Error struct {
	// Reason is a code in CamelCase, as in Result.
	Reason string
	// Fault is empty if the cause may pass by itself. The result is Pending then, and Failed otherwise.
	Fault Fault
	Err   error
}

// ReleaseError returns an error that another release could fix.
func ReleaseError(reason, format string, args ...any) error {
	return &Error{Reason: reason, Fault: FaultRelease, Err: fmt.Errorf(format, args...)}
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Result returns the result of a call that ended with e.
func (e *Error) Result() Result {
	state := bundle.Failed
	if e.Fault == "" {
		state = bundle.Pending
	}
	return Result{State: state, Reason: e.Reason, Fault: e.Fault, Message: Clip(e.Error())}
}

// Known returns err with the reason and the fault of the Error that it wraps, or nil if it wraps none.
func Known(err error) *Error {
	var known *Error
	if !errors.As(err, &known) {
		return nil
	}
	return &Error{Reason: known.Reason, Fault: known.Fault, Err: err}
}
