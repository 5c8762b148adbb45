package trustcmd

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher/trust"
)

func newSignCommand() *cobra.Command {
	var signer flags.Signers
	var registry flags.Registry
	var merge []string
	var previous, output string
	cmd := &cobra.Command{
		Use:   "sign FILE (--key FILE | --merge FILE)…",
		Short: "Add signatures to a trust document",
		Long: `Add a signature per key to the document in FILE, where it is. Several people sign one after the other, or each
a copy on a machine of their own, whose signatures --merge brings together.

A key has to be a root key of this version or of the one before. For one that is of the version before alone,
because this version removes it, give that version with --previous, as a file or the location where it is.`,
		Example: `  wherry trust sign trust.v1.json --key anna.key
  wherry trust sign trust.v1.json --merge from-bob/trust.v1.json --merge from-carol/trust.v1.json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := args[0]
			envelope, err := flags.ReadTrust(file)
			if err != nil {
				return err
			}
			before, err := readPrevious(cmd, previous, envelope, registry)
			if err != nil {
				return err
			}
			for _, name := range merge {
				other, err := flags.ReadTrust(name)
				if err != nil {
					return err
				}
				if envelope, err = trust.Join(envelope, other); err != nil {
					return wrongFile(err, "--merge "+name)
				}
			}
			keys, err := signer.Open(cmd)
			if err != nil {
				return err
			}
			if envelope, err = trust.Sign(envelope, before, keys); err != nil {
				return wrongFile(err, file)
			}
			output = cmp.Or(output, file)
			return save(cmd, output, output == file, envelope, before)
		},
	}
	f := cmd.Flags()
	signer.AddOptional(cmd)
	f.StringArrayVar(&merge, "merge", nil, "add the signatures of this copy of `FILE`; may be repeated")
	cmd.MarkFlagsOneRequired("key", "merge")
	f.StringVarP(&output, "output", "o", "", "write to this `FILE` in place of FILE")
	cli.NotEmpty(cmd, "output")
	addPrevious(cmd, &previous)
	registry.AddTo(cmd)
	return cmd
}
