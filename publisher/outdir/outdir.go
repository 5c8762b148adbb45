// Package outdir writes a rendered environment into a folder, laid out as Kalypso does.
//
// Begin with [Write]. It owns the folders of cluster types completely: stale files go, other people's folders stay.
// Files are replaced whole or not at all. Nothing in the folder is signed.
package outdir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/scheduler"
)

// ErrForeign is returned for an output folder with files that neither wherry nor Kalypso wrote.
var ErrForeign = errors.New("not written by wherry or Kalypso")

// Options are the options of [Write]. The zero value is ready for use.
type Options struct {
	// Force takes over a folder that holds other files. What lies in the folders of cluster types goes.
	Force bool
	// Keep removes no assignment's folder, because which there should be is not known.
	Keep bool
}

// Changes are the files that [Write] touched, as sorted paths below the output folder.
type Changes struct {
	Written   []string
	Removed   []string // files; folders that became empty go with them
	Unchanged int
}

// Write writes a rendered environment as Kalypso lays it out into dir, which it creates if need be.
//
// It owns the folders of cluster types and the tracking file: what the result does not hold goes, except
// the files of failed assignments, which stay as they lie there (with Keep those of all that are not
// rendered). Other folders go only if their README.md says that they were a cluster type's; files at the
// root and folders whose name starts with a dot stay. A file is replaced whole or not at all, and an equal
// one is not touched. The new files are complete on the same disk before the first old one is replaced;
// until then the end of ctx leaves all as it was.
func Write(ctx context.Context, dir string, result *scheduler.Result, opts Options) (Changes, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Changes{}, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Changes{}, err
	}
	defer func() { _ = root.Close() }()
	tree := &outputTree{root: root, keep: opts.Keep, files: map[string][]byte{}, folders: map[string]bool{}, kept: map[string]bool{}}
	if err := tree.plan(result, opts.Force); err != nil {
		return Changes{}, fmt.Errorf("%s: %w", dir, err)
	}
	if err := tree.apply(ctx); err != nil {
		return Changes{}, fmt.Errorf("write %s: %w", dir, err)
	}
	return tree.changes, nil
}

// stagingFolder holds the new files until all are complete.
const stagingFolder = ".wherry-staging"

// outputTree is the difference between a folder and its wanted content.
type outputTree struct {
	root    *os.Root
	files   map[string][]byte // the wanted files, by path
	folders map[string]bool   // the wanted folders
	kept    map[string]bool   // folders of failed assignments
	keep    bool              // keep the folders of all assignments that are not rendered, too
	emptied []string          // folders to remove, parents first
	changes Changes
}

func (t *outputTree) plan(result *scheduler.Result, force bool) error {
	for _, f := range scheduler.Tree(result) {
		if err := t.want(f); err != nil {
			return err
		}
	}
	var types []string
	for _, ct := range result.ClusterTypes {
		types = append(types, ct.Name)
		for _, failure := range ct.Failures {
			if failure.Taken {
				continue
			}
			keep := path.Join(ct.Name, failure.Name)
			t.kept[keep] = true
			t.wantFolders(keep)
		}
	}
	owned, err := t.owned(types, force)
	if err != nil {
		return err
	}
	for _, folder := range owned {
		if t.keep && slices.Contains(types, folder) {
			if err := t.keepOthers(folder); err != nil {
				return err
			}
		}
		if err := t.compare(folder); err != nil {
			return err
		}
	}
	if data, ok := t.files[scheduler.TrackingFile]; ok {
		t.compareFile(scheduler.TrackingFile, data)
	}
	for name := range t.files { // without the equal files, which compare has removed
		t.changes.Written = append(t.changes.Written, name)
	}
	slices.Sort(t.changes.Written)
	return nil
}

// keepOthers keeps the folders of a cluster type that nothing is rendered to.
func (t *outputTree) keepOthers(clusterType string) error {
	entries, err := fs.ReadDir(t.root.FS(), clusterType)
	for _, e := range entries {
		name := path.Join(clusterType, e.Name())
		if _, isFile := t.files[name]; e.IsDir() && !t.folders[name] && !isFile {
			t.kept[name] = true
			t.wantFolders(name)
		}
	}
	return err
}

// want notes a file. Its path is made of names in the input, so it is looked at once more here.
func (t *outputTree) want(f scheduler.File) error {
	if !fs.ValidPath(f.Path) || f.Path != scheduler.TrackingFile && strings.HasPrefix(f.Path, ".") || !strings.Contains(f.Path, "/") {
		return fmt.Errorf("%q cannot be a path of the tree", f.Path)
	}
	t.files[f.Path] = f.Data
	t.wantFolders(path.Dir(f.Path))
	return nil
}

func (t *outputTree) wantFolders(dir string) {
	for ; dir != "."; dir = path.Dir(dir) {
		t.folders[dir] = true
	}
}

