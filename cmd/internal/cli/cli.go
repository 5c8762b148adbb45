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
	"github.com/spf13/pflag"

	"github.com/wherry-dev/wherry/bundle/show"
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

// DamagedHint says what to do about a file that came by a medium and is damaged.
const DamagedHint = "copy it again from the original, or take another medium; sha256sum shows the same for both if the copy is good"

// Exit ends a command with code after it has said everything itself.
func Exit(code int) error { return &Error{Code: code} }

// Fail wraps err with an exit code and a hint, which may be empty.
func Fail(code int, err error, hint string) error { return &Error{Code: code, Err: err, Hint: hint} }

// Usagef is an error of usage.
func Usagef(format string, args ...any) error {
	return &Error{Code: Usage, Err: fmt.Errorf(format, args...)}
}

// Main runs root until it ends or a signal stops the process, prints its error, and returns the exit code. Kinds is the table of
// the errors that commands return as they are.
func Main(root *cobra.Command, kinds Kinds) int {
	ctx, stop := endAtSecondSignal()
	defer stop()
	stdout, stderr := show.NewWriter(root.OutOrStdout()), show.NewWriter(root.ErrOrStderr())
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return wrongFlag(cmd, err)
	})
	root.Version = Version() // for --version, which people try first
	if root.HasSubCommands() {
		root.InitDefaultCompletionCmd() // cobra would do so later, and have it accept whatever follows
	}
	checkArguments(root)
	checkRepeats(root)
	checkHelp(root)
	root.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
		if cmd.Name() == cobra.ShellCompRequestCmd {
			unquoteFlags(root)
		}
	}
	cmd, err := root.ExecuteContextC(ctx)
	defer stderr.Close()
	if lost := stdout.Close(); lost != nil && (err == nil || exitCode(err) <= No) {
		err = lost // not every print of a command is looked at, and none of cobra's
	}
	if err == nil {
		return OK
	}
	e := classify(kinds.Of(err), ctx.Err() != nil, cmd)
	if e.Err != nil {
		fmt.Fprintf(stderr, "%s: %s\n", root.Name(), Indented(strings.TrimSpace(e.Err.Error())))
	}
	if e.Hint != "" {
		fmt.Fprintf(stderr, "hint: %s\n", Indented(e.Hint))
	}
	return e.Code
}

// Indented sets the further lines of a text apart, so that none of them can be taken for a message of its own.
func Indented(text string) string { return strings.ReplaceAll(text, "\n", "\n  ") }

// exitCode is the code that err carries, and Failed where it carries none.
func exitCode(err error) int {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Code
	}
	return Failed
}

// endAtSecondSignal returns a context that the first SIGINT or SIGTERM ends. The second one ends the process at once, even
// if it hangs at the end of the context, or was started with the signal ignored, as a shell starts background jobs.
func endAtSecondSignal() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals, done := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for range 2 {
			select {
			case <-signals:
			case <-done:
				return
			}
			if ctx.Err() != nil {
				os.Exit(Interrupted)
			}
			cancel()
		}
	}()
	return ctx, func() { signal.Stop(signals); close(done); cancel() }
}

// classify gives err the exit code and hint that it lacks.
func classify(err error, interrupted bool, cmd *cobra.Command) *Error {
	var e *Error
	switch {
	case interrupted && errors.Is(err, context.Canceled):
		return &Error{Code: Interrupted, Err: errors.New("interrupted")}
	case errors.As(err, &e):
		return e
	}
	if wrong, ok := wrongUsage(err); ok {
		return &Error{Code: Usage, Err: wrong, Hint: usageHint(cmd)}
	}
	return &Error{Code: Failed, Err: err}
}

// unquoteFlags takes out of what flags say the quotes by which help knows the name of the value: shells show
// such a text as it is.
func unquoteFlags(cmd *cobra.Command) {
	for _, flags := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
		flags.VisitAll(func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) })
	}
	for _, sub := range cmd.Commands() {
		unquoteFlags(sub)
	}
}
