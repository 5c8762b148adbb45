package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/cmd/internal/agentcmd"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
)

// rootOf is the command of the program with this name: wherry, if it is neither.
func rootOf(name string) *cobra.Command {
	if name == agentProgram {
		return agentcmd.Program("")
	}
	return newRootCommand()
}

// eachCommand visits all commands of both programs.
func eachCommand(visit func(cmd *cobra.Command)) {
	var down func(cmd *cobra.Command)
	down = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			down(sub)
		}
		visit(cmd)
	}
	down(rootOf(program))
	down(rootOf(agentProgram))
}

func TestHelpNamesTheValuesOfAllFlags(t *testing.T) {
	eachCommand(func(cmd *cobra.Command) {
		for _, flags := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
			flags.VisitAll(func(f *pflag.Flag) {
				if f.Value.Type() != "bool" { // else help would call it by its type in Go
					require.Contains(t, f.Usage, "`", "%s --%s", cmd.CommandPath(), f.Name)
				}
			})
		}
	})
}

func TestShellsCompleteTheFlagsOfAllCommandsInPlainWords(t *testing.T) {
	eachCommand(func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())
		root := rootOf(path[0])
		var out strings.Builder
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(append([]string{cobra.ShellCompRequestCmd}, append(path[1:], "--")...))
		require.Equal(t, cli.OK, cli.Main(root, failure.Everywhere))
		require.NotContains(t, out.String(), "`", cmd.CommandPath())
	})
}

func TestHelpIsShort(t *testing.T) {
	pages := map[string]string{}
	for _, topic := range topics {
		text, err := topicText(topic.page)
		require.NoError(t, err)
		require.Contains(t, text, "# ")
		pages[topic.name] = topic.page
	}
	eachCommand(func(cmd *cobra.Command) {
		if cmd.Hidden && pages[cmd.Name()] == "" {
			return // not for people
		}
		require.LessOrEqual(t, len(strings.Fields(cmd.Short)), 8, "%s: %s", cmd.CommandPath(), cmd.Short)
		text, more, found := strings.Cut(cmd.Long, "\n\nMore: wherry help ")
		if found {
			for _, name := range strings.Split(more, ", ") {
				require.Contains(t, pages, name, cmd.CommandPath())
			}
		}
		lines := 0
		for _, paragraph := range strings.Split(text, "\n\n") {
			if !strings.Contains(paragraph, "xit code") {
				lines += 1 + strings.Count(paragraph, "\n") + 1
			}
		}
		require.LessOrEqual(t, lines-1, 15, cmd.CommandPath())
	})
}
