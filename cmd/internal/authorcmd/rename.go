package authorcmd

import (
	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/publisher/author"
)

// Rename returns the command wherry rename.
func Rename() *cobra.Command {
	var at place
	cmd := &cobra.Command{
		Use:   "rename KIND NAME NEW",
		Short: "Rename an object and all references to it",
		Long: `Rename an object of a platform with all that refers to it: labels, selectors, annotations, policies, Clusters, settings, and
the file or folder that has its name. KIND is a kind, or workspace, ring or group (of people who approve promotions), which are no objects. All other bytes of the files
stay. Without -e, the objects of that name in all environments are renamed.

Each place that changes is printed, or with --dry-run the difference.`,
		Example: `  wherry rename cluster-type edge kiosk --dry-run
  wherry rename environment dev test
  wherry rename workspace shop-team till-team`,
		Args:              cobra.ExactArgs(3),
		ValidArgsFunction: completeObject(author.Workspace, author.Ring, author.Group),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, err := author.Kind(args[0])
			if err != nil {
				return err
			}
			p, err := at.open(cmd)
			if err != nil {
				return err
			}
			plan, err := p.Rename(cmd.Context(), kind, args[1], args[2], at.environment)
			if err != nil {
				return err
			}
			return at.apply(cmd, plan)
		},
	}
	at.addTo(cmd)
	at.addEnvironment(cmd, "rename only the object in the folder of this environment, `NAME`")
	return cmd
}
