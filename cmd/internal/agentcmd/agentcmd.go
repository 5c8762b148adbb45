// Package agentcmd holds the command wherry-agent and its subcommands. Begin with Program.
package agentcmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// DefaultConfig is the configuration file of agents that were installed as docs/install.md says.
const DefaultConfig = "/etc/wherry/agent.yaml"

// Program is the command wherry-agent with all of its commands. They read their configuration from the file defaultConfig if it
// exists and nothing names another.
func Program(defaultConfig string) *cobra.Command {
	root := &cobra.Command{
		Use:   "wherry-agent",
		Short: "Keep one cluster at its newest release",
		Long:  long,
		Args:  cobra.NoArgs,
	}
	addFlags(root, defaultConfig)
	root.AddCommand(
		newDoctorCommand(),
		newEnrollCommand(),
		newExplainCommand(),
		newImportCommand(),
		newOnceCommand(),
		newPauseCommand(),
		newRebindCommand(),
		newReportsCommand(),
		newResumeCommand(),
		newRollbackCommand(),
		newRunCommand(),
		newServeCommand(),
		newStatusCommand(),
		newSupportCommand(),
		newSyncCommand(),
		newTrustCommand(),
		newValuesCommand(),
	)
	shortenHelp(root)
	root.AddCommand(cli.NewVersionCommand(), cli.NewDelta(nil))
	return root
}

const long = `The agent keeps one cluster, or one host, at the newest release for it.

It is told what to do by flags, by WHERRY_* variables named as the flags (WHERRY_STATE_DIR for
--state-dir) and by the YAML file that --config names. Flags override variables, which override the file.
/etc/wherry/agent.yaml is used where it exists and neither --config nor WHERRY_CONFIG is given; --config ''
reads no file.`

// example joins lines of an example with the path of the command, which is not the same in both binaries.
func example(lines ...string) string {
	var s string
	for i, l := range lines {
		if i > 0 {
			s += "\n"
		}
		s += fmt.Sprintf("  wherry-agent %s", l)
	}
	return s
}
