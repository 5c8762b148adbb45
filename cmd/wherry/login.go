package main

import (
	"bytes"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

func newLoginCommand() *cobra.Command {
	var user string
	var fromStdin bool
	var registry registryFlags
	cmd := &cobra.Command{
		Use:   "login HOST",
		Short: "Store credentials for a registry",
		Long: `Store credentials for a registry where docker keeps its own: in the credential helper that its config.json
names, else in that file. They are stored only after the registry has accepted them.`,
		Example: `  wherry login registry.plant-7:5000
  wherry login registry.plant-7:5000 --username publisher --password-stdin < token`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			host, err := hostOf(args[0])
			if err != nil {
				return err
			}
			if fromStdin && user == "" {
				return cli.Usagef("--password-stdin needs --username")
			}
			user, password, err := askCredentials(cmd, user, fromStdin)
			if err != nil {
				return err
			}
			if err := oci.Login(cmd.Context(), host, user, password, registry.options()); err != nil {
				return loginFailure(err, host)
			}
			cmd.PrintErrf("logged in to %s as %s\n", host, user)
			return nil
		},
	}
	cmd.Flags().StringVarP(&user, "username", "u", "", "the user's `NAME`; asked for where it is not given")
	cmd.Flags().BoolVar(&fromStdin, "password-stdin", false, "read the password from standard input")
	registry.add(cmd)
	return cmd
}

func newLogoutCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "logout HOST",
		Short:   "Forget the credentials for a registry",
		Example: "  wherry logout registry.plant-7:5000",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			host, err := hostOf(args[0])
			if err != nil {
				return err
			}
			if err := oci.Logout(cmd.Context(), host, oci.Options{}); err != nil {
				return loginFailure(err, host)
			}
			cmd.PrintErrf("logged out from %s\n", host)
			return nil
		},
	}
}

// hostOf takes a location for its host.
func hostOf(arg string) (string, error) {
	if loc, err := oci.Parse(arg); err == nil && loc.Host != "" {
		return loc.Host, nil
	}
	if err := oci.CheckHost(arg); err != nil {
		return "", cli.Fail(cli.Usage, err, "it looks like registry.example.org or 10.0.0.7:5000")
	}
	return arg, nil
}

func loginFailure(err error, host string) error {
	if _, homeless := os.UserHomeDir(); homeless != nil && os.Getenv("DOCKER_CONFIG") == "" {
		return cli.Fail(cli.Failed, err, "set HOME, or DOCKER_CONFIG to the folder that credentials are kept in")
	}
	if errors.Is(err, oci.ErrUnauthorized) {
		return cli.Fail(cli.Denied, err, "the registry does not accept this name and password; nothing was stored")
	}
	return registryFailure(err, oci.Location{Host: host})
}

func askCredentials(cmd *cobra.Command, user string, fromStdin bool) (name, password string, err error) {
	if fromStdin {
		data, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxSecretBytes))
		if err != nil {
			return "", "", err
		}
		if data = bytes.TrimRight(data, "\r\n"); len(data) == 0 {
			return "", "", cli.Usagef("--password-stdin: standard input is empty")
		}
		return user, string(data), nil
	}
	if user == "" && term.IsTerminal(int(os.Stdin.Fd())) {
		if user, err = promptLine(cmd, os.Stdin, "Username: "); errors.Is(err, io.EOF) {
			err = cli.Usagef("a username and a password are needed")
		}
		if err != nil {
			return "", "", err
		}
	}
	secret, err := promptSecret(cmd, "Password: ")
	if errors.Is(err, errNoTerminal) {
		return "", "", cli.Fail(cli.Usage, errors.New("no password"), "give --username NAME --password-stdin, or run the command in a terminal")
	}
	if err == nil && (user == "" || len(secret) == 0) {
		err = cli.Usagef("a username and a password are needed")
	}
	return user, string(secret), err
}
