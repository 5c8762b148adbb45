// Command wherry brings workloads to fleets of clusters: it schedules, renders, signs and publishes
// them, and holds the agent and the hub.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/delta"
	"github.com/wherry-dev/wherry/cmd/internal/agentcmd"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/deltacmd"
)

func main() { os.Exit(run(os.Args[1:], agentcmd.DefaultConfig)) }

// run is main with a path for the agent's configuration.
func run(args []string, agentConfig string) int {
	root := newRootCommand(agentConfig)
	root.SetArgs(args)
	return cli.Main(root)
}

func newRootCommand(agentConfig string) *cobra.Command {
	root := &cobra.Command{
		Use:   "wherry",
		Short: "Bring workloads to fleets of clusters that are often offline",
		Args:  cobra.NoArgs,
	}
	root.AddCommand(
		// One line per command, sorted.
		newAgentCommand(agentConfig),
		newAirgapCommand(),
		newBundleCommand(),
		deltacmd.New(delta.Make),
		newDemoCommand(),
		newExplainCommand(),
		newGetCommand(),
		newHubCommand(),
		newInstallCommand(),
		newKeysCommand(),
		newLintCommand(),
		newLoginCommand(),
		newLogoutCommand(),
		newPlanCommand(),
		newPublishCommand(),
		newRegistryCommand(),
		newRenderCommand(),
		newRosterCommand(),
		newScheduleCommand(),
		newSignCommand(),
		newTrustCommand(),
		newVerifyCommand(),
		cli.NewVersionCommand(),
	)
	return root
}
