package trustcmd

import (
	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/publisher/trust"
)

func newRotateCommand() *cobra.Command {
	var edit edit
	var raise bool
	var root, release int
	cmd := &cobra.Command{
		Use:   "rotate FILE [-o NEXT]",
		Short: "Create the next version",
		Long: `Begin the next version of the document in FILE, with the same keys, valid from now. Where nobody has signed
FILE, it is changed itself.

--raise-epoch is the answer to stolen keys: every release so far is refused from then on, and their sequences
begin again. Remove the keys in the same version, and publish the releases again after it. Given twice before
anybody has signed, it raises the epoch once.`,
		Example: `  wherry trust rotate trust.v1.json -o trust.v2.json
  wherry trust rotate trust.v2.json --raise-epoch --release-threshold 2`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if root < 0 || release < 0 {
				return cli.Usagef("a threshold is 1 or more")
			}
			changes := []trust.Change{trust.Thresholds(root, release)}
			if raise {
				changes = append(changes, trust.RaiseEpoch)
			}
			return edit.run(cmd, args[0], changes...)
		},
	}
	cmd.Flags().BoolVar(&raise, "raise-epoch", false, "refuse all releases signed so far")
	cmd.Flags().IntVar(&root, "root-threshold", 0, "the `NUMBER` of root keys that have to sign the version after it")
	cmd.Flags().IntVar(&release, "release-threshold", 0, "the `NUMBER` of release keys that have to sign a release")
	edit.add(cmd)
	return cmd
}
