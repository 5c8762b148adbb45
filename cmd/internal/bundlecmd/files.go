package bundlecmd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/catalog"
)

func newFilesCommand() *cobra.Command {
	var format string
	var from flags.Published
	cmd := &cobra.Command{
		Use:   "files REF [PATH]",
		Short: "List the files of a release",
		Long: `List the files of a release with their sizes, or those at or below PATH. Each assignment has a folder, and .wherry
has the lists of assignments and artifacts. What is listed has the digests that the release says.

The record of an environment, environments/NAME, has one file: ledger.

More: wherry help release-names`,
		Example: `  wherry bundle files drone:11
  wherry bundle files oci-layout:./out/bundles/dev/drone till-test --key cosign.pub`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			below := "."
			if len(args) == 2 {
				below = args[1]
			}
			ref, err := openedReference(cmd, &from, args[0])
			if err != nil {
				return err
			}
			if environment, is := published.EnvironmentOf(ref.Repository); is {
				data, err := readLedger(cmd, &from, ref, environment)
				if err != nil {
					return err
				}
				files := []catalog.File{{Path: catalog.LedgerFile, Size: int64(len(data))}}
				return cli.Print(cmd.OutOrStdout(), format, files, func(w io.Writer) { filesTable(w, files) })
			}
			return openReference(cmd, &from, ref, func(r *catalog.Released) error {
				files, err := r.Files(clean(below))
				if err != nil {
					return noFile(err, r, below)
				}
				return cli.Print(cmd.OutOrStdout(), format, files, func(w io.Writer) { filesTable(w, files) })
			})
		},
	}
	from.AddTo(cmd)
	cli.OutputFlag(cmd, &format)
	return cmd
}

func filesTable(w io.Writer, files []catalog.File) {
	fmt.Fprintln(w, "SIZE\tPATH")
	for _, f := range files {
		name := show.Line(f.Path)
		if f.Executable {
			name += " (executable)"
		}
		fmt.Fprintf(w, "%d\t%s\n", f.Size, name)
	}
}

// clean returns a path in a release as package fs wants it.
func clean(name string) string {
	if name = path.Clean("/" + name)[1:]; name == "" {
		return "."
	}
	return name
}

// noFile is the error of a path that a release does not have.
func noFile(err error, r *catalog.Released, name string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return cli.Fail(cli.Failed, fmt.Errorf("release %s has no %q", r.Name(), name), fmt.Sprintf("%q lists its files", "wherry bundle files "+r.Reference))
	}
	return err
}

// openedReference returns the release or record that a person names.
func openedReference(cmd *cobra.Command, from *flags.Published, text string) (oci.Reference, error) {
	if err := from.Open(); err != nil {
		return oci.Reference{}, err
	}
	return from.Reference(cmd, text)
}

// readLedger reads the ledger of an environment's record.
func readLedger(cmd *cobra.Command, from *flags.Published, ref oci.Reference, environment string) ([]byte, error) {
	signers, err := from.Trust(cmd, ref)
	if err != nil {
		return nil, err
	}
	data, err := catalog.Ledger(cmd.Context(), ref, environment, signers, from.Registry.Options())
	if err != nil {
		return nil, from.Failure(cmd.Context(), err, ref)
	}
	return data, nil
}

func openReference(cmd *cobra.Command, from *flags.Published, ref oci.Reference, use func(*catalog.Released) error) error {
	signers, err := from.Trust(cmd, ref)
	if err != nil {
		return err
	}
	r, err := catalog.OpenReleased(cmd.Context(), ref, signers, from.Registry.Options())
	if err != nil {
		return from.Failure(cmd.Context(), err, ref)
	}
	err = use(r)
	if closed := r.Close(); err == nil {
		err = closed
	}
	return err
}
