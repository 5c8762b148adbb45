package bundlecmd

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/catalog"
)

func newCatCommand() *cobra.Command {
	var from flags.Published
	var raw bool
	cmd := &cobra.Command{
		Use:   "cat REF PATH",
		Short: "Print a file of a release",
		Long: `Print a file of a release, as agents would get it. Secrets in it are not masked.

Characters that a terminal or the log of a CI system would execute are escaped; --raw prints every byte as it is, for
a file or another program.

The file ledger of an environment's record, environments/NAME, says which revision of each workload the environment has,
and since when.

More: wherry help release-names`,
		Example: `  wherry bundle cat drone:11 till-test/reconciler.yaml
  wherry bundle cat oci-layout:./out/bundles/dev/drone .wherry/assignments.ndjson --key cosign.pub
  wherry bundle cat environments/prod ledger`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := openedReference(cmd, &from, args[0])
			if err != nil {
				return err
			}
			if environment, is := published.EnvironmentOf(ref.Repository); is {
				if args[1] != catalog.LedgerFile {
					return cli.Usagef("a record has one file: %s", catalog.LedgerFile)
				}
				data, err := readLedger(cmd, &from, ref, environment)
				if err != nil {
					return err
				}
				return printFile(cmd, data, raw)
			}
			return openReference(cmd, &from, ref, func(r *catalog.Released) error {
				return cat(cmd, r, args[1], raw)
			})
		},
	}
	cmd.Flags().BoolVar(&raw, "raw", false, "escape nothing")
	from.AddTo(cmd)
	return cmd
}

func cat(cmd *cobra.Command, r *catalog.Released, name string, raw bool) error {
	data, err := r.ReadFile(clean(name))
	if err != nil {
		if files, below := r.Files(clean(name)); below == nil && len(files) > 0 {
			return cli.Usagef("%s is a folder: name a file in it", name)
		}
		return noFile(err, r, name)
	}
	return printFile(cmd, data, raw)
}

func printFile(cmd *cobra.Command, data []byte, raw bool) error {
	if raw {
		_, err := os.Stdout.Write(data) // not the command's, which escapes
		return err
	}
	if !show.IsSafe(data) {
		cmd.PrintErrln("note: some characters are escaped; --raw prints them as they are")
	}
	_, err := cmd.OutOrStdout().Write(data)
	return err
}
