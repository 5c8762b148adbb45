package airgapcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/airgap/export"
	"github.com/wherry-dev/wherry/airgap/medium"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
)

func newSplit() *cobra.Command {
	var path, size string
	cmd := &cobra.Command{
		Use:   "split MEDIUM… [--split SIZE] -o FILE",
		Short: "Split a site package into other parts",
		Long: `Write a site package that exists again, in parts of another size, or without --split as one file. MEDIUM is its file, its
parts in any order, or a folder with one package. It is read as a whole first, and not written if it is damaged. The
releases in it stay as they are: no registry and no key is needed.

Exit codes: 0 written, 1 damaged or incomplete, 2 wrong usage, 3 it failed, 130 interrupted.`,
		Example: `  wherry airgap split site.tar --split fat32 -o /media/stick/site.tar
  wherry airgap split /media/stick -o site.tar`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if path == "" {
				return cli.Fail(cli.Usage, errors.New("missing --output"), "-o site.tar writes site.tar, or site.tar.001 and so on with --split")
			}
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				return cli.Fail(cli.Usage, fmt.Errorf("--output: %s is a folder", path), "")
			}
			split, err := parseSplit(size)
			if err != nil {
				return err
			}
			return splitPackage(cmd, args, path, split)
		},
	}
	cmd.Flags().StringVarP(&path, "output", "o", "", "write to `FILE`, which is replaced")
	cmd.Flags().StringVar(&size, "split", "", "write parts of at most `SIZE`, such as 2GiB, or fat32 for 4 GiB less one byte")
	_ = cmd.RegisterFlagCompletionFunc("split", cobra.FixedCompletions([]string{"fat32"}, cobra.ShellCompDirectiveNoFileComp))
	cli.NotEmpty(cmd, "output", "split")
	return cmd
}

func splitPackage(cmd *cobra.Command, names []string, path string, split int64) (err error) {
	src, err := medium.Open(medium.OS{}, os.Stdin, names...)
	if err != nil {
		return mediumFailure(err, names)
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	content := src.Content()
	if content == nil {
		return cli.Usagef("%s is not a file or parts of one", src.Name())
	}
	head, err := src.Reader()
	if err != nil {
		return mediumFailure(err, names)
	}
	read, err := readPackage(cmd, medium.Package{Source: src, Head: head}, names)
	if err != nil {
		return err
	}
	if parts := src.Damaged(cmd.Context()); parts != nil && read.Whole { // behind the end of the package
		return cli.Fail(cli.No, parts, "copy it again")
	}
	files, err := rewrite(cmd.Context(), content, path, split)
	switch {
	case cmd.Context().Err() != nil:
		return cmd.Context().Err()
	case err != nil:
		return failure.Of(err, absentFolder(path))
	}
	cmd.PrintErrf("wrote %s (%s) to %s\n", src.Name(), show.Size(content.Size()), show.Count(len(files), "file"))
	for _, file := range files {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), file); err != nil {
			return err
		}
	}
	return nil
}

// rewrite writes content to path, in parts of split bytes, and returns the paths of the files. It leaves nothing if it fails.
func rewrite(ctx context.Context, content *io.SectionReader, path string, split int64) ([]string, error) {
	fsys, dir, largest := medium.OS{}, filepath.Dir(path), content.Size()
	if split > 0 {
		largest = min(largest, split)
	}
	switch space := fsys.Space(dir); {
	case space.Known && space.Free < content.Size():
		return nil, &export.SpaceError{Dir: dir, Need: content.Size(), Free: space.Free}
	case space.MaxFile > 0 && largest > space.MaxFile:
		return nil, &export.FileSizeError{Dir: dir, Need: largest, Max: space.MaxFile}
	}
	out, err := medium.Create(fsys, path, split)
	if errors.Is(err, fs.ErrExist) { // of a run that was killed
		if err := medium.RemovePartial(fsys, path); err != nil {
			return nil, err
		}
		out, err = medium.Create(fsys, path, split)
	}
	if err != nil {
		return nil, err
	}
	progress := cli.NewProgress("writing " + path)
	defer progress.End()
	for buf := make([]byte, 1<<20); err == nil; err = ctx.Err() {
		n, end := content.Read(buf)
		if _, err := out.Write(buf[:n]); err != nil {
			return nil, errors.Join(err, out.Discard())
		}
		progress.Update(out.Size(), content.Size())
		if errors.Is(end, io.EOF) {
			return out.Files(), out.Commit()
		}
		if end != nil {
			return nil, errors.Join(end, out.Discard())
		}
	}
	return nil, errors.Join(err, out.Discard())
}
