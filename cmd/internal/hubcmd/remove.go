package hubcmd

import (
	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/hub/store"
)

func newClustersRemoveCommand(dir *location) *cobra.Command {
	a := administrator{dir: dir}
	cmd := &cobra.Command{
		Use:     "remove NAME|UID",
		Short:   "Unregister a cluster",
		Long:    "End a cluster's registration: its reports are refused, and it is no longer listed.\nIts history stays in the database. Use \"retire\" for a cluster that existed and is gone.",
		Example: "  wherry hub clusters remove plant-7",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.change(cmd, args[0], func(at registrar) (store.Identity, string, error) {
				removed, err := at.RemoveCluster(cmd.Context(), args[0])
				return removed.Identity, "removed", err
			})
		},
	}
	a.addTo(cmd)
	return cmd
}
