package cli

import (
	"errors"
	"strings"
)

// Kind is a row of a table of errors. It gives errors of one kind their exit code and hint, and returns nil for others.
type Kind func(err error) *Error

// Is returns the row of errors that wrap target.
func Is(target error, code int, hint string) Kind {
	return func(err error) *Error {
		if !errors.Is(err, target) {
			return nil
		}
		return &Error{Code: code, Err: err, Hint: hint}
	}
}

// As returns the row of errors of type E.
func As[E error](code int, hint string) Kind {
	return AsBy(func(E) (int, string) { return code, hint })
}

// AsBy returns the row of errors of type E. The function by returns the exit code and the hint of one; with the code zero, the
// next rows are asked.
func AsBy[E error](by func(E) (code int, hint string)) Kind {
	return func(err error) *Error {
		var e E
		if !errors.As(err, &e) {
			return nil
		}
		if code, hint := by(e); code != OK {
			return &Error{Code: code, Err: err, Hint: hint}
		}
		return nil
	}
}

// Kinds is a table of errors. The first row that knows an error counts.
type Kinds []Kind

// Of returns err with the exit code and the hint of its kind. An error of an unknown kind and one that has a code stay as they
// are. The values are pairs: what hints have for a value, such as {host}, and the value.
func (k Kinds) Of(err error, values ...string) error {
	if err == nil || HasCode(err) {
		return err
	}
	for _, kind := range k {
		if e := kind(err); e != nil {
			e.Hint = strings.NewReplacer(values...).Replace(e.Hint)
			return e
		}
	}
	return err
}

// HasCode reports whether err has an exit code.
func HasCode(err error) bool { return errors.As(err, new(*Error)) }

// Otherwise gives err a code and a hint if it has none.
func Otherwise(err error, code int, hint string) error {
	if err == nil || HasCode(err) {
		return err
	}
	return Fail(code, err, hint)
}
