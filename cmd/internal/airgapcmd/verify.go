package airgapcmd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/airgap/medium"
	"github.com/wherry-dev/wherry/bundle/oci/archive"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
)

func newVerify() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "verify MEDIUM…",
		Short: "Verify every byte of a site package",
		Long: `Read a site package as a whole, and compare every stream, blob and part with its digest, as the site will. MEDIUM is
the package's file, its parts in any order, a folder with packages, or an unpacked one. What the package says to leave out
is not missed. Who has signed the releases is not asked: "wherry verify" does that, and so does each agent.

Exit codes: 0 whole, 1 damaged or incomplete, 2 wrong usage, 3 it cannot be read, 130 interrupted.`,
		Example: `  wherry airgap verify /media/stick
  wherry airgap verify site.tar`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return verify(cmd, args, format) },
	}
	cli.OutputFlag(cmd, &format)
	return cmd
}

// verified is what -o json prints of each package.
type verified struct {
	Package string `json:"package"`
	Whole   bool   `json:"whole"`
	airgap.Checked
	// Parts says which files of a package in parts are not as they were written.
	Parts string `json:"parts,omitempty"`
}

func verify(cmd *cobra.Command, paths []string, format string) error {
	packages, skipped, err := medium.OpenEach(medium.OS{}, os.Stdin, paths...)
	if err != nil {
		return mediumFailure(err, paths)
	}
	all := []verified{}
	var errs []error
	for _, p := range packages {
		result, err := readPackage(cmd, p, paths)
		errs = append(errs, err, p.Close())
		if cmd.Context().Err() != nil {
			return cmd.Context().Err()
		}
		if result.Package != "" {
			all = append(all, result)
		}
	}
	for _, item := range skipped {
		if item.Err != nil && (errors.Is(item.Err, archive.ErrDamaged) || !errors.Is(item.Err, airgap.ErrFormat)) {
			errs = append(errs, cli.Fail(cli.No, fmt.Errorf("%s: %w", item.Name, item.Err), "copy it again, or delete it"))
			continue
		}
		cmd.PrintErrf("note: %s is no package\n", item.Name)
	}
	if failed := cli.Print(cmd.OutOrStdout(), format, all, func(w io.Writer) {
		for _, v := range all {
			verifiedTable(w, v)
		}
	}); failed != nil {
		return failed
	}
	return firstOf(errs)
}

// firstOf returns all errors as one, with the exit code and the hint of the first; nil if there are none.
func firstOf(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) < 2 {
		return errors.Join(errs...)
	}
	e := &cli.Error{Code: cli.Failed}
	_ = errors.As(errs[0], &e)
	return cli.Fail(e.Code, errors.Join(errs...), e.Hint)
}

// readWhole reads a package as a whole. The error is that of one that is not as it was written, too.
func readWhole(cmd *cobra.Command, path string) (result verified, err error) {
	src, err := medium.Open(medium.OS{}, os.Stdin, path)
	if err != nil {
		return result, mediumFailure(err, []string{path})
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	r, err := src.Reader()
	if err != nil {
		return result, mediumFailure(err, []string{path})
	}
	return readPackage(cmd, medium.Package{Source: src, Head: r}, []string{path})
}

// readPackage reads an opened package to its end.
func readPackage(cmd *cobra.Command, src medium.Package, paths []string) (result verified, err error) {
	r := src.Head
	progress := cli.NewProgress("reading " + src.Name())
	checked, err := airgap.Check(cmd.Context(), r, func(done int64) {
		total := int64(0)
		if c := r.Contents(); c != nil {
			total = c.Bytes
		}
		progress.Update(done, total)
	})
	progress.End()
	if cmd.Context().Err() != nil {
		return result, cmd.Context().Err()
	}
	if err != nil && !errors.Is(err, airgap.ErrFormat) {
		return result, mediumFailure(err, paths)
	}
	result = verified{Package: src.Name(), Whole: err == nil && len(checked.Faults) == 0, Checked: checked}
	if !result.Whole {
		if parts := src.Damaged(cmd.Context()); parts != nil {
			result.Parts = parts.Error()
		}
	}
	if result.Faults == nil {
		result.Faults = []airgap.Fault{}
	}
	if result.Whole {
		return result, nil
	}
	text := fmt.Sprintf("%s is damaged: %s", src.Name(), show.Count(len(checked.Faults), "blob"))
	if err != nil {
		text = err.Error()
	}
	if result.Parts != "" {
		text += ": " + result.Parts
	}
	return result, cli.Fail(cli.No, errors.New(text), "copy it again, or write it again with wherry airgap export")
}

func verifiedTable(w io.Writer, v verified) {
	fmt.Fprintf(w, "%s: %s and %s read\n", v.Package, show.Count(v.Blobs, "blob"), show.Size(v.Bytes))
	if v.Whole {
		fmt.Fprintln(w, "all is as it was written")
		return
	}
	if len(v.Faults) == 0 {
		return
	}
	cli.Row(w, "BLOB", "FAULT", "NEEDED BY")
	for _, f := range v.Faults {
		cli.Row(w, f.Digest.String(), f.Text, strings.Join(f.NeededBy, ", "))
	}
}

// mediumFailure gives an error of opening a package its exit code and a hint.
func mediumFailure(err error, paths []string) error {
	return failure.Of(err, cli.Is(fs.ErrNotExist, cli.Usage, "is the medium mounted? (findmnt "+paths[0]+")"),
		cli.Is(airgap.ErrFormat, cli.No, `give a package that "wherry airgap export" wrote, or copy it again`))
}
