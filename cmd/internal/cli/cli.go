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
	context.AfterFunc(ctx, stop) // a second signal ends the process at once, where the first waits for somebody
	stdout, stderr := Safe(root.OutOrStdout()), Safe(root.ErrOrStderr())
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return Fail(Usage, err, helpHint(cmd))
	})
	root.Version = Version() // for --version, which people try first
	if root.HasSubCommands() {
		root.InitDefaultCompletionCmd() // cobra would do so later, and have it accept whatever follows
	}
	checkArguments(root)
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
	e := classify(err, ctx.Err() != nil, cmd)
	if e.Err != nil {
		fmt.Fprintf(stderr, "%s: %s\n", root.Name(), Indented(e.Err.Error()))
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

// classify gives err the exit code and hint that it lacks.
func classify(err error, interrupted bool, cmd *cobra.Command) *Error {
	var e *Error
	switch {
	case interrupted && errors.Is(err, context.Canceled):
		return &Error{Code: Interrupted, Err: errors.New("interrupted")}
	case errors.As(err, &e):
		return e
	case isUsage(err):
		return &Error{Code: Usage, Err: err, Hint: helpHint(cmd)}
	}
	return &Error{Code: Failed, Err: err}
}

func helpHint(cmd *cobra.Command) string { return fmt.Sprintf("see %q", cmd.CommandPath()+" --help") }

// checkArguments has commands that refuse their arguments say which they take. Those that only group others refuse
// a name that they do not know, where cobra would print their help and succeed.
func checkArguments(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		checkArguments(sub)
	}
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args = cobra.NoArgs
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return wrongArguments(cmd, args, err)
			}
			return nil
		}
	}
}

// checkHelp has the command help refuse what is no command, as that itself would be refused: cobra would print the
// help of what stands above it, and succeed.
func checkHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, help := range root.Commands() {
		if help.Name() != "help" {
			continue
		}
		help.Args = func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err == nil && len(rest) > 0 && cmd.HasSubCommands() && cmd.Args != nil {
				err = cmd.Args(cmd, rest)
			}
			return err
		}
	}
}

// maxDistance is how many letters a mistyped name of a command may be away from the right one.
const maxDistance = 2

func wrongArguments(cmd *cobra.Command, args []string, err error) error {
	if len(args) > 0 && cmd.HasSubCommands() {
		hint := helpHint(cmd)
		cmd.SuggestionsMinimumDistance = maxDistance
		if similar := cmd.SuggestionsFor(args[0]); args[0] != "" && len(similar) > 0 { // all begin with nothing
			hint = fmt.Sprintf("did you mean %s? Else %s", strings.Join(similar, " or "), hint)
		}
		return Fail(Usage, err, hint)
	}
	if strings.HasPrefix(err.Error(), "unknown command") { // cobra takes it for one
		err = fmt.Errorf("unexpected argument %q", args[0])
	}
	return Fail(Usage, err, strings.TrimSuffix(cmd.UseLine(), " [flags]")+"; "+helpHint(cmd))
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

// NotEmpty has cmd refuse an empty value of these flags of its own, such as a script gives whose variable is not set:
// else it would count as not given, and what the flag asks for would be left out in silence.
func NotEmpty(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		f := cmd.Flags().Lookup(name)
		f.Value = notEmpty{f.Value}
	}
}

type notEmpty struct{ pflag.Value }

func (v notEmpty) Set(s string) error {
	if s == "" {
		return errors.New("it is empty")
	}
	return v.Value.Set(s)
}

// isUsage recognises cobra's own complaints about commands and arguments, which have no type.
func isUsage(err error) bool {
	for _, s := range []string{"unknown command", "unknown flag", "required flag", "arg(s)", "invalid argument", "flags in the group"} {
		if strings.Contains(err.Error(), s) {
			return true
		}
	}
	return false
}
