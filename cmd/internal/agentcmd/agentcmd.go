// Package agentcmd holds the agent's commands, which the binary wherry-agent and the command wherry
// agent share. Begin with Add.
package agentcmd

import (
	"fmt"

	"github.com/spf13/cobra"
)

// DefaultConfig is the configuration file of agents that were installed as docs/install.md says.
const DefaultConfig = "/etc/wherry/agent.yaml"

// Add gives parent the agent's commands, and the flags that they share. They read their configuration from the file
// defaultConfig if it exists and nothing names another.
func Add(parent *cobra.Command, defaultConfig string) {
	addFlags(parent, defaultConfig)
	parent.AddCommand(
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
		newSyncCommand(),
		newTrustCommand(),
		newValuesCommand(),
	)
	shortenHelp(parent)
	explain(parent)
}

// Long is the help that parent commands begin with.
const Long = `The agent keeps one cluster, or one host, at the newest release that is meant for it.

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
