package forge

import (
	"errors"
	"fmt"
	"time"
)

// The kinds of failure that callers can tell apart with errors.Is.
var (
	// ErrUnknownKind is returned for a host whose name does not say which forge it is.
	ErrUnknownKind = errors.New("unknown kind of forge")
	// ErrUnauthorized means that the forge does not know the token, or wants one.
	ErrUnauthorized = errors.New("unauthorized")
	// ErrForbidden means that the token may not do this.
	ErrForbidden = errors.New("forbidden")
	// ErrNotFound means that there is no such repository, change request or commit, or that the token may not see it.
	ErrNotFound = errors.New("not found")
	// ErrConflict means that the forge's state is not what the caller knew: the change request was closed, or there is one.
	ErrConflict = errors.New("conflict")
	// ErrRefused means that the forge understood the request and does not accept it.
	ErrRefused = errors.New("refused")
	// ErrRateLimited means that the forge wants fewer requests; [Error.Until] says from when on it takes more.
	ErrRateLimited = errors.New("rate limited")
	// ErrUnavailable means that the forge failed, could not be reached, or gave half an answer. It may work later.
	ErrUnavailable = errors.New("unavailable")
)

// Error is the answer of a forge that refused a request or failed.
type Error struct {
	// Err is one of the errors above.
	Err error
	// Status is the HTTP status; zero where no answer came.
	Status int
	// Message is the forge's text, as one printable line without tokens. It may be empty.
	Message string
	// Until is the time at which a forge that limits requests takes more of them; zero where it does not say.
	Until time.Time

	after time.Duration // the same from the answer on
	named bool          // the answer named that time
}

func (e *Error) Error() string {
	text := e.Err.Error()
	if e.Status != 0 {
		text += fmt.Sprintf(" (%d)", e.Status)
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// Unwrap returns the kind of the error.
func (e *Error) Unwrap() error { return e.Err }
