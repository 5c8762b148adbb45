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
	"github.com/wherry-dev/wherry/hub/client"
	"github.com/wherry-dev/wherry/hub/store"
)

func newLoginHubCommand() *cobra.Command {
	var fromStdin bool
	var authorities string
	cmd := &cobra.Command{
		Use:   "hub URL",
		Short: "Sign in at a hub",
		Long: `Sign in at a hub with your company's account: open the page that is printed, in a browser on whatever machine,
and enter the code. Commands renew the session while the provider lets them; "wherry logout hub" ends it.

If the hub has no such login, or with --token-stdin, the command takes an access token instead, from the
terminal or from standard input. An admin of the hub makes one with "wherry hub access create". The first one
is in the file ` + access.AdminTokenFile + ` of the hub's folder.

What the hub has accepted is stored in wherry/hub-tokens.json in your configuration folder, which nobody else
can read. Later commands with --hub send it to that URL and to no other.`,
		Example: `  wherry login hub https://hub.example.com
  wherry login hub https://hub.example.com --token-stdin < token`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkHubURL(args[0]); err != nil {
				return err
			}
			c, err := flags.NewHubHTTP(args[0], authorities)
			if err != nil {
				return err
			}
			var login flags.HubLogin
			if !fromStdin {
				login, err = signIn(cmd, c)
			}
			if errors.Is(err, client.ErrNoSignIn) {
				cmd.PrintErrf("note: %v\n", err)
				err = nil
			}
			if err == nil && login.Token == "" {
				login.Token, err = askToken(cmd, fromStdin)
			}
			if err != nil {
				return err
			}
			c.Token = login.Token
			who, err := c.WhoAmI(cmd.Context())
			if err != nil {
				return loginHubFailure(err, args[0])
			}
			if err := flags.StoreHubLogin(cmd.Context(), args[0], login); err != nil {
				return err
			}
			if u, _ := url.Parse(args[0]); u.Scheme == "http" && !oci.IsLoopback(u.Host) {
				cmd.PrintErrln("note: the connection has no TLS: anyone on the way can read the token")
			}
			cmd.PrintErrf("logged in to %s as %s, role %s%s\n", args[0], who.Name, who.Role, until(who.AccessToken, login.Renewal.Refresh != ""))
			return nil
		},
	}
	cmd.Flags().BoolVar(&fromStdin, "token-stdin", false, "read an access token from standard input")
	cmd.Flags().StringVar(&authorities, "tls-ca", "", "authorities that are trusted beside the system's, also for the page where you sign in, a `FILE` in PEM")
	return cmd
}

// signIn signs a person in with a browser, and returns their session.
func signIn(cmd *cobra.Command, c client.Client) (flags.HubLogin, error) {
	session, err := c.SignIn(cmd.Context(), func(p client.Prompt) {
		cmd.PrintErrf("To sign in, open %s in a browser and enter the code %s\n", p.Address, p.Code)
		if p.Complete != "" {
			cmd.PrintErrf("or open %s\n", p.Complete)
		}
		cmd.PrintErrf("waiting for you until %s; Ctrl-C ends this\n", p.Ends.UTC().Format("15:04 MST"))
	})
	const again = "run the command again, or give an access token with --token-stdin"
	switch {
	case err == nil:
		return flags.SessionLogin(session), nil
	case errors.Is(err, client.ErrNoSignIn), cmd.Context().Err() != nil:
		return flags.HubLogin{}, err
	case errors.Is(err, client.ErrSignInRefused):
		return flags.HubLogin{}, cli.Fail(cli.Denied, err, again)
	case errors.Is(err, client.ErrSignInLate):
		return flags.HubLogin{}, cli.Fail(cli.Failed, err, again)
	case errors.Is(err, client.ErrProvider):
		return flags.HubLogin{}, cli.Fail(cli.Failed, err, "the hub's login file names that provider, and deviceClientID has to be a public client with the device flow; --token-stdin takes an access token")
	}
	return flags.HubLogin{}, loginHubFailure(err, c.URL)
}

func until(t store.AccessToken, renewed bool) string {
	switch {
	case renewed:
		return ", renewed by commands"
	case t.ExpiresAt.IsZero():
		return ""
	}
	return ", until " + t.ExpiresAt.UTC().Format("2006-01-02 15:04 MST")
}

func newLogoutHubCommand() *cobra.Command {
	var authorities string
	cmd := &cobra.Command{
		Use:   "hub URL",
		Short: "Sign out from a hub",
		Long: `Forget what "wherry login hub" has stored for a hub, and end the session there. The hub goes on to take an access
token until it expires; "wherry hub access revoke" ends that.`,
		Example: "  wherry logout hub https://hub.example.com",
		Args:    cobra.ExactArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return flags.HubLogins(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkHubURL(args[0]); err != nil {
				return err
			}
			c, err := flags.NewHubHTTP(args[0], authorities)
			if err != nil {
				return err
			}
			login, err := flags.ForgetHubLogin(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if login.Token == "" {
				return cli.Fail(cli.No, fmt.Errorf("nothing is stored for %s", args[0]), storedLogins())
			}
			if login.Session {
				c.Token = login.Token
				if _, err := c.SignOut(cmd.Context()); err != nil {
					return cli.Fail(cli.Failed, fmt.Errorf("the session is forgotten here, and not ended: %w", err), "it ends by itself within the hour")
				}
			}
			cmd.PrintErrf("logged out from %s\n", args[0])
			return nil
		},
	}
	cmd.Flags().StringVar(&authorities, "tls-ca", "", "authorities that are trusted beside the system's, a `FILE` in PEM")
	return cmd
}

func storedLogins() string {
	if all := flags.HubLogins(); len(all) > 0 {
		return "something is stored for " + strings.Join(all, ", ")
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
