// Package agentcmd holds the agent's commands, which the binary wherry-agent and the command wherry
// agent share. Begin with Add.
package agentcmd

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// Add gives parent the agent's commands, and the flags that they share.
func Add(parent *cobra.Command) {
	addFlags(parent)
	parent.AddCommand(
		newDoctorCommand(),
		newEnrollCommand(),
		newImportCommand(),
		newOnceCommand(),
		newPauseCommand(),
		newRebindCommand(),
		newReportsCommand(),
		newResumeCommand(),
		newRollbackCommand(),
		newRunCommand(),
		newStatusCommand(),
		newSyncCommand(),
		newTrustCommand(),
	)
	shortenHelp(parent)
}

// Long is the help that parent commands begin with.
const Long = `The agent keeps one cluster, or one host, at the newest release that is meant for it.

It is told what to do by flags, by WHERRY_* variables named as the flags (WHERRY_STATE_DIR for
--state-dir) and by the YAML file that --config names; they go before one another in this order.`

// configOf reads the configuration for cmd.
func configOf(cmd *cobra.Command) (*config, error) {
	return readConfig(cmd.Flags(), os.LookupEnv)
}

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
