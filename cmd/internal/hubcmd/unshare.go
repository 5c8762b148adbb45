package hubcmd

import (
	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/hub/store"
)

func newClustersUnshareCommand(dir *location) *cobra.Command {
	a := administrator{dir: dir}
	cmd := &cobra.Command{
		Use:   "unshare NAME|UID",
		Short: "Clear a cluster's shared-identity mark",
		Long: `Say that one agent alone has a cluster's identity again, which is shown as SharedIdentity while reports have come
from two, as after a disk was copied. See to it first: "wherry-agent enroll --new-identity" on the copy. If
reports show it again, it is marked again. A new key, by "wherry-agent enroll --rotate" on the original, ends
it as well, and has the copy refused.`,
		Example: "  wherry hub clusters unshare plant-7",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.change(cmd, args[0], func(at registrar) (store.Identity, string, error) {
				r, err := at.Unshare(cmd.Context(), args[0])
				if r.SharedSince == nil && r.Conflicts == 0 {
					return r.Identity, "had one agent already", err
				}
				return r.Identity, "has one agent again", err
			})
		},
	}
	a.addTo(cmd)
	return cmd
}
