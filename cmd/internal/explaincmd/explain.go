// Package explaincmd holds the commands wherry explain …: the package scheduler explains from sources, publisher/catalog from
// a published bundle. Begin with Command.
package explaincmd

import (
	"fmt"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/docs"
)

// Command returns the command wherry explain.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain [CODE | REASON]",
		Short: "Say why an assignment or a configuration value is as it is, or what a finding or a reason means",
		Example: `  wherry explain assignment ./dev shop/till-test --environment dev --base ./main
  wherry explain W1203
  wherry explain NotOurs`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return cmd.Help()
			case findingCode.MatchString(args[0]):
				return printCode(cmd, args[0])
			case docs.IsReason(args[0]):
				return printReason(cmd, args[0])
			}
			return cli.Fail(cli.Usage, fmt.Errorf("unknown command or code %q", args[0]), seeHelp(cmd))
		},
	}
	cmd.AddCommand(newAssignmentCommand(), newConfigCommand(), newNoAssignmentCommand())
	return cmd
}

// findingCode is the form of the codes that "wherry lint" gives.
var findingCode = regexp.MustCompile(`^[A-Za-z][0-9]+$`)
