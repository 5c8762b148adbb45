package flags

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

const (
	// PasswordVariable is cosign's own.
	PasswordVariable = "COSIGN_PASSWORD"
	// MaxKeyBytes bounds a key file, and a password.
	MaxKeyBytes = 64 << 10
)

// Password holds the flag for the source of a key's password.
type Password struct {
	file string
}

// AddTo adds --password-file.
func (f *Password) AddTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "password-file", "", "read the key's password from the first line of this `FILE`, or from - for standard input")
}

// Read returns the password from the file, else from COSIGN_PASSWORD, else from the terminal, where a new
// one is asked for twice. Without any of them it fails: an empty password has to be given.
func (f *Password) Read(cmd *cobra.Command, isNew bool) ([]byte, error) {
	if f.file != "" {
		data, err := cli.ReadInput(cmd, f.file, MaxKeyBytes)
		if err != nil {
			return nil, cli.Fail(cli.Usage, fmt.Errorf("--password-file: %w", err), "")
		}
		line, _, _ := bytes.Cut(data, []byte("\n"))
		return bytes.TrimSuffix(line, []byte("\r")), nil
	}
	if password, set := os.LookupEnv(PasswordVariable); set {
		return []byte(password), nil
	}
	password, err := cli.AskSecret(cmd, "Password for the private key: ")
	if errors.Is(err, cli.ErrNoTerminal) {
		return nil, cli.Fail(cli.Usage, errors.New("no password for the private key"),
			fmt.Sprintf("set %s, give --password-file FILE, or run the command in a terminal", PasswordVariable))
	}
	if err != nil || !isNew {
		return password, err
	}
	again, err := cli.AskSecret(cmd, "The same once more: ")
	if err == nil && !bytes.Equal(password, again) {
		err = cli.Usagef("the two passwords differ")
	}
	return password, err
}
