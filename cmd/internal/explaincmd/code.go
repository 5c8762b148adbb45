package explaincmd

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// Code returns the code of a finding, in any case of letters. An unknown one is an error of usage.
func Code(code string) (finding.Explanation, error) {
	c, ok := finding.Explain(code)
	if !ok {
		return c, cli.Fail(cli.Usage, fmt.Errorf("unknown code %q", code), `"wherry help findings" lists the codes, such as W1203`)
	}
	return c, nil
}

// printCode prints the meaning of a finding's code, with an example and the remedy.
func (x *question) printCode(cmd *cobra.Command, code string) error {
	c, err := Code(code)
	if err != nil {
		return err
	}
	answer := struct {
		finding.Explanation
		Severity string `json:"severity"`
	}{c, c.Severity()}
	return cli.Print(cmd.OutOrStdout(), x.format, answer, func(w io.Writer) {
		fmt.Fprintf(w, "%s (%s): %s\n\n%s\n", c.Code, c.Severity(), c.Title, cli.Wrap(c.Text, 100))
		if c.Example != "" {
			fmt.Fprintf(w, "\nExample\n%s\n", cli.IndentLines(c.Example))
		}
		fmt.Fprintf(w, "\nWhat to do\n%s\n", cli.IndentLines(cli.Wrap(c.Remedy, 98)))
	})
}
