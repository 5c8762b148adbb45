// Command wherry-agent is the agent alone: what a cluster or a host needs to keep itself at the newest
// release that is meant for it, and no more. The command wherry has it too, as wherry agent.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/agentcmd"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/deltacmd"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	root := &cobra.Command{
		Use:   "wherry-agent",
		Short: "Keep one cluster at the newest release that is meant for it",
		Long:  agentcmd.Long,
		Args:  cobra.NoArgs,
	}
	agentcmd.Add(root, agentcmd.DefaultConfig)
	root.AddCommand(cli.NewVersionCommand(), deltacmd.New(nil))
	root.SetArgs(args)
	return cli.Main(root)
}
