package diff

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/impact"
	"github.com/wherry-dev/wherry/publisher/outdir"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/scheduler"
)

// Folder returns the changes that rendering planned into a folder would make. The folder must exist and be one that
// [outdir.Write] would write to. Its content is not signed. Fleet may be nil for the platform's own roster.
func Folder(ctx context.Context, planned platform.Built, dir string, fleet *impact.Fleet) (*Difference, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // it was only read
	c, err := New(planned, dir)
	if err != nil {
		return nil, err
	}
	if fleet != nil {
		c.Fleet = *fleet
	}
	if err := c.folder(ctx, root); err != nil {
		return nil, fmt.Errorf("compare with %s: %w", dir, err)
	}
	c.Conclude()
	c.Done.Checks = c.Done.judge(c.Result.Checks, c.Result.ClusterTypes, c.Fleet)
	return c.Done, nil
}

func (c *Comparison) folder(ctx context.Context, root *os.Root) error {
	types := slices.Clone(c.Result.ClusterTypes)
	var names []string
	for _, ct := range types {
		names = append(names, ct.Name)
	}
	owned, err := outdir.Owned(root, names)
	if err != nil {
		return err
	}
	for _, name := range owned {
		if !slices.Contains(names, name) {
			types = append(types, scheduler.ClusterTypeResult{Name: name})
		}
	}
	commit, err := root.ReadFile(scheduler.TrackingFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	c.Done.OldBaseCommit = strings.TrimSpace(string(commit))
	for i, ct := range types {
		old, err := folderOf(root, ct.Name)
		if err != nil {
			return err
		}
		now := StateOf(ct)
		now.keep = len(c.Loaded.Unread)+len(c.Result.FailedPolicies) > 0
		d, err := c.Type(ctx, now, old)
		if err != nil {
			return err
		}
		if d.Left = i >= len(names); d.Left {
			d.Result = ResultChanged // its README.md goes, even if nothing else does
		}
		c.Done.ClusterTypes = append(c.Done.ClusterTypes, *d)
	}
	return nil
}

// folderOf lists the assignments of a cluster type's folder; nil where there is none.
func folderOf(root *os.Root, clusterType string) (*Tree, error) {
	entries, err := fs.ReadDir(root.FS(), clusterType)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	files, err := fs.Sub(root.FS(), clusterType)
	tree := &Tree{namesOnly: true}
	tree.Read = func(a bundle.Assignment) (map[string][]byte, error) { return readFolder(files, a.Name) }
	for _, e := range entries {
		if e.IsDir() {
			tree.Listed = append(tree.Listed, bundle.Assignment{Name: e.Name()})
		}
	}
	return tree, err
}

// readFolder returns the files of a folder that are not empty, by path.
func readFolder(from fs.FS, folder string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := fs.WalkDir(from, folder, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			if name == folder && errors.Is(err, fs.ErrNotExist) {
				return nil // all its files are empty
			}
			return err
		}
		below := strings.TrimPrefix(name, folder+"/")
		if !e.Type().IsRegular() {
			files[below] = []byte("no regular file\n")
			return nil
		}
		f, err := from.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		data, err := io.ReadAll(io.LimitReader(f, maxRenderedBytes)) // more is no file that was rendered
		if len(data) > 0 {
			files[path.Clean(below)] = data
		}
		return err
	})
	return files, err
}

// maxRenderedBytes bounds the size of a file that is compared.
const maxRenderedBytes = 8 << 20
