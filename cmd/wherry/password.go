package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/publisher/keys"
)

const (
	// passwordVariable is cosign's own.
	passwordVariable = "COSIGN_PASSWORD"
	// maxSecretBytes bounds a key file, and a password.
	maxSecretBytes = 64 << 10
)

// passwordFlags says where a key's password comes from.
type passwordFlags struct {
	file string
}

func (f *passwordFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "password-file", "", "read the key's password from the first line of this `FILE`, or from - for standard input")
}

// read returns the password from the file, else from COSIGN_PASSWORD, else from the terminal, where a new
// one is asked for twice. That there is none is never guessed.
func (f *passwordFlags) read(cmd *cobra.Command, isNew bool) ([]byte, error) {
	if f.file != "" {
		data, err := cli.ReadInput(cmd, f.file, maxSecretBytes)
		if err != nil {
			return nil, cli.Fail(cli.Usage, fmt.Errorf("--password-file: %w", err), "")
		}
		line, _, _ := bytes.Cut(data, []byte("\n"))
		return bytes.TrimSuffix(line, []byte("\r")), nil
	}
	if password, set := os.LookupEnv(passwordVariable); set {
		return []byte(password), nil
	}
	password, err := promptSecret(cmd, "Password for the private key: ")
	if errors.Is(err, errNoTerminal) {
		return nil, cli.Fail(cli.Usage, errors.New("no password for the private key"),
			fmt.Sprintf("set %s, give --password-file FILE, or run the command in a terminal", passwordVariable))
	}
	if err != nil || !isNew {
		return password, err
	}
	again, err := promptSecret(cmd, "The same once more: ")
	if err == nil && !bytes.Equal(password, again) {
		err = cli.Usagef("the two passwords differ")
	}
	return password, err
}

var errNoTerminal = errors.New("not a terminal")

// promptSecret asks at the terminal, without showing what is typed.
func promptSecret(cmd *cobra.Command, prompt string) ([]byte, error) {
	fd := int(os.Stdin.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return nil, errNoTerminal
	}
	fmt.Fprint(cmd.ErrOrStderr(), prompt)
	defer fmt.Fprintln(cmd.ErrOrStderr())
	secret, err := answer(cmd.Context(), func() ([]byte, error) { return term.ReadPassword(fd) })
	if cmd.Context().Err() != nil {
		_ = term.Restore(fd, before) // or what is typed next would not show
	}
	return secret, err
}

// promptLine asks at the terminal for a line.
func promptLine(cmd *cobra.Command, in io.Reader, prompt string) (string, error) {
	fmt.Fprint(cmd.ErrOrStderr(), prompt)
	line, err := answer(cmd.Context(), func() (string, error) { return bufio.NewReader(in).ReadString('\n') })
	if err != nil {
		fmt.Fprintln(cmd.ErrOrStderr()) // nobody has ended the line of the question
	}
	return strings.TrimSpace(line), err
}

// answer waits for what a person types, or for the interrupt that read itself would not notice.
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

// loadKey opens the private key in the file name.
func loadKey(cmd *cobra.Command, name string, password *passwordFlags) (*keys.Key, error) {
	data, err := cli.ReadInput(cmd, name, maxSecretBytes)
	if err != nil {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("--key: %w", err), `"wherry keys generate" makes a key pair`)
	}
	secret, err := password.read(cmd, false)
	if err != nil {
		return nil, err
	}
	key, err := keys.Load(data, secret)
	if errors.Is(err, keys.ErrPassword) {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("--key %s: %w", name, err),
			fmt.Sprintf("the password comes from --password-file, else from %s, else from the terminal", passwordVariable))
	}
	if err != nil {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("--key %s: %w", name, err), `"wherry keys generate" makes a key pair`)
	}
	return key, nil
}
