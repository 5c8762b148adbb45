// Command wherry brings workloads to fleets of clusters: it schedules, renders, signs and publishes
// them, and holds the agent and the hub.
package main

import (
	"os"
	"time"

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

// How long commands may go on after an interrupt, so that those that only read end within a second, and a publisher
// within ten.
const (
	stopReading    = 800 * time.Millisecond
	stopPublishing = 9 * time.Second
)

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
		newRolloutCommand(),
		newRosterCommand(),
		newScheduleCommand(),
		newSignCommand(),
		newTrustCommand(),
		newVerifyCommand(),
		cli.NewVersionCommand(),
	)
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "render", "lint", "plan", "explain", "schedule":
			cli.EndsWithin(stopReading, cmd)
		case "publish":
			cli.EndsWithin(stopPublishing, cmd)
		}
	}
	return root
}
