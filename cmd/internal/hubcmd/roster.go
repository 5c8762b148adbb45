package hubcmd

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/publisher/roster"
)

// Roster returns the command wherry roster.
func Roster() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "roster",
		Short: "Manage Cluster objects without a hub",
	}
	cmd.AddCommand(newRosterAddCommand())
	return cmd
}

func newRosterAddCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "add REQUEST [NAME]",
		Short: "Add a cluster from an enrollment request",
		Long: `Add the cluster of an agent's request to the environment's folder, as a Cluster object. REQUEST is a file of
"wherry-agent enroll --request", or - for stdin; it proves that the agent has the key. The clusters that are
listed anywhere in the folder of --file are looked at first: one that is there already changes nothing, and a
request of "enroll --rotate" replaces its key where it stands. spec.registeredAt becomes the present time: a gate
expects nothing of a cluster that joined after the release. Commit what is written, as any other change.`,
		Example: `  wherry roster add plant-7.request --file platform/clusters.yaml
  ssh plant-7 wherry-agent enroll --request - | wherry roster add - plant-7`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			envelope, err := readInput(cmd, args[0])
			if err != nil {
				return err
			}
			r, _, err := bundle.OpenEnrollmentRequest(envelope)
			if errors.Is(err, bundle.ErrUntrusted) {
				return cli.Fail(cli.Denied, fmt.Errorf("%s: %w", args[0], err), "have the agent write it again")
			}
			if err != nil {
				return cli.Fail(cli.Usage, fmt.Errorf("%s: %w", args[0], err), `it must be a file of "wherry-agent enroll --request"`)
			}
			if err := writeRequest(cmd, args[0], r); err != nil {
				return err
			}
			if len(args) == 2 {
				r.Cluster.Name = args[1]
			}
			change, err := roster.Add(cmd.Context(), file, r, time.Now())
			if err != nil {
				return err
			}
			if change.Data != nil {
				if err := diskfile.Replace(change.File, 0o644, change.Data); err != nil {
					return err
				}
			}
			cmd.PrintErrf("%s\n", change.Text)
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "file", "clusters.yaml", "the `FILE` in the environment's folder that the object is added to")
	return cmd
}
