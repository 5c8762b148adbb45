package hubcmd

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/client"
	"github.com/wherry-dev/wherry/hub/store"
)

// administration is the access tokens and the audit log of a hub: of its folder, or over HTTP.
type administration interface {
	AccessTokens(ctx context.Context) ([]store.AccessToken, error)
	CreateAccess(ctx context.Context, t store.NewAccess) (secret string, kept store.AccessToken, err error)
	RevokeAccess(ctx context.Context, idOrName string) (store.AccessToken, error)
	AuditLog(ctx context.Context, q store.AuditQuery) (store.AuditList, error)
}

var _ administration = client.Client{}

// local is the administration of a hub's folder.
type local struct{ access.Tokens }

func (l local) AccessTokens(ctx context.Context) ([]store.AccessToken, error) {
	return l.Store.AccessTokens(ctx)
}

func (l local) CreateAccess(ctx context.Context, t store.NewAccess) (string, store.AccessToken, error) {
	secret, kept, err := l.Create(ctx, access.Request{Name: t.Name, Role: access.Role(t.Role), AccessScope: t.AccessScope, ExpiresAt: t.ExpiresAt})
	return secret.Reveal(), kept, err
}

func (l local) RevokeAccess(ctx context.Context, idOrName string) (store.AccessToken, error) {
	return l.Revoke(ctx, idOrName)
}

// administrator holds the flags that choose a hub by its folder or by its URL.
type administrator struct {
	dir                         *location
	url, authorities, tokenFile string
}

func (a *administrator) addTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.url, "hub", "", "work on the hub at this `URL` in place of a folder, else $"+flags.HubVariable+" unless a flag or variable names a folder or database")
	f.StringVar(&a.authorities, "tls-ca", "", "with --hub: authorities that are trusted beside the system's, a `FILE` in PEM")
	f.StringVar(&a.tokenFile, "token-file", "", "with --hub: "+flags.HubTokenFlag)
	cli.NotEmpty(cmd, "hub", "tls-ca", "token-file")
}

// name is what messages call the hub.
func (a *administrator) name() string {
	if a.url != "" {
		return a.url
	}
	return a.dir.String()
}

// with opens the administration of the hub that the flags choose for the time of use.
func (a *administrator) with(cmd *cobra.Command, use func(administration) error) error {
	return a.choose(cmd, hub.Options{MustExist: true}, func(h *hub.Hub) error { return accessKinds.Of(use(local{h.Access()})) },
		func(c client.Client) error { return accessKinds.Of(use(c)) })
}

// choose calls here with the hub of a folder, or there with the one at a URL.
func (a *administrator) choose(cmd *cobra.Command, o hub.Options, here func(*hub.Hub) error, there func(client.Client) error) error {
	if a.url == "" && !a.dir.isNamed(cmd) {
		a.url = os.Getenv(flags.HubVariable)
	}
	switch {
	case a.url != "" && (cmd.Flags().Changed("data") || cmd.Flags().Changed("database") || cmd.Flags().Changed("database-file")):
		return cli.Usagef("--hub and --data name two hubs")
	case a.url == "" && a.tokenFile+a.authorities != "":
		return cli.Usagef("--token-file and --tls-ca are for a hub's URL: give --hub, or leave them out")
	case a.url == "":
		return withHub(*a.dir, o, here)
	}
	c, err := flags.NewHubClient(cmd, a.url, a.authorities, a.tokenFile)
	if err != nil {
		return err
	}
	return failure.Hub(there(c), a.url)
}

// unknownAccess and takenAccess are the hints for access tokens.
const (
	unknownAccess = `"wherry hub access list" shows those that there are`
	takenAccess   = `choose another name, or revoke that one first with "wherry hub access revoke"`
)

