package trustcmd

import (
	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/publisher/trust"
)

func newRemoveKeyCommand() *cobra.Command {
	var edit edit
	var role, file, id string
	cmd := &cobra.Command{
		Use:   "remove-key FILE --role root|release (--key-id ID | --public-key PUB) [-o NEXT]",
		Short: "Remove a signing key",
		Long: `Take a key out of a role of the document in FILE: in FILE itself while nobody has signed it, else in the
next version, which -o names. "wherry trust show" lists the ids; the first digits do.

What the key has signed so far stays valid. Where it may have been stolen, add "wherry trust rotate --raise-epoch".`,
		Example: `  wherry trust remove-key trust.v1.json --role release --public-key carol.pub -o trust.v2.json
  wherry trust remove-key trust.v2.json --role root --key-id 51c2ab03`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if file != "" {
				key, err := readKey("public-key", file)
				if err != nil {
					return err
				}
				id = key.ID
			}
			return edit.run(cmd, args[0], trust.RemoveKey(role, id))
		},
	}
	addRole(cmd, &role)
	cmd.Flags().StringVar(&id, "key-id", "", "the key's `ID`, or its first digits")
	cmd.Flags().StringVar(&file, "public-key", "", "the key's `PUB` file")
	cmd.MarkFlagsOneRequired("key-id", "public-key")
	cmd.MarkFlagsMutuallyExclusive("key-id", "public-key")
	edit.add(cmd)
	return cmd
}
