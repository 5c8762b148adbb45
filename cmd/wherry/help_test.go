package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// typeOfGo is what help calls a flag's value whose text does not name it.
var typeOfGo = regexp.MustCompile(`(?m)^ +(-\w, )?--[\w-]+ (string|stringArray|duration)  `)

func TestHelpOfThePublishersCommandsNamesTheValuesOfFlags(t *testing.T) {
	root := newRootCommand()
	for _, name := range []string{"bundle copy", "bundle gc", "bundle ls", "explain assignment", "lint", "plan", "publish", "render", "schedule", "sign", "verify"} {
		cmd, _, err := root.Find(strings.Fields(name))
		require.NoError(t, err)
		require.Empty(t, typeOfGo.FindAllString(cmd.UsageString(), -1), name)
	}
}

func TestShellsCompleteTheFlagsOfAllCommandsInPlainWords(t *testing.T) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
		root, path := newRootCommand(), strings.Fields(cmd.CommandPath())
		var out strings.Builder
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(append([]string{cobra.ShellCompRequestCmd}, append(path[1:], "--")...))
		require.Equal(t, cli.OK, cli.Main(root))
		require.NotContains(t, out.String(), "`", cmd.CommandPath())
	}
	visit(newRootCommand())
}