// accessKinds are the errors about access tokens.
var accessKinds = cli.Kinds{
	cli.Is(store.ErrUnknownAccess, cli.No, unknownAccess),
	cli.Is(store.ErrExists, cli.No, takenAccess),
	cli.AsBy(func(e *hubapi.Error) (int, string) {
		hint := map[hubapi.Code]string{hubapi.CodeNotFound: unknownAccess, hubapi.CodeExists: takenAccess}[e.Code]
		if hint == "" {
			return cli.OK, ""
		}
		return cli.No, hint
	}),
}

func newAccessCommand(dir *location) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "access",
		Short: "Manage access tokens",
		Long: `Make access tokens for people and machines, which ask a hub or change what it has registered. Agents need none:
they are registered with "wherry hub tokens" or "wherry hub clusters add".`,
	}
	cmd.AddCommand(newAccessCreateCommand(dir), newAccessListCommand(dir), newAccessRevokeCommand(dir))
	return cmd
}

func newAccessCreateCommand(dir *location) *cobra.Command {
	a := administrator{dir: dir}
	var wanted store.NewAccess
	expires := access.DefaultTokenTime
	cmd := &cobra.Command{
		Use:   "create NAME --role ROLE",
		Short: "Create an access token",
		Long: `Make an access token and print it, which is done only once: the hub keeps nothing from which it could be made
again. NAME says who uses it, as the audit log shows it. Its owner gives it to "wherry login hub URL".

A viewer reads. An operator also registers, retires and unshares clusters, and makes enrollment tokens. A
publisher also passes releases to the hub, an approver decides at gates, and an auditor reads the audit log and
the list of access tokens. The role metrics reads GET /metrics alone. An admin may do everything, and makes
access tokens.

--environment, --workspace and --selector restrict what the token reads and changes, and all that are given
have to hold. The selector is of labels as registered. What is outside is not shown, counted or told from
what does not exist. Admin, auditor and metrics have no such scope, and an operator no workspaces.

On the hub's own folder this needs no token, which helps where the last admin token is lost.`,
		Example: `  wherry hub access create ann --role viewer --environment prod --expires 90d > ann.token
  wherry hub access create promote --role publisher -e stage -e prod --hub https://hub.example.com
  wherry hub access create east --role operator -l 'region=east'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := access.ParseRole(wanted.Role); err != nil {
				return cli.Fail(cli.Usage, fmt.Errorf("--role: %w", err), "")
			}
			if _, err := access.ParseScope(wanted.AccessScope); err != nil {
				return cli.Fail(cli.Usage, err, "")
			}
			wanted.Name = args[0]
			wanted.ExpiresAt = time.Now().Add(expires)
			var secret string
			var kept store.AccessToken
			err := a.with(cmd, func(to administration) (err error) {
				secret, kept, err = to.CreateAccess(cmd.Context(), wanted)
				return err
			})
			if err != nil {
				return err
			}
			cmd.PrintErrf("%s: access token %s of %s, role %s, %s; %s\n", a.name(), kept.ID, kept.Name, kept.Role, scopeText(kept.AccessScope), expiryText(kept))
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), secret); err != nil {
				return cli.Fail(cli.Failed, fmt.Errorf("print access token %s: %w", kept.ID, err), fmt.Sprintf("the token is lost: revoke it with \"wherry hub access revoke %s\", and create another", kept.ID))
			}
			return nil
		},
	}
	a.addTo(cmd)
	f := cmd.Flags()
	var roles []string
	for _, r := range access.Roles() {
		roles = append(roles, string(r))
	}
	f.StringVar(&wanted.Role, "role", "", "the `ROLE`: "+strings.Join(roles, ", ")+" (required)")
	f.StringSliceVarP(&wanted.Environments, "environment", "e", nil, "only this environment's `NAME` (repeatable)")
	f.StringSliceVar(&wanted.Workspaces, "workspace", nil, "only deployments of this workspace's `NAME` (repeatable)")
	f.StringVarP(&wanted.Selector, "selector", "l", "", "only clusters with these labels, a `SELECTOR` such as region=east,gpu!=true")
	f.Var((*duration.Value)(&expires), "expires", "the `TIME` for which it is good, at most ten years")
	_ = cmd.MarkFlagRequired("role")
	_ = cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions(roles, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("environment", flags.CompleteEnvironments)
	return cmd
}

func scopeText(s store.AccessScope) string {
	var parts []string
	if len(s.Environments) > 0 {
		parts = append(parts, "environment "+strings.Join(s.Environments, ","))
	}
	if len(s.Workspaces) > 0 {
		parts = append(parts, "workspace "+strings.Join(s.Workspaces, ","))
	}
	if s.Selector != "" {
		parts = append(parts, s.Selector)
	}
	if len(parts) == 0 {
		return "the whole fleet"
	}
	return strings.Join(parts, "; ")
}

func expiryText(t store.AccessToken) string {
	if t.ExpiresAt.IsZero() {
		return "good until it is revoked"
	}
	return "good until " + t.ExpiresAt.UTC().Format(time.RFC3339)
}

// accessState is the state of a token at a time, as the table shows it.
func accessState(t store.AccessToken, now time.Time) string {
	switch {
	case !t.RevokedAt.IsZero():
		return "revoked"
	case !t.ExpiresAt.IsZero() && !now.Before(t.ExpiresAt):
		return "expired"
	case t.Waits:
		return "waits"
	case t.Subject != "":
		return "session"
	}
	return "good"
}

func newAccessListCommand(dir *location) *cobra.Command {
	a := administrator{dir: dir}
	var format string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List access tokens",
		Long:    "List the access tokens, without their secrets, and the sessions of people who signed in, the newest first. The last use is noted once an hour.",
		Example: "  wherry hub access list\n  wherry hub access list --hub https://hub.example.com -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all := []store.AccessToken{}
			err := a.with(cmd, func(of administration) (err error) {
				all, err = of.AccessTokens(cmd.Context())
				return err
			})
			if err != nil {
				return err
			}
			return cli.Print(cmd.OutOrStdout(), format, store.AccessTokenList{Access: all}, func(w io.Writer) { accessTable(w, all, time.Now()) })
		},
	}
	a.addTo(cmd)
	cli.OutputFlag(cmd, &format)
	return cmd
}

func accessTable(w io.Writer, all []store.AccessToken, now time.Time) {
	fmt.Fprintln(w, "TOKEN\tNAME\tROLE\tSCOPE\tEXPIRES\tLAST USED\tSTATE")
	stamp := func(t time.Time, none string) string {
		if t.IsZero() {
			return none
		}
		return t.UTC().Format(time.RFC3339)
	}
	for _, t := range all {
		cli.Row(w, t.ID, t.Name, t.Role, scopeText(t.AccessScope), stamp(t.ExpiresAt, "never"), stamp(t.UsedAt, "never"), accessState(t, now))
	}
}

func newAccessRevokeCommand(dir *location) *cobra.Command {
	a := administrator{dir: dir}
	cmd := &cobra.Command{
		Use:     "revoke NAME|ID",
		Short:   "Revoke an access token",
		Long:    "Make an access token useless, at once and for all hubs of the same database. It may be given as its owner has it. The ID of a session ends that.",
		Example: "  wherry hub access revoke ann\n  wherry hub access revoke 4be1c9a07f21 --hub https://hub.example.com",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			which := args[0]
			if t, err := access.ParseToken(which); err == nil { // which then goes into no URL
				which = t.ID()
			}
			return a.with(cmd, func(of administration) error {
				kept, err := of.RevokeAccess(cmd.Context(), which)
				if err != nil {
					return err
				}
				if kept.Subject != "" {
					cmd.PrintErrf("%s: session %s of %s ended\n", a.name(), kept.ID, kept.Name)
					return nil
				}
				cmd.PrintErrf("%s: access token %s of %s revoked\n", a.name(), kept.ID, kept.Name)
				return nil
			})
		},
	}
	a.addTo(cmd)
	return cmd
}
