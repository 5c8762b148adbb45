// Package airgapcmd has the commands that write site packages, and read what comes back.
package airgapcmd

import "github.com/spf13/cobra"

// New returns the command airgap.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "airgap",
		Short: "Carry releases and reports by medium",
		Long: `Carry releases to sites without a network on a medium, and the compliance reports of their clusters back.

"airgap export" writes the package, "airgap verify" reads it again, "wherry-agent import" takes it in at the site and writes the reports, and "wherry hub
import" stores them; "airgap reports" shows them where there is no hub.`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newExport(), newVerify(), newSplit(), newReports())
	return cmd
}
