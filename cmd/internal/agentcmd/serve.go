package agentcmd

import (
	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/agent/config"
)

func newServeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Manage the agent's endpoint for the site",
		Long: `Help others of the site to read from this agent, which "run --serve ADDRESS" lets them do.

How to set up another agent, Flux, Argo CD and containerd: "wherry help links".`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newServeCACommand())
	return cmd
}

func newServeCACommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ca",
		Short: "Print the endpoint's CA certificate",
		Long: `Print the certificate, in PEM, by which clients know the agent's endpoint: that of the agent's own CA, or
of the authority in the file of --serve-cert. The agent may be running or not.

Exit codes: 0 it is printed; 2 the configuration is wrong, or the endpoint shows no certificate of an
authority; 3 the agent has not made its CA yet.`,
		Example: example("serve ca --config agent.yaml >first-box-ca.pem"),
		Args:    cobra.NoArgs,
		RunE: configured(func(cmd *cobra.Command, c *config.Config, _ []string) error {
			ca, err := c.ServeCA()
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(ca)
			return err
		}),
	}
}
