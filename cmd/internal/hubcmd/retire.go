package hubcmd

import (
	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/hub/store"
)

func newClustersRetireCommand(dir *location) *cobra.Command {
	a := administrator{dir: dir}
	var reason string
	cmd := &cobra.Command{
		Use:   "retire NAME|UID",
		Short: "Retire a cluster that no longer exists",
		Long: `End the registration of a cluster that does not exist any more. It is not expected to report, its name is
free, and an agent that still has its key is told that it was retired, and why. Its history stays, and
"clusters list" goes on to show it. "clusters add" brings it back.`,
		Example: `  wherry hub clusters retire plant-7 --reason "sold in May"`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.change(cmd, args[0], func(at registrar) (store.Identity, string, error) {
				r, err := at.RetireCluster(cmd.Context(), args[0], reason)
				if r.RetiredAt != nil {
					return r.Identity, "was retired already", err
				}
				return r.Identity, "retired", err
			})
		},
	}
	a.addTo(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "the `TEXT` that the agent and people are told")
	return cmd
}
