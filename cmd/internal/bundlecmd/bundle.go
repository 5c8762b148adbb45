// Package bundlecmd holds the commands about published bundles: wherry bundle … and wherry verify. Begin with Command and
// Verify.
package bundlecmd

import (
	"github.com/spf13/cobra"
)

// Command returns the command wherry bundle.
func Command() *cobra.Command {
	cmd := &cobra.Command{Use: "bundle", Short: "Show, copy and clean up releases"}
	cmd.AddCommand(newCatCommand(), newCopyCommand(), newFilesCommand(), newGCCommand(), newInspectCommand(), newListCommand())
	return cmd
}
