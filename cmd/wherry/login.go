package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
)

func newLoginCommand() *cobra.Command {
	var user string
	var fromStdin bool
	var registry flags.Registry
	cmd := &cobra.Command{
		Use:   "login HOST",
		Short: "Store credentials for a registry",
		Long: `Store credentials for a registry where docker keeps its own: in the credential helper that its config.json
names, else in that file. They are stored only after the registry has accepted them. "wherry login hub" signs
you in at a hub.

A registry may name a token service at another host, which the credentials then go to. At its own host and in
its registered domain that is as it should be. Before they go anywhere else, the command asks at a terminal,
and without one says so and goes on, unless --auth-host is given or the registry named another host at the
last login. A host that has worked is recorded beside docker's config.json, in wherry-auth-hosts.json, for
later commands; wherry logout deletes it.`,
		Example: `  wherry login registry.plant-7:5000
  wherry login registry.plant-7:5000 --username publisher --password-stdin < token
  wherry login hub https://hub.example.com`,
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
			recorded, err := login(cmd, host, user, password, registry.Options())
			if err != nil {
				return loginFailure(err, host)
			}
			if recorded != "" {
				cmd.PrintErrf("note: credentials for %s are sent to its token service at %s from now on\n", host, recorded)
			}
			cmd.PrintErrf("logged in to %s as %s\n", host, user)
			return nil
		},
	}
	cmd.Flags().StringVarP(&user, "username", "u", "", "the user's `NAME`; asked for where it is not given")
	cmd.Flags().BoolVar(&fromStdin, "password-stdin", false, "read the password from standard input")
	registry.AddTo(cmd)
	cmd.AddCommand(newLoginHubCommand())
	return cmd
}

// login logs in. If the registry names a token service that the user has to allow, login names that before it sends the
// password there.
func login(cmd *cobra.Command, host, user, password string, options oci.Options) (recorded string, err error) {
	recorded, err = oci.Login(cmd.Context(), host, user, password, options)
	var withheld *oci.WithheldError
	if !errors.As(err, &withheld) || !withheld.Listable || len(options.AuthHosts) > 0 {
		return recorded, err
	}
	where := fmt.Sprintf("%s names %s as its token service", host, withheld.Host)
	if withheld.Recorded != "" {
		where += fmt.Sprintf(" (at the last login it was %s)", withheld.Recorded)
	}
	if cli.IsTerminal() {
		yes, askErr := cli.AskYes(cmd, os.Stdin, where+". Send the password there?")
		if askErr != nil {
			return "", askErr
		}
		if !yes {
			return "", err
		}
	} else if withheld.Recorded != "" {
		return "", err
	} else {
		cmd.PrintErrf("note: %s: the password goes there\n", where)
	}
	options.AuthHosts = []string{withheld.Host}
	return oci.Login(cmd.Context(), host, user, password, options)
}

func newLogoutCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "logout HOST",
		Short:   "Forget the credentials for a registry",
		Example: "  wherry logout registry.plant-7:5000\n  wherry logout hub https://hub.example.com",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			host, err := hostOf(args[0])
			if err != nil {
				return err
			}
			if err := oci.Logout(cmd.Context(), host); err != nil {
				return loginFailure(err, host)
			}
			cmd.PrintErrf("logged out from %s\n", host)
			return nil
		},
	}
	cmd.AddCommand(newLogoutHubCommand())
	return cmd
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
	return failure.At(err, oci.Location{Host: host}, cli.As[*oci.WithheldError](cli.Denied, "nothing was stored"),
		cli.Is(oci.ErrUnauthorized, cli.Denied, "the registry does not accept this name and password; nothing was stored"))
}

func askCredentials(cmd *cobra.Command, user string, fromStdin bool) (name, password string, err error) {
	if fromStdin {
		data, err := io.ReadAll(io.LimitReader(cli.Stdin(cmd), flags.MaxKeyBytes))
		if err != nil {
			return "", "", err
		}
		if data = bytes.TrimRight(data, "\r\n"); len(data) == 0 {
			return "", "", cli.Usagef("--password-stdin: standard input is empty")
		}
		return user, string(data), nil
	}
	if user == "" && cli.IsTerminal() {
		if user, err = cli.AskLine(cmd, os.Stdin, "Username: "); errors.Is(err, io.EOF) {
			err = cli.Usagef("a username and a password are needed")
		}
		if err != nil {
			return "", "", err
		}
	}
	secret, err := cli.AskSecret(cmd, "Password: ")
	if errors.Is(err, cli.ErrNoTerminal) {
		return "", "", cli.Fail(cli.Usage, errors.New("no password"), "give --username NAME --password-stdin, or run the command in a terminal")
	}
	if err == nil && (user == "" || len(secret) == 0) {
		err = cli.Usagef("a username and a password are needed")
	}
	return user, string(secret), err
}