// owned lists the folders that belong to the tree, and refuses a folder that wherry has not written.
func (t *outputTree) owned(types []string, force bool) ([]string, error) {
	entries, err := fs.ReadDir(t.root.FS(), ".")
	if err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == ".git" || e.Name() == stagingFolder })
	_, err = t.root.Lstat(scheduler.TrackingFile)
	known := err == nil || len(entries) == 0
	var owned []string
	for _, e := range entries {
		name, current, marked := e.Name(), slices.Contains(types, e.Name()), t.isMarked(e)
		known = known || marked
		switch {
		case current && !e.IsDir():
			return nil, fmt.Errorf("%s is in the way: not a folder", name)
		case current && !marked && !force && !t.isEmpty(name):
			return nil, fmt.Errorf("folder %s: %w", name, ErrForeign)
		case current || marked:
			owned = append(owned, name)
		}
	}
	if !known && !force {
		return nil, fmt.Errorf("it holds %s: %w", entries[0].Name(), ErrForeign)
	}
	return owned, nil
}

// isMarked is true for a folder with the README.md that each folder of a cluster type has.
func (t *outputTree) isMarked(e fs.DirEntry) bool {
	if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
		return false
	}
	readme := path.Join(e.Name(), scheduler.ReadmeFile)
	info, err := t.root.Lstat(readme)
	if err != nil || !info.Mode().IsRegular() || info.Size() > 64<<10 {
		return false
	}
	data, err := t.root.ReadFile(readme)
	return err == nil && slices.Contains(strings.Split(string(data), "\n"), scheduler.ReadmeText)
}

func (t *outputTree) isEmpty(folder string) bool {
	entries, err := fs.ReadDir(t.root.FS(), folder)
	return err == nil && len(entries) == 0
}

// compare walks an owned folder: equal files leave t.files, others that are not wanted are to be removed.
func (t *outputTree) compare(folder string) error {
	return fs.WalkDir(t.root.FS(), folder, func(name string, e fs.DirEntry, err error) error {
		data, wanted := t.files[name]
		switch {
		case err != nil:
			return err
		case t.kept[name] && e.IsDir():
			return fs.SkipDir
		case e.IsDir() && !t.folders[name]:
			t.emptied = append(t.emptied, name)
		case e.IsDir(): // stays
		case wanted && e.Type().IsRegular():
			t.compareFile(name, data)
		case !wanted:
			t.changes.Removed = append(t.changes.Removed, name)
		}
		return nil
	})
}

func (t *outputTree) compareFile(name string, data []byte) {
	info, err := t.root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() != int64(len(data)) {
		return
	}
	if old, err := t.root.ReadFile(name); err == nil && bytes.Equal(old, data) {
		delete(t.files, name)
		t.changes.Unchanged++
	}
}

// apply carries the difference out. A run that is killed in between leaves whole files only, some old and
// some new, and the next run completes it; so nothing is fsynced.
func (t *outputTree) apply(ctx context.Context) (err error) {
	if err := t.stage(ctx); err != nil {
		return errors.Join(cause(err), t.unstage())
	}
	defer func() { err = errors.Join(err, t.unstage()) }()
	for _, name := range t.changes.Removed {
		if err := t.root.Remove(name); err != nil {
			return err
		}
	}
	for _, folder := range slices.Backward(t.emptied) {
		if err := t.root.Remove(folder); err != nil {
			return err
		}
	}
	for i, name := range t.changes.Written {
		if err := t.root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
		if err := t.root.Rename(staged(i), name); err != nil {
			return err
		}
	}
	return nil
}

// stage writes the new files beside the tree.
func (t *outputTree) stage(ctx context.Context) error {
	if err := t.unstage(); err != nil || len(t.changes.Written) == 0 {
		return err
	}
	if err := t.root.Mkdir(stagingFolder, 0o755); err != nil {
		return err
	}
	for i, name := range t.changes.Written {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := t.root.WriteFile(staged(i), t.files[name], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// unstage removes the staging folder, also that of a run that was killed.
func (t *outputTree) unstage() error {
	if _, err := t.root.Lstat(stagingFolder); errors.Is(err, fs.ErrNotExist) {
		return nil // of which RemoveAll is not sure on a read-only disk
	}
	return t.root.RemoveAll(stagingFolder)
}

func staged(i int) string { return fmt.Sprintf("%s/%d", stagingFolder, i) }

// cause drops the operation and path that an error of the file system repeats.
func cause(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// Owned lists the folders below root that [Write] would rewrite or remove, where types are the cluster types
// to come. It returns an error wrapping [ErrForeign] for a root that Write would refuse without Force.
func Owned(root *os.Root, types []string) ([]string, error) {
	return (&outputTree{root: root}).owned(types, false)
}
