package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher/keys"
)

func newKeysCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "keys", Short: "Manage keys that sign releases"}
	cmd.AddCommand(newKeysGenerateCommand())
	return cmd
}

func newKeysGenerateCommand() *cobra.Command {
	var prefix string
	var password flags.Password
	var allowEmpty bool
	cmd := &cobra.Command{
		Use:   "generate [-o PREFIX]",
		Short: "Generate a cosign key pair",
		Long: `Make a cosign key pair: PREFIX.key, encrypted with a password, signs releases; PREFIX.pub is what agents
pin. cosign itself reads both. The paths are printed. An existing file is never replaced.

The password comes from --password-file, else from ` + flags.PasswordVariable + `, else from the terminal.`,
		Example: `  wherry keys generate
  wherry keys generate -o release --password-file password.txt`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if prefix == "" {
				return cli.Usagef("-o is empty")
			}
			secret, err := password.Read(cmd, true)
			if err != nil {
				return err
			}
			if len(secret) == 0 && !allowEmpty {
				return cli.Fail(cli.Usage, errors.New("empty password: anyone who can read the key file could sign releases"),
					"give a password, or --allow-empty-password if that is what you want")
			}
			files, err := keys.Generate(prefix, secret)
			if errors.Is(err, fs.ErrExist) {
				return cli.Fail(cli.Usage, err, "name another PREFIX with -o; what an old key has signed stays valid")
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n%s\n", files.Private, files.Public)
			return err
		},
	}
	cmd.Flags().StringVarP(&prefix, "output", "o", "cosign", "the files' common path, `PREFIX`, without .key and .pub")
	cmd.Flags().BoolVar(&allowEmpty, "allow-empty-password", false, "leave the private key as good as unencrypted if the password is empty")
	password.AddTo(cmd)
	return cmd
}
