// Package airgapcmd has the commands that write site packages, and read what comes back.
package airgapcmd

import "github.com/spf13/cobra"

// New returns the command airgap.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "airgap",
		Short: "Carry bundles and their artifacts to sites without a network",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(newExport(), newReports())
	return cmd
}
