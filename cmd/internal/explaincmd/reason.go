package explaincmd

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/similar"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/docs"
)

// printReason prints the rows of the documentation about a reason.
func printReason(cmd *cobra.Command, name string) error {
	known := docs.Reasons()
	rows := known[name]
	if rows == nil {
		for other := range known {
			if strings.EqualFold(other, name) {
				name, rows = other, known[other]
			}
		}
	}
	if rows == nil {
		names := slices.Sorted(maps.Keys(known))
		for _, c := range cmd.Commands() {
			names = append(names, c.Name())
		}
		hint := "docs/operations.md and docs/adapters.md list the reasons, docs/lint.md the codes"
		if near := similar.To(name, names); near != "" {
			hint = fmt.Sprintf("did you mean %s?", near)
		}
		return cli.Fail(cli.Usage, fmt.Errorf("there is no command, code or reason %q", name), hint)
	}
	out := cmd.OutOrStdout()
	for i, r := range rows {
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "%s (%s, %s)\n", name, r.Section, r.Page)
		for _, c := range r.Cells {
			text := c[1]
			if c[0] != "" {
				text = c[0] + ": " + text
			}
			fmt.Fprintln(out, indentLines(wrap(text, 98)))
		}
	}
	return nil
}
