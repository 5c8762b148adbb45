package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

func unknownLintCode(code string) error {
	return cli.Fail(cli.Usage, fmt.Errorf("unknown code %q", code), "docs/lint.md lists the codes, such as W1203")
}

// explainCode prints what a code of a finding means, with an example and the remedy.
func explainCode(cmd *cobra.Command, code string) error {
	c, ok := finding.Explain(code)
	if !ok {
		return unknownLintCode(code)
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%s (%s): %s\n\n%s\n", c.Code, c.Severity(), c.Title, wrap(c.Text, 100))
	if c.Example != "" {
		fmt.Fprintf(out, "\nExample\n%s\n", indentLines(c.Example))
	}
	_, err := fmt.Fprintf(out, "\nWhat to do\n%s\n", indentLines(wrap(c.Remedy, 98)))
	return err
}

// wrap breaks a text into lines of at most width characters.
func wrap(s string, width int) string {
	var lines []string
	current := ""
	for word := range strings.FieldsSeq(s) {
		if current != "" && len(current)+1+len(word) > width {
			lines, current = append(lines, current), ""
		}
		current = strings.TrimSpace(current + " " + word)
	}
	return strings.Join(append(lines, current), "\n")
}

func indentLines(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n  ")
}
