package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// TestTheReferenceOfCommandsIsCurrent compares docs/reference/commands.md with the help of all commands.
func TestTheReferenceOfCommandsIsCurrent(t *testing.T) {
	const page = "../../docs/reference/commands.md"
	var b strings.Builder
	b.WriteString("# Commands\n\nMade of the commands' help by `go test ./cmd/wherry -run TestTheReferenceOfCommandsIsCurrent -update`.\n")
	for _, name := range []string{program, agentProgram} {
		referTo(&b, rootOf(name))
	}
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(b.String()), 0o644))
	}
	has, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(has), "-update writes it anew")
}

// referTo writes a section for each command that does something, sorted.
func referTo(b *strings.Builder, cmd *cobra.Command) {
	if cmd.Runnable() && !cmd.Hidden && cmd.Name() != "help" {
		fmt.Fprintf(b, "\n## %s\n\n%s.\n\n```\n%s\n```\n", cmd.CommandPath(), cmd.Short, cmd.UseLine())
		rows := ""
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Name == "help" {
				return
			}
			name := "`--" + f.Name + "`"
			if f.Shorthand != "" {
				name = "`-" + f.Shorthand + "`, " + name
			}
			value, usage := pflag.UnquoteUsage(f)
			if value != "" {
				name += " `" + value + "`"
			}
			if f.DefValue != "" && !slices.Contains([]string{"false", "[]", "0", "0s"}, f.DefValue) {
				usage += " (default " + f.DefValue + ")"
			}
			rows += "| " + name + " | " + cell(usage) + " |\n"
		})
		if rows != "" {
			b.WriteString("\n| flag | |\n|-|-|\n" + rows)
		}
	}
	sub := cmd.Commands()
	slices.SortFunc(sub, func(a, b *cobra.Command) int { return strings.Compare(a.Name(), b.Name()) })
	for _, c := range sub {
		if !c.Hidden {
			referTo(b, c)
		}
	}
}

var marks = regexp.MustCompile(`[|<>*_]`)

// cell is text in the cell of a table.
func cell(s string) string {
	return marks.ReplaceAllString(strings.Join(strings.Fields(s), " "), `\$0`)
}
