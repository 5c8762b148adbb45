package trustcmd

import (
	"cmp"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher/trust"
)

// edit holds the flags of the commands that change a document.
type edit struct {
	output, validFor string
}

func (e *edit) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&e.validFor, "valid-for", "", "the `TIME` for which it lets new releases in (default as long as before)")
	cmd.Flags().StringVarP(&e.output, "output", "o", "", "the `FILE` to write the next version to; not needed while nobody has signed FILE")
	cli.NotEmpty(cmd, "output")
}

// run applies changes to file, or makes the next version.
func (e *edit) run(cmd *cobra.Command, file string, changes ...trust.Change) error {
	envelope, err := flags.ReadTrust(file)
	if err != nil {
		return err
	}
	if e.validFor != "" {
		validFor, err := flags.ParseValidity("valid-for", e.validFor)
		if err != nil {
			return err
		}
		changes = append(changes, trust.ValidFor(validFor))
	}
	next, err := trust.Edit(envelope, time.Now(), changes...)
	if err != nil {
		return wrongFile(err, file)
	}
	draft, err := trust.IsDraft(envelope)
	if err != nil {
		return err
	}
	if e.output == "" && !draft {
		return cli.Usagef("%s is signed and cannot be changed: pass -o FILE for the next version", file)
	}
	output := cmp.Or(e.output, file)
	return save(cmd, output, draft && output == file, next, nil)
}

// addRole adds the flag that names a role.
func addRole(cmd *cobra.Command, role *string) {
	cmd.Flags().StringVar(role, "role", "", "the `ROLE`, root or release (required)")
	_ = cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{trust.RoleRelease, trust.RoleRoot}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.MarkFlagRequired("role")
}
