package hubcmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub/store"
)

func newTokensCommand(dir *location) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tokens",
		Short: "Manage enrollment tokens",
	}
	cmd.AddCommand(newTokensCreateCommand(dir), newTokensListCommand(dir), newTokensRevokeCommand(dir))
	return cmd
}

func newTokensCreateCommand(dir *location) *cobra.Command {
	a := administrator{dir: dir}
	var s store.TokenScope
	var expires, ephemeral time.Duration
	cmd := &cobra.Command{
		Use:   "create --cluster-type TYPE",
		Short: "Create an enrollment token",
		Long: `Make a token and print it, which is done only once: the hub keeps nothing from which it could be made again.

"wherry-agent enroll" takes it, for an agent of this cluster type. Whoever has a token may register such an
agent until it expires: give it to the site as a file, and not in a mail that stays.

With --ephemeral, a cluster that it registers is retired by the hub once it has been silent for that long, as
development clusters are that are deleted and made again. One that comes back may enroll again with the same
token, as long as that has not expired. Take a time that is well above the one between two reports.`,
		Example: `  wherry hub tokens create --cluster-type drone --environment prod --expires 24h > plant-7.token
  wherry hub tokens create --cluster-type drone --ring canary --label site=north --uses 20
  wherry hub tokens create --cluster-type kind --environment dev --uses 100 --expires 30d --ephemeral 2d
  wherry hub tokens create --cluster-type drone --hub https://hub.example.com`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if s.Uses < 1 {
				return cli.Usagef("--uses: %d is less than 1", s.Uses)
			}
			s.ExpiresAt = time.Now().Add(expires)
			if s.EphemeralSeconds = int64(ephemeral / time.Second); s.EphemeralSeconds == 0 && cmd.Flags().Changed("ephemeral") {
				return cli.Usagef("--ephemeral: %s is too short", ephemeral)
			}
			var token bundle.EnrollToken
			err := a.registrations(cmd, false, func(at registrar) (err error) {
				token, err = at.CreateToken(cmd.Context(), s)
				return err
			})
			if err != nil {
				return err
			}
			cmd.PrintErrf("%s: token %s for %s of cluster type %s, good until %s\non each: wherry-agent enroll --hub URL --token-file FILE --cluster-type %s --environment %s\n",
				a.name(), token.ID(), show.Count(s.Uses, "cluster"), s.Type, s.ExpiresAt.UTC().Format(time.RFC3339), s.Type, cmp.Or(s.Environment, "ENVIRONMENT"))
			if _, err = fmt.Fprintln(cmd.OutOrStdout(), token.Reveal()); err != nil {
				return cli.Fail(cli.Failed, fmt.Errorf("print token %s: %w", token.ID(), err), fmt.Sprintf("the token is lost: revoke it with \"wherry hub tokens revoke %s\", and create another", token.ID()))
			}
			return nil
		},
	}
	a.addTo(cmd)
	f := cmd.Flags()
	f.StringVar(&s.Type, "cluster-type", "", "the cluster `TYPE` of the agents (required)")
	f.StringVarP(&s.Environment, "environment", "e", "", "the `NAME` of the agents' environment; empty takes any")
	f.StringVar(&s.Ring, "ring", "", "the `NAME` of the agents' ring; empty takes any")
	f.StringToStringVar(&s.Labels, "label", nil, "a label `KEY=VALUE` for each cluster; may be repeated")
	f.IntVar(&s.Uses, "uses", 1, "the `NUMBER` of clusters that it registers")
	expires = 24 * time.Hour
	f.Var((*duration.Value)(&expires), "expires", "the `TIME` for which it is good")
	f.Var((*duration.Value)(&ephemeral), "ephemeral", "retire each cluster that it registers once it has been silent for this `TIME`, such as 2d")
	_ = cmd.MarkFlagRequired("cluster-type")
	return cmd
}

func newTokensListCommand(dir *location) *cobra.Command {
	return listing[store.Token]{
		kind:  "tokens",
		short: "List enrollment tokens",
		read:  func(ctx context.Context, at registrar) ([]store.Token, error) { return at.Tokens(ctx) },
		table: tokenTable,
	}.command(dir)
}

func tokenTable(w io.Writer, all []store.Token) {
	fmt.Fprintln(w, "TOKEN\tTYPE\tENVIRONMENT\tRING\tUSES LEFT\tEPHEMERAL\tEXPIRES\tSTATE")
	for _, t := range all {
		cli.Row(w, t.ID, t.Type, t.Environment, t.Ring, fmt.Sprintf("%d of %d", t.Left, t.Uses), ephemeralText(t), t.ExpiresAt.Format(time.RFC3339), string(t.State))
	}
}

func ephemeralText(t store.Token) string {
	if t.EphemeralSeconds == 0 {
		return ""
	}
	d := duration.Value(time.Duration(t.EphemeralSeconds) * time.Second)
	return d.String()
}

func newTokensRevokeCommand(dir *location) *cobra.Command {
	a := administrator{dir: dir}
	cmd := &cobra.Command{
		Use:     "revoke ID",
		Short:   "Revoke an enrollment token",
		Example: "  wherry hub tokens revoke 4be1c9a07f21",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id := args[0]
			if t, err := bundle.ParseEnrollToken(id); err == nil { // a person may paste a leaked token instead of its id
				id = t.ID()
			}
			return a.registrations(cmd, true, func(at registrar) error {
				if err := at.RevokeToken(cmd.Context(), id); err != nil {
					return err
				}
				cmd.PrintErrf("%s: token %s revoked\n", a.name(), id)
				return nil
			})
		},
	}
	a.addTo(cmd)
	return cmd
}
