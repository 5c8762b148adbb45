package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/diagnosis"
	"github.com/wherry-dev/wherry/bundle/show"
)

// PrintFindings prints the findings of checks in a format. The error has exit code 1 if a check has failed.
func PrintFindings(cmd *cobra.Command, format string, r diagnosis.Report) error {
	err := Print(cmd.OutOrStdout(), format, r, func(w io.Writer) {
		fmt.Fprintf(w, "CHECK\tRESULT\tMESSAGE\n")
		for _, f := range r.Checks {
			Row(w, f.Check, string(f.Result), f.Message)
			if f.Remedy != "" {
				fmt.Fprintf(w, "\t\tremedy: %s\n", show.Line(f.Remedy))
			}
		}
	})
	if err != nil || r.OK {
		return err
	}
	return Fail(No, fmt.Errorf("%d of %s failed", r.Count(diagnosis.Failed), show.Count(len(r.Checks), "check")), "")
}
