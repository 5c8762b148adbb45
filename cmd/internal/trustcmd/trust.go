// Package trustcmd holds the commands wherry trust …, which make, change, sign, publish and show trust documents. Package
// publisher/trust knows their content. Begin with Command.
package trustcmd

import (
	"github.com/spf13/cobra"
)

// Command returns the command wherry trust.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trust",
		Short: "Manage signing keys and thresholds",
		Long: `Make, sign and publish trust documents. One says which keys sign releases and how many of them have to (the
release keys), and which keys may change that (the root keys). Agents start from version 1, which is
installed on them, and believe a later version only if as many root keys of the version before, and of
its own, as each asks for have signed it.

A document is a file. While nobody has signed it, rotate, add-key and remove-key change it where it is. Once
it has its signatures they leave it alone and begin the next version, in the file that -o names. One that
some have signed, and not enough, is left alone too: somebody has agreed to it as it is.`,
	}
	cmd.AddCommand(newAddKeyCommand(), newInitCommand(), newPublishCommand(), newRemoveKeyCommand(),
		newRotateCommand(), newShowCommand(), newSignCommand())
	return cmd
}
