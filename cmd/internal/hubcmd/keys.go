package hubcmd

import (
	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub"
)

func newKeysCommand(dir *location) *cobra.Command {
	cmd := &cobra.Command{Use: "keys", Short: "Show the hub's signing key"}
	cmd.AddCommand(&cobra.Command{
		Use:   "show",
		Short: "Print the hub's public key",
		Long: `Print the hub's public key, in PEM. An agent that is given it with --hub-key deletes the reports that
this hub acknowledges; without it an agent deletes none.`,
		Example: "  wherry hub keys show > hub.pub",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var pem []byte
			err := withHub(*dir, hub.Options{MustExist: true}, func(h *hub.Hub) (err error) {
				pem, err = bundle.MarshalPublicKey(h.PublicKey())
				return err
			})
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(pem)
			return err
		},
	})
	return cmd
}
