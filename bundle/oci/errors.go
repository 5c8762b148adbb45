package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"
)

// explain adds the operation and the reference to err, and gives it one of the kinds that callers test for.
func explain(operation, ref string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", operation, ref, classify(err))
}

// DiskError is an error of the disk on which a layout lies: it is full, read-only or damaged. No error of a registry, nor of a
// layout that is copied from, is one.
type DiskError struct{ Err error }

func (e *DiskError) Error() string { return e.Err.Error() }
func (e *DiskError) Unwrap() error { return e.Err }

func onDisk(err error) error {
	if err == nil || errors.As(err, new(*DiskError)) {
		return err
	}
	return &DiskError{err}
}

func classify(err error) error {
	var answer *errcode.ErrorResponse
	var onWire *url.Error
	var network net.Error
	var withheld *WithheldError
	switch {
	case errors.As(err, &withheld):
		return withheld
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.Is(err, ErrUnreachable):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: no answer in time", ErrUnreachable)
	case errors.Is(err, errStalled):
		return fmt.Errorf("%w: %w", ErrUnreachable, errStalled)
	case errors.As(err, &answer):
		return fromStatus(answer)
	case errors.Is(err, errdef.ErrNotFound):
		return errdef.ErrNotFound
	case errors.Is(err, auth.ErrBasicCredentialNotFound):
		return fmt.Errorf("%w: no credentials are stored for it", ErrUnauthorized)
	case errors.As(err, &onWire): // without its method and URL, which the reference implies
		return fmt.Errorf("%w: %w", ErrUnreachable, onWire.Err)
	case errors.As(err, &network), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return err
}

func fromStatus(r *errcode.ErrorResponse) error {
	answered := fmt.Errorf("answered %d %s", r.StatusCode, http.StatusText(r.StatusCode))
	if len(r.Errors) > 0 {
		answered = fmt.Errorf("%w: %w", answered, r.Errors)
	}
	if len(r.Errors) == 0 && r.StatusCode == http.StatusBadRequest && r.URL != nil && r.URL.Scheme == "http" {
		answered = fmt.Errorf("%w: it was asked without TLS, and may want TLS%s", answered, alwaysPlain(r.URL.Hostname()))
	}
	answered = statusError{answered, r}
	switch code := r.StatusCode; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return fmt.Errorf("%w: %w", ErrUnauthorized, answered)
	case code == http.StatusNotFound:
		return fmt.Errorf("%w: %w", errdef.ErrNotFound, answered)
	case code == http.StatusRequestTimeout, code == http.StatusTooManyRequests,
		code >= 500 && code != http.StatusNotImplemented:
		return fmt.Errorf("%w: %w", ErrUnreachable, answered)
	}
	return answered
}

// busyError is a response with a Retry-After header.
type busyError struct {
	error
	after time.Duration
}

func (e *busyError) Unwrap() error { return e.error }

// RetryAfter returns the time after which the registry whose answer err is wants to be asked again; zero if it has not said so. It
// may be any time, so bound it.
func RetryAfter(err error) time.Duration {
	var busy *busyError
	if errors.As(err, &busy) {
		return busy.after
	}
	return 0
}

// alwaysPlain says what to do about a loopback address.
func alwaysPlain(host string) string {
	if IsLoopback(host) {
		return ": loopback addresses are always asked without it, so use this machine's name"
	}
	return ""
}

// statusError is the error of a response, without the method and URL in its text.
type statusError struct {
	text   error
	answer *errcode.ErrorResponse
}

func (e statusError) Error() string { return e.text.Error() }
func (e statusError) Unwrap() error { return e.answer }

// Refused reports whether a registry has refused the request for good, for its content or otherwise.
func Refused(err error) bool { return answeredNo(err) && !errors.Is(err, ErrUnauthorized) }

// answeredNo reports whether the registry refused the request for good.
func answeredNo(err error) bool {
	var answer *errcode.ErrorResponse
	return errors.As(err, &answer) && (answer.StatusCode < 500 || answer.StatusCode == http.StatusNotImplemented)
}

// causeOf returns the cause for which ctx ended, if it did, else err.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
