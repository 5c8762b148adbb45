package releasecmd

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/env"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher"
)

// Rollout returns the command wherry rollout.
func Rollout() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "Roll releases out through rings, or back",
		Long: `Bring releases through the rings of an environment, or take them back: "advance" brings what has proved itself to the next
ring, "status" shows how far the rings are, "commit" and "workload" how far the clusters are with one of these, "undo" and
"abort" restore previous content, and "pause" keeps an environment as it is until "resume".`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newMoveCommand())
	return cmd
}

// moving holds the flags of rollout move.
type moving struct {
	env.Signing
	registry flags.Registry
	format   string
	move     publisher.MoveOptions
}

func newMoveCommand() *cobra.Command {
	var m moving
	cmd := &cobra.Command{
		Use:   "move [LOCATION] [--environment NAME] --cluster-type TYPE --ring NAME [--key FILE | --signer cosign:URI]",
		Short: "Reissue a ring's release for moved clusters",
		Long: `Have clusters that were moved to another ring take its release.

A cluster takes no release that is older than one that it has accepted. One that is moved from a narrow ring to a
wider one, with "wherry-agent rebind" or in its configuration, therefore keeps what it has, and reports OlderRelease,
until a newer release comes to its new ring. This command signs that ring's release again, with the same content
and above those of the other rings, so that nothing changes on clusters that were in the ring before.

--above names the release that the moved cluster has accepted: then nothing is done where the ring's release is above
it already, so that the command can be repeated. The agent's hint has its tag, which counts also where that
release is not there any more. Without --ring, the release is that
of agents without a ring. The exit code is 5 where a trust document asks for more signatures.`,
		Example: `  wherry rollout move oci://127.0.0.1:5000/edge --environment prod --cluster-type drone --ring stable --key cosign.key
  wherry rollout move oci-layout:./out --environment prod --cluster-type drone --ring stable --above s0-1795262400 --key cosign.key`,
		Args: cobra.MaximumNArgs(1),
		RunE: m.run,
	}
	m.registry.AddTo(cmd)
	m.Signers.AddReleases(cmd)
	m.AddTo(cmd, "")
	cli.OutputFlag(cmd, &m.format)
	f := cmd.Flags()
	flags.EnvironmentFlag(cmd, &m.move.Environment, "the environment's `NAME`")
	f.StringVar(&m.move.ClusterType, "cluster-type", "", "the `TYPE` of the clusters that were moved (required)")
	f.StringVar(&m.move.Ring, "ring", "", "the `NAME` of the ring that they were moved to; without it they have no ring any more")
	f.StringVar(&m.move.Above, "above", "", "the `RELEASE` that they have accepted: its number, digits of its digest, or its tag (default the newest of all rings)")
	cli.NotEmpty(cmd, "ring", "above")
	_ = cmd.RegisterFlagCompletionFunc("cluster-type", flags.CompleteClusterTypes)
	_ = cmd.MarkFlagRequired("cluster-type")
	return cmd
}

func (m *moving) run(cmd *cobra.Command, args []string) error {
	if err := m.TakeArgument(cmd, args, &m.move.Environment); err != nil {
		return err
	}
	if err := m.OpenKeys(cmd, m.registry); err != nil {
		return err
	}
	done, err := publisher.Move(cmd.Context(), m.Location, m.Keys, m.move, m.PublishOptions(m.registry))
	if err != nil {
		return failure.At(err, m.Location)
	}
	for _, w := range done.Warnings {
		cmd.PrintErrf("warning: %s\n", w)
	}
	if err := cli.Print(cmd.OutOrStdout(), m.format, done, func(w io.Writer) { publishedTable(w, done) }); err != nil {
		return err
	}
	return conclude(cmd, done, m.Location, m.First, false, false)
}
