package trustcmd

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher/trust"
)

func newPublishCommand() *cobra.Command {
	var to, format string
	var registry flags.Registry
	cmd := &cobra.Command{
		Use:   "publish FILE [--to LOCATION]",
		Short: "Publish a signed version",
		Long: `Put a version at LOCATION, oci://HOST/PREFIX or oci-layout:DIR, in the repository trust under the tag v1,
v2 and so on. It has to be the next one there, and signed by as many root keys as it needs. What is there
is never replaced; publishing the same again changes nothing.

The exit code is 5 while signatures are missing, and 4 where another document has the version already.`,
		Example: "  wherry trust publish trust.v1.json --to oci://127.0.0.1:5000/edge",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := flags.Settings()
			if err != nil {
				return err
			}
			loc, err := flags.Location(s, "to", to)
			if err != nil {
				return err
			}
			envelope, err := flags.ReadTrust(args[0])
			if err != nil {
				return err
			}
			done, err := trust.Publish(cmd.Context(), envelope, loc, registry.Options())
			if err != nil {
				return wrong(err, args[0], loc)
			}
			return cli.Print(cmd.OutOrStdout(), format, done, func(w io.Writer) {
				fmt.Fprintln(w, "VERSION\tRESULT\tREFERENCE\tDIGEST")
				fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", done.Version, done.Result, done.Reference, done.Digest)
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "the `LOCATION` to publish to (default the registry of the settings)")
	registry.AddTo(cmd)
	cli.OutputFlag(cmd, &format)
	return cmd
}
