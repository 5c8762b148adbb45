package config

import "fmt"

// Kind is a kind of Error, by which a program chooses its exit code.
type Kind int

// The kinds.
const (
	Invalid  Kind = iota // the configuration is wrong, or a file that it names cannot be read
	Refused              // a document that it names is not trusted
	Unusable             // the state folder cannot be used
)

// Error is an error of a configuration, with what a person can do about it.
type Error struct {
	Kind Kind
	Err  error
	Hint string // may be empty
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

func invalid(err error, hint string) error { return &Error{Invalid, err, hint} }

func invalidf(format string, args ...any) error { return invalid(fmt.Errorf(format, args...), "") }

func refused(err error, hint string) error { return &Error{Refused, err, hint} }
