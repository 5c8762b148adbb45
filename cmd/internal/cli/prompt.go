package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// ErrNoTerminal is the error of a question without a terminal to ask it at.
var ErrNoTerminal = errors.New("not a terminal")

// IsTerminal reports whether standard input is a terminal.
func IsTerminal() bool { return term.IsTerminal(int(os.Stdin.Fd())) }

// AskSecret asks at the terminal, which does not show the answer. The error is ErrNoTerminal if standard input is no
// terminal.
func AskSecret(cmd *cobra.Command, question string) ([]byte, error) {
	fd := int(os.Stdin.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return nil, ErrNoTerminal
	}
	fmt.Fprint(cmd.ErrOrStderr(), question)
	defer fmt.Fprintln(cmd.ErrOrStderr())
	secret, err := answer(cmd.Context(), func() ([]byte, error) { return term.ReadPassword(fd) })
	if cmd.Context().Err() != nil {
		_ = term.Restore(fd, before) // otherwise the terminal would not echo
	}
	return secret, err
}

// AskLine asks for a line, and returns it without the space around it.
func AskLine(cmd *cobra.Command, in io.Reader, question string) (string, error) {
	fmt.Fprint(cmd.ErrOrStderr(), question)
	line, err := answer(cmd.Context(), func() (string, error) { return bufio.NewReader(in).ReadString('\n') })
	if err != nil {
		fmt.Fprintln(cmd.ErrOrStderr()) // nobody has ended the line of the question
	}
	return strings.TrimSpace(line), err
}

// AskYes asks a question, and reports whether the answer is y or yes. The end of the input is a no.
func AskYes(cmd *cobra.Command, in io.Reader, question string) (bool, error) {
	line, err := AskLine(cmd, in, question+" [y/N] ")
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	line = strings.ToLower(line)
	return line == "y" || line == "yes", nil
}

// answer waits for read, or for an interrupt, which read itself would not notice.
func answer[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type result struct {
		text T
		err  error
	}
	results := make(chan result, 1)
	go func() {
		text, err := read()
		results <- result{text, err}
	}()
	select {
	case r := <-results:
		return r.text, r.err
	case <-ctx.Done():
		return *new(T), ctx.Err()
	}
}
