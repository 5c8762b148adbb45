package agentcmd

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// listAll is the command whose help lists all settings. In the others' the own flags would drown in them.
const listAll = "run"

// shortenHelp has the help of parent and of its subcommands list no more of the settings than settingsOf says.
func shortenHelp(parent *cobra.Command) {
	settings, write := parent.PersistentFlags(), parent.UsageFunc()
	parent.SetUsageFunc(func(cmd *cobra.Command) error {
		shown := settingsOf(cmd.Name())
		settings.VisitAll(func(s *pflag.Flag) { s.Hidden = cmd.Name() != listAll && !slices.Contains(shown, s.Name) })
		err := write(cmd)
		if err == nil && len(shown) > 0 {
			_, err = fmt.Fprintf(cmd.OutOrStderr(), "\nAll settings of the agent: %s %s --help\n", parent.CommandPath(), listAll)
		}
		return err
	})
}

// settingsOf returns the settings that the help of a command lists: those without which it does not find the agent,
// and those that its own words are about.
func settingsOf(command string) []string {
	usual := []string{"config", "state-dir"}
	switch command {
	case listAll, "bash", "completion", "fish", "help", "powershell", "version", "zsh":
		return nil
	case "serve", "ca":
		return append(usual, "serve", "serve-url", "serve-cert", "serve-key", "serve-plain-http")
	case "enroll":
		return append(usual, "cluster-type", "environment", "hub", "hub-key")
	case "rebind":
		return append(usual, "cluster-type", "environment", "platform", "ring")
	}
	return usual
}
