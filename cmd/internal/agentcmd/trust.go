package agentcmd

import (
	"cmp"
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/config"
	"github.com/wherry-dev/wherry/agent/trust"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

func newTrustCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trust",
		Short: "Show or install the trust document",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTrustInstallCommand(), newTrustShowCommand())
	return cmd
}

func newTrustInstallCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "install FILE",
		Short: "Install a version of the trust document",
		Long: `Install a version of the trust document, or those in a file that "wherry airgap export" has written.

Version 1 changes an agent with a pinned key over to the trust document: from then on the key counts no
more, and releases of epoch 0 are refused. Each later version has to be the next one, signed by the roots
of the one before; usually the agent finds these in its registry or in the files that it imports. A version
that is there already changes nothing. What runs is not touched.

Exit codes: 0 it is installed; 2 wrong usage, or no such file; 3 it failed; 4 it is not the next version,
not signed by those who may, another one than is installed, or for another platform.`,
		Example: example("trust install trust.v1.json --config agent.yaml"),
		Args:    cobra.ExactArgs(1),
		RunE: configured(func(cmd *cobra.Command, c *config.Config, args []string) error {
			envelopes, err := config.ReadTrust(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			change, err := installTrust(cmd.Context(), c, envelopes)
			if err != nil {
				return trustError(err)
			}
			writeChange(cmd.OutOrStdout(), change)
			return nil
		}),
	}
}

func newTrustShowCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "Show the trust document or pinned keys",
		Long:    "Show the trust document in force and its versions, or the pinned keys of an agent that has none: asked of\nthe running agent, or else as the last one left it.",
		Example: example("trust show --config agent.yaml -o json"),
		Args:    cobra.NoArgs,
		RunE: configured(func(cmd *cobra.Command, c *config.Config, _ []string) error {
			t, err := c.TrustState(cmd.Context())
			if err != nil {
				return err
			}
			shown := shownTrust(t, time.Now())
			return cli.Print(cmd.OutOrStdout(), output, shown, func(w io.Writer) { writeTrust(w, shown) })
		}),
	}
	cli.OutputFlag(cmd, &output)
	return cmd
}

// installTrust hands the documents to the running agent, or to the state that the last one left.
func installTrust(ctx context.Context, c *config.Config, envelopes [][]byte) (trust.Change, error) {
	return config.Change(ctx, c, func(ctx context.Context, a agent.Client) (trust.Change, error) {
		return a.InstallTrust(ctx, envelopes...)
	},
		func(s *agent.State) (trust.Change, error) {
			status, err := s.Status(time.Now())
			if err != nil {
				return trust.Change{}, err
			}
			return s.Trust().Install(cmp.Or(status.Platform, c.Cluster.Platform), envelopes...)
		})
}

func trustError(err error) error {
	if denied(err) == cli.Denied {
		return cli.Fail(cli.Denied, err, "trust show says which version is installed; what runs keeps running")
	}
	return err
}
