package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"

	"github.com/wherry-dev/wherry/publisher/meter"
)

// plainError is an error in words of ours.
type plainError struct {
	text string
	err  error
}

func (e *plainError) Error() string { return e.text }
func (e *plainError) Unwrap() error { return e.err }

// Explain returns an error of a request in words that hold no byte of the answer: a server that a team names may be one that
// only the publisher can reach. Errors that wrap one of known keep the text of that link, which is the caller's own. What is not
// recognized is "its answer cannot be understood".
func Explain(err error, known ...error) error {
	if err == nil {
		return nil
	}
	return &plainError{textOf(err, known), err}
}

func textOf(err error, known []error) string {
	var already *plainError
	if errors.As(err, &already) {
		return already.text
	}
	for _, k := range append(known, errLoginWithoutTLS, meter.ErrExceeded) {
		if errors.Is(err, k) {
			return linkTo(err, k).Error()
		}
	}
	var (
		refused *RefusedError
		name    *net.DNSError
		system  *os.SyscallError
		file    *fs.PathError
		network net.Error
	)
	switch {
	case errors.As(err, &refused):
		return refused.Error()
	case errors.Is(err, context.Canceled):
		return context.Canceled.Error()
	case errors.As(err, &name) && name.IsNotFound:
		return "no such host"
	case errors.As(err, &name):
		return "the name of its host cannot be resolved now"
	case errors.As(err, &system):
		return system.Error()
	case errors.As(err, &file):
		return file.Err.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "no answer in time"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the answer ends too early"
	}
	return orUnclear(certificateProblem(err))
}

// linkTo returns the last link of err's chain before k, or k.
func linkTo(err, k error) error {
	next := errors.Unwrap(err)
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		if i := slices.IndexFunc(several.Unwrap(), func(e error) bool { return errors.Is(e, k) }); i >= 0 {
			return linkTo(several.Unwrap()[i], k)
		}
	}
	switch {
	case err == k, next == k:
		return err
	case next == nil: // err is k by its method Is
		return k
	}
	return linkTo(next, k)
}

// certificateProblem returns what is wrong with TLS; empty if nothing is.
func certificateProblem(err error) string {
	var (
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
		record    tls.RecordHeaderError
		verified  *tls.CertificateVerificationError
		alert     tls.AlertError
	)
	switch {
	case errors.As(err, &authority):
		return "its certificate is signed by an unknown authority"
	case errors.As(err, &name):
		return "its certificate is for another name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "its certificate has expired or is not yet valid"
	case errors.As(err, &verified), errors.As(err, &invalid):
		return "its certificate is not valid"
	case errors.As(err, &record), slices.Contains(plainHTTP, rootText(err)):
		return "it does not speak TLS"
	case errors.As(err, &alert):
		return "it ends the TLS handshake"
	}
	return ""
}

// plainHTTP is net/http's text for an answer without TLS.
var plainHTTP = []string{"http: server gave HTTP response to HTTPS client"}

func rootText(err error) string {
	for next := err; next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err.Error()
}

func orUnclear(text string) string {
	if text == "" {
		return "its answer cannot be understood"
	}
	return text
}
