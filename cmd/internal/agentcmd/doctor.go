package agentcmd

import (
	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/agent/config"
	"github.com/wherry-dev/wherry/agent/doctor"
	"github.com/wherry-dev/wherry/bundle/diagnosis"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

func newDoctorCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check for missing requirements",
		Long: `Say what the agent lacks on this machine and its cluster, and what to do about it: the state folder, the
registry, the trust document, whether the newest bundle is to be trusted, the clock, the adapters, kinds and permissions
that this bundle's objects need, room on the disks, what may be kept in the cluster, and the hub. Without a registry it judges the release that
runs here, as it is in the state folder. It changes nothing, and works with and without a running
agent. The newest bundle is downloaded and not kept.

Exit codes: 0 nothing is missing; 1 something is; 2 wrong usage or configuration.`,
		Example: example("doctor --config agent.yaml"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, report, err := examined(cmd)
			if err != nil {
				return err
			}
			return cli.PrintFindings(cmd, output, report)
		},
	}
	cli.OutputFlag(cmd, &output)
	return cmd
}

// examined returns the configuration of a command, and what the doctor says with it.
func examined(cmd *cobra.Command) (c *config.Config, report diagnosis.Report, err error) {
	if c, err = configOf(cmd); err == nil {
		err = c.Complete()
	}
	if err != nil {
		return nil, report, err
	}
	subject, err := c.Subject(cmd.Context())
	if err != nil {
		return nil, report, err
	}
	report, err = doctor.Examine(cmd.Context(), subject)
	return c, report, err
}
