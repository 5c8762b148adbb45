package authorcmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/publisher/author"
)

// formatting holds the flags of fmt.
type formatting struct {
	check, diff bool
}

// Format returns the command wherry fmt.
func Format() *cobra.Command {
	var f formatting
	cmd := &cobra.Command{
		Use:   "fmt [FILE|DIR]...",
		Short: "Format YAML files",
		Long: `Give the YAML files of a platform one form: two spaces of indentation, lists too; apiVersion, kind, metadata and spec first; no
space at the ends of lines; one blank line at most. Without FILE or DIR, all files of the platform around the current
folder are formatted, and in a DIR those that a platform would read. The files that change are printed.

No value, comment, quote, anchor or line end changes. What is written in a way that cannot be moved safely stays as it is.`,
		Example: `  wherry fmt
  wherry fmt --check dev templates/plain.yaml
  wherry fmt -d`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{author.Top(".")}
			}
			return f.run(cmd, args)
		},
	}
	cmd.Flags().BoolVar(&f.check, "check", false, "print the files that would change, write nothing, and exit with 1 if there are any")
	cmd.Flags().BoolVarP(&f.diff, "diff", "d", false, "print what would change, and write nothing")
	return cmd
}

func (f *formatting) run(cmd *cobra.Command, args []string) error {
	plan, err := author.Format(cmd.Context(), args)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if f.diff {
		fmt.Fprint(out, plan.Diff())
	} else {
		for _, c := range plan.Changes {
			fmt.Fprintln(out, show.Line(c.Name))
		}
	}
	for _, e := range plan.Mistakes {
		cmd.PrintErrf("%s\n", cli.Indented(e.Error()))
	}
	switch {
	case !f.check && !f.diff:
		if err := plan.Apply(); err != nil {
			return err
		}
	case f.check && len(plan.Changes) > 0:
		return cli.Exit(cli.No)
	}
	if len(plan.Mistakes) > 0 {
		return cli.Exit(cli.Usage)
	}
	return nil
}
