package explaincmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// printReason prints the rows of the documentation about a reason.
func printReason(cmd *cobra.Command, name string) error {
	var commands []string
	for _, c := range cmd.Commands() {
		commands = append(commands, c.Name())
	}
	err := cli.WriteReason(cmd.OutOrStdout(), name, `"wherry help operating" and "wherry help engines" list the reasons, "wherry help findings" the codes`, commands...)
	if unknown := (*cli.UnknownReasonError)(nil); errors.As(err, &unknown) {
		return cli.Fail(cli.Usage, fmt.Errorf("there is no command, code or reason %q", unknown.Name), unknown.Hint)
	}
	return err
}
