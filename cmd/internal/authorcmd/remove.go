package authorcmd

import (
	"github.com/spf13/cobra"
)

// Remove returns the command wherry rm.
func Remove() *cobra.Command {
	var at place
	cmd := &cobra.Command{
		Use:   "rm KIND NAME",
		Short: "Remove an object that nothing refers to",
		Long: `Remove an object of a platform, and its file if no other object is in it. If anything refers to the object, nothing is
removed, each reference is listed with its file and line, and the exit code is 1.`,
		Example: `  wherry rm template argocd --dry-run
  wherry rm cluster-type kiosk -e dev`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: completeObject(),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, err := kindOf(args[0])
			if err != nil {
				return err
			}
			p, err := at.open(cmd)
			if err != nil {
				return err
			}
			plan, err := p.Remove(cmd.Context(), kind, args[1], at.environment)
			if err != nil {
				return err
			}
			return at.apply(cmd, plan)
		},
	}
	at.addTo(cmd)
	at.addEnvironment(cmd, "the object in the folder of this environment, `NAME`")
	return cmd
}
