// Package cli holds what the commands of both binaries share: exit codes, errors with a hint, printing
// of results, and a main that ends cleanly on an interrupt.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes, as diff and kubectl have them.
const (
	OK          = 0
	No          = 1   // the answer is no: differs, findings, not compliant, some assignments failed
	Usage       = 2   // wrong usage, configuration, or input that cannot be parsed
	Failed      = 3   // it failed
	Denied      = 4   // not trusted or not allowed
	NotYet      = 5   // not yet
	Interrupted = 130 // by a signal
)

// Error is an error with an exit code and with what the person can do next.
type Error struct {
	Code int
	Err  error // nil prints nothing: the command has said all
	Hint string
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Exit ends a command with code after it has said everything itself.
func Exit(code int) error { return &Error{Code: code} }

// Fail wraps err with an exit code and a hint, which may be empty.
func Fail(code int, err error, hint string) error { return &Error{Code: code, Err: err, Hint: hint} }

// Usagef is an error of usage.
func Usagef(format string, args ...any) error {
	return &Error{Code: Usage, Err: fmt.Errorf(format, args...)}
}

// Main runs root until it ends or the process is told to stop, prints its error, and returns the exit code.
func Main(root *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return Fail(Usage, err, fmt.Sprintf("see %q", cmd.CommandPath()+" --help"))
	})
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return OK
	}
	code, hint := Failed, ""
	var e *Error
	switch {
	case errors.As(err, &e):
		code, hint = e.Code, e.Hint
		if e.Err == nil {
			return code
		}
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		code = Interrupted
	case isUsage(err):
		code, hint = Usage, fmt.Sprintf("see %q", cmd.CommandPath()+" --help")
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		code, hint, err = Interrupted, "", errors.New("interrupted")
	}
	fmt.Fprintf(root.ErrOrStderr(), "%s: %v\n", root.Name(), err)
	if hint != "" {
		fmt.Fprintf(root.ErrOrStderr(), "hint: %s\n", hint)
	}
	return code
}

// isUsage recognises cobra's own complaints about commands and arguments, which have no type.
func isUsage(err error) bool {
	for _, s := range []string{"unknown command", "unknown flag", "required flag", "arg(s)", "invalid argument"} {
		if strings.Contains(err.Error(), s) {
			return true
		}
	}
	return false
}
