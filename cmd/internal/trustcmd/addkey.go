package trustcmd

import (
	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/publisher/trust"
)

func newAddKeyCommand() *cobra.Command {
	var edit edit
	var role, file, name string
	cmd := &cobra.Command{
		Use:   "add-key FILE --role root|release --public-key PUB [-o NEXT]",
		Short: "Add a signing key",
		Long: `Add a key to a role of the document in FILE: in FILE itself while nobody has signed it, else in the next
version, which -o names.`,
		Example: `  wherry trust add-key trust.v1.json --role release --public-key dave.pub -o trust.v2.json
  wherry trust add-key trust.v2.json --role root --public-key dave.pub`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if name != "" {
				file = name + "=" + file
			}
			key, err := readKey("public-key", file)
			if err != nil {
				return err
			}
			return edit.run(cmd, args[0], trust.AddKey(role, key))
		},
	}
	addRole(cmd, &role)
	cmd.Flags().StringVar(&file, "public-key", "", "the key's `PUB` file (required)")
	cmd.Flags().StringVar(&name, "name", "", "the `NAME` of whose it is, for people (default the file's name)")
	_ = cmd.MarkFlagRequired("public-key")
	edit.add(cmd)
	return cmd
}
