package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/store"
)

func newLoginHubCommand() *cobra.Command {
	var fromStdin bool
	var authorities string
	cmd := &cobra.Command{
		Use:   "hub URL",
		Short: "Store an access token for a hub",
		Long: `Store an access token for a hub, which later commands with --hub send to that URL and to no other. It is stored
only after the hub has accepted it, in wherry/hub-tokens.json in your configuration folder, which nobody else
can read. The token is asked for at the terminal, or read with --token-stdin.

An admin of the hub makes one with "wherry hub access create". The first one is in the file ` + access.AdminTokenFile + ` of the hub's
folder.`,
		Example: `  wherry login hub https://hub.example.com
  wherry login hub https://hub.example.com --token-stdin < token`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkHubURL(args[0]); err != nil {
				return err
			}
			secret, err := askToken(cmd, fromStdin)
			if err != nil {
				return err
			}
			client, err := flags.NewHubHTTP(args[0], authorities)
			if err != nil {
				return err
			}
			client.Token = secret
			who, err := client.WhoAmI(cmd.Context())
			if err != nil {
				return loginHubFailure(err, args[0])
			}
			if err := flags.StoreHubLogin(args[0], secret); err != nil {
				return err
			}
			if u, _ := url.Parse(args[0]); u.Scheme == "http" && !oci.IsLoopback(u.Host) {
				cmd.PrintErrln("note: the connection has no TLS: whoever is on the way can read the token")
			}
			cmd.PrintErrf("logged in to %s as %s, role %s%s\n", args[0], who.Name, who.Role, until(who.AccessToken))
			return nil
		},
	}
	cmd.Flags().BoolVar(&fromStdin, "token-stdin", false, "read the token from standard input")
	cmd.Flags().StringVar(&authorities, "tls-ca", "", "authorities that are trusted beside the system's, a `FILE` in PEM")
	return cmd
}

func until(t store.AccessToken) string {
	if t.ExpiresAt.IsZero() {
		return ""
	}
	return ", until " + t.ExpiresAt.UTC().Format("2006-01-02 15:04 MST")
}

func newLogoutHubCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "hub URL",
		Short: "Forget the access token for a hub",
		Long: `Forget the access token for a hub on this machine. The hub goes on to take it until it expires; "wherry hub
access revoke" ends that.`,
		Example: "  wherry logout hub https://hub.example.com",
		Args:    cobra.ExactArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return flags.HubLogins(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkHubURL(args[0]); err != nil {
				return err
			}
			had, err := flags.ForgetHubLogin(args[0])
			if err != nil {
				return err
			}
			if !had {
				return cli.Fail(cli.No, fmt.Errorf("no access token is stored for %s", args[0]), storedLogins())
			}
			cmd.PrintErrf("logged out from %s\n", args[0])
			return nil
		},
	}
}

func storedLogins() string {
	if all := flags.HubLogins(); len(all) > 0 {
		return "there is one for " + strings.Join(all, ", ")
	}
	return ""
}

// checkHubURL returns an error of usage for what is no hub's URL. It does not quote a password.
func checkHubURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.User != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return cli.Fail(cli.Usage, errors.New("expected a hub URL such as https://hub.example.com, without credentials"), "")
	}
	return nil
}

// askToken reads an access token. Errors do not quote it.
func askToken(cmd *cobra.Command, fromStdin bool) (string, error) {
	var text []byte
	var err error
	if fromStdin {
		text, err = io.ReadAll(io.LimitReader(cli.Stdin(cmd), flags.MaxKeyBytes))
	} else {
		text, err = cli.AskSecret(cmd, "Access token: ")
	}
	if errors.Is(err, cli.ErrNoTerminal) {
		return "", cli.Fail(cli.Usage, errors.New("no access token"), "give --token-stdin, or run the command in a terminal")
	}
	if err != nil {
		return "", err
	}
	token, err := access.ParseToken(string(text))
	if err != nil {
		return "", cli.Fail(cli.Usage, err, "nothing was stored")
	}
	return token.Reveal(), nil
}

func loginHubFailure(err error, hub string) error {
	var denied *cli.Error
	if errors.As(failure.Hub(err, hub), &denied) && denied.Code == cli.Denied {
		return cli.Fail(denied.Code, err, "nothing was stored")
	}
	return cli.Otherwise(failure.Hub(err, hub), cli.Failed, "is it the hub's address, and is the hub running? Nothing was stored")
}
