// Package usage has the error of a request that cannot be carried out as it was made.
//
// All packages of the publisher return [*Error] for it, so that one test by [errors.As] tells a wrong option from a
// place that failed.
package usage

import "fmt"

// Error is an error about the options of a call: nothing was written, and the same call will fail again.
type Error struct{ Err error }

// Errorf returns an [*Error] of that text; see [fmt.Errorf].
func Errorf(format string, args ...any) error { return &Error{fmt.Errorf(format, args...)} }

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }
