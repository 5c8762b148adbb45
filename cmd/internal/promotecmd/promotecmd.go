// Package promotecmd holds the commands of promotion: wherry gate …, which asks gates and decides at them, and wherry promote. Package
// rollout/gate judges, rollout/facts gathers what it judges by, and rollout/promote promotes. Begin with Gate and Promote.
package promotecmd

import (
	"github.com/spf13/cobra"
)

// Gate returns the command wherry gate.
func Gate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gate",
		Short: "Check gates and record decisions",
		Long: `Ask whether a commit may enter an environment, or a release its next ring, and decide at gates.

A PromotionPolicy says what has to hold: how many clusters of the environment below have to be compliant, for how long, who has
to approve it, and when. The policy that judges is the one which the target environment has now.`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newApproveCommand(), newCheckCommand(), newExplainCommand(), newListCommand(), newOverrideCommand(), newRejectCommand())
	return cmd
}
