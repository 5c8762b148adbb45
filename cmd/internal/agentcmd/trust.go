package agentcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

func newTrustCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trust",
		Short: "Show, or install, the trust document that releases are judged by",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTrustInstallCommand(), newTrustShowCommand())
	return cmd
}

func newTrustInstallCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "install FILE",
		Short: "Install a version of the trust document, or those in a site's file",
		Long: `Install a version of the trust document, or those in a file that "wherry airgap export" has written.

Version 1 changes an agent with a pinned key over to the trust document: from then on the key counts no
more, and releases of epoch 0 are refused. Each later version has to be the next one, signed by the roots
of the one before; usually the agent finds these in its registry or in the files that it imports. A version
that is there already changes nothing. What runs is not touched.

Exit codes: 0 it is installed; 2 wrong usage, or no such file; 3 it failed; 4 it is not the next version,
not signed by those who may, another one than is installed, or for another platform.`,
		Example: example("trust install trust.v1.json --config agent.yaml"),
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := configOf(cmd)
			if err != nil {
				return err
			}
			envelopes, err := readTrust(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			change, err := c.install(cmd.Context(), envelopes)
			if err != nil {
				return trustError(err)
			}
			writeChange(cmd.OutOrStdout(), change)
			return nil
		},
	}
}

func newTrustShowCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "Show the trust document in force, or the pinned keys",
		Long:    "Show the trust document in force and its versions, or the pinned keys of an agent that has none: asked of\nthe running agent, or else as the last one left it.",
		Example: example("trust show --config agent.yaml -o json"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := configOf(cmd)
			if err != nil {
				return err
			}
			t, err := c.readTrustState(cmd.Context())
			if err != nil {
				return err
			}
			shown := shownTrust(t, time.Now())
			return cli.Print(cmd.OutOrStdout(), output, shown, func(w io.Writer) { writeTrust(w, shown) })
		},
	}
	cli.OutputFlag(cmd, &output)
	return cmd
}

// readTrust reads a file of trust documents that a person has named.
func readTrust(ctx context.Context, path string) ([][]byte, error) {
	envelopes, err := agent.ReadTrust(ctx, path)
	switch {
	case errors.Is(err, airgap.ErrFormat):
		return nil, cli.Fail(cli.Usage, fmt.Errorf("%s: neither a trust document nor a site's file with one", path), `"wherry trust sign" and "wherry airgap export" write such files`)
	case errors.Is(err, os.ErrNotExist):
		return nil, cli.Fail(cli.Usage, err, "")
	case err != nil:
		return nil, cli.Fail(denied(err), err, "")
	}
	return envelopes, nil
}

// install hands the documents to the running agent, or to the state that the last one left.
func (c *config) install(ctx context.Context, envelopes [][]byte) (agent.TrustChange, error) {
	return change(ctx, c, func(ctx context.Context, a agent.Client) (agent.TrustChange, error) {
		return a.InstallTrust(ctx, envelopes...)
	},
		func(s *agent.State) (agent.TrustChange, error) {
			status, err := s.Status(time.Now())
			if err != nil {
				return agent.TrustChange{}, err
			}
			return s.InstallTrust(cmp.Or(status.Platform, c.cluster.Platform), envelopes...)
		})
}

func trustError(err error) error {
	if denied(err) == cli.Denied {
		return cli.Fail(cli.Denied, err, "trust show says which version is installed; what runs keeps running")
	}
	return err
}

// readTrustState asks the running agent, or reads what the last one left, which knows of no pinned keys.
func (c *config) readTrustState(ctx context.Context) (agent.Trust, error) {
	return look(ctx, c, func(ctx context.Context, a agent.Client) (agent.Trust, error) { return a.Trust(ctx) },
		func(s *agent.State) (agent.Trust, error) {
			t, err := s.Trust()
			if err != nil {
				return t, err
			}
			keys, err := readKeys(c.keys)
			for _, k := range keys {
				id, err := bundle.KeyID(k)
				if err != nil {
					return t, err
				}
				t.Pinned = append(t.Pinned, id)
			}
			slices.Sort(t.Pinned)
			return t, err
		})
}

// hasTrust says whether the agent was given a trust document before, so that it needs no setting for one. A
// state that another process has open is that of an agent that found out for itself.
func (c *config) hasTrust() bool {
	kept, err := agent.ReadState(c.stateDir)
	if err != nil {
		return errors.Is(err, state.ErrBusy)
	}
	t, err := kept.Trust()
	return errors.Join(err, kept.Close()) == nil && len(t.Chain) > 0
}

// firstTrust reads version 1, as the setting trust names it.
func (c *config) firstTrust(ctx context.Context) ([]byte, error) {
	envelopes, err := readTrust(ctx, c.trust)
	if err != nil {
		return nil, err
	}
	d, _, err := bundle.OpenTrust(envelopes[0])
	switch {
	case err != nil:
		return nil, cli.Fail(cli.Denied, fmt.Errorf("--trust: %s: %w", c.trust, err), "")
	case d.Version != 1:
		return nil, cli.Usagef("--trust: %s is version %d of the trust document: give version 1; later ones come from the registry, or by trust install", c.trust, d.Version)
	}
	return envelopes[0], nil
}

// installTrust brings the document that the setting names into a state that has none.
func (c *config) installTrust(ctx context.Context, state *agent.State, log *slog.Logger) error {
	if c.trust == "" {
		return nil
	}
	envelope, err := c.firstTrust(ctx)
	if err != nil {
		return err
	}
	change, err := state.InstallTrust(c.cluster.Platform, envelope)
	if err != nil {
		return cli.Fail(denied(err), fmt.Errorf("--trust: %s: %w", c.trust, err), "an agent stays with the version 1 that it was given first; trust show says which, and a new --state-dir begins anew")
	}
	if change.Before == nil {
		log.Info("trust document installed", "version", change.After.Version, "epoch", change.After.Epoch, "expires", change.After.ExpiresAt)
	}
	return nil
}
