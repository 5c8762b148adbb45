package directory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/opencontainers/go-digest"
)

// workDir is the folder in the root where content is prepared, on the same file system, so that it can
// be renamed into place, and where it is noted which folders are ours.
const workDir = ".wherry"

// site is the place of one assignment: its folder and those that exist for a while beside it.
type site struct {
	root *os.Root
	live string
	// spare holds the folder that is being prepared, or the one that was replaced: after a crash it is not needed.
	spare string
	// previous is the live folder between the two renames of a file system that cannot exchange.
	previous string
	// fetched holds what came from registries and is not in the live folder yet.
	fetched string
	// owned is there while the live folder is ours; see owned.go.
	owned string
}

func siteIn(root *os.Root, name string) *site {
	at := func(kind string) string { return path.Join(workDir, name+kind) }
	return &site{root, name, at(".spare"), at(".previous"), at(".fetched"), at(".owned")}
}

func openSite(root, name string) (*site, error) {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	info, err := dir.Lstat(name)
	if err == nil && !info.IsDir() {
		dir.Close()
		return nil, notOurs("%s exists and is not a folder: move it away", filepath.Join(root, name))
	}
	return siteIn(dir, name), nil
}

func (s *site) close() error { return s.root.Close() }

// read returns the content of the live folder and its files' metadata; see readTree. The error is
// fs.ErrNotExist if there is no folder.
func (s *site) read(ctx context.Context, known map[string]seen) (tree, map[string]identity, error) {
	dir, err := s.root.OpenRoot(s.live)
	if err != nil {
		return nil, nil, err
	}
	defer dir.Close()
	return readTree(ctx, dir, known)
}

// repair clears up after a crash: a folder that was renamed away and not replaced comes back.
func (s *site) repair() error {
	_, err := s.root.Lstat(s.live)
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.root.Rename(s.previous, s.live); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return s.clear()
}

// clear deletes everything beside the live folder except fetched files.
func (s *site) clear() error {
	if err := errors.Join(s.root.RemoveAll(s.spare), s.root.RemoveAll(s.previous)); err != nil {
		return err
	}
	s.root.Remove(workDir) // which succeeds when nobody else is using it
	return nil
}

// stage fills the spare folder with the survey's wanted files and syncs them to disk. Files that are on this file system
// already are linked, so that a large file takes its space once.
func (s *site) stage(ctx context.Context, dir string, v *survey) error {
	from, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer from.Close()
	if err := s.root.MkdirAll(s.spare, 0o755); err != nil {
		return err
	}
	to, err := s.root.OpenRoot(s.spare)
	if err != nil {
		return err
	}
	defer to.Close()
	for name, f := range v.want {
		if err := s.stageFile(ctx, from, to, name, f, v); err != nil {
			return errors.Join(err, s.clear())
		}
	}
	return fs.WalkDir(to.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return syncDir(to, name)
	})
}

func (s *site) stageFile(ctx context.Context, from, to *os.Root, name string, f file, v *survey) error {
	if err := to.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	old, cached := path.Join(s.live, name), v.cached[name]
	if v.keeps(name) {
		if info, err := s.root.Lstat(old); err == nil && ownAlone(info) && s.root.Link(old, path.Join(s.spare, name)) == nil {
			return nil
		}
	}
	switch {
	case cached != "" && s.root.Link(cached, path.Join(s.spare, name)) == nil:
		return nil
	case cached != "":
		return copyFile(ctx, s.root, cached, to, name, f)
	case v.fetched[name]:
		return copyFile(ctx, s.root, old, to, name, f)
	}
	return copyFile(ctx, from, name, to, name, f)
}

// copyFile writes under a hidden name first, because there are readers, k3s among them, that look into
// hidden folders, and for them a file has to be whole too.
func copyFile(ctx context.Context, from *os.Root, source string, to *os.Root, name string, f file) error {
	in, err := from.Open(source)
	if err != nil {
		return err
	}
	defer in.Close()
	mode := fs.FileMode(0o644)
	if f.executable {
		mode = 0o755
	}
	hidden := path.Join(path.Dir(name), ".wherry-part")
	out, err := to.OpenFile(hidden, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	sum := digest.Canonical.Digester()
	_, err = io.Copy(io.MultiWriter(out, sum.Hash()), reader{ctx, in})
	if err := errors.Join(err, out.Sync(), out.Close()); err != nil {
		return err
	}
	if sum.Digest() != f.content {
		return fmt.Errorf("%s changed while it was copied", name)
	}
	return to.Rename(hidden, name)
}

// swap puts the spare folder into place and deletes the old one.
func (s *site) swap() error {
	err := exchange(s.root, s.spare, s.live)
	switch {
	case errors.Is(err, fs.ErrNotExist): // there is no live folder yet
		err = s.root.Rename(s.spare, s.live)
	case errors.Is(err, errors.ErrUnsupported):
		err = s.swapInTwo()
	}
	if err := errors.Join(err, s.sync()); err != nil {
		return err
	}
	return s.clear()
}

// swapInTwo leaves a moment without a live folder; see repair.
func (s *site) swapInTwo() error {
	if err := s.root.Rename(s.live, s.previous); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := s.sync(); err != nil {
		return err
	}
	return s.root.Rename(s.spare, s.live)
}

// takeAway deletes the live folder, which vanishes at once, and the mark once it has.
func (s *site) takeAway() error {
	if err := s.root.MkdirAll(workDir, 0o755); err != nil {
		return err
	}
	if err := s.root.Rename(s.live, s.spare); err != nil {
		return err
	}
	if err := s.sync(); err != nil {
		return err
	}
	return errors.Join(s.unmark(), s.clear())
}

// sync makes renames between the root and its work folder durable.
func (s *site) sync() error {
	return errors.Join(syncDir(s.root, workDir), syncDir(s.root, "."))
}

func syncDir(root *os.Root, name string) error {
	dir, err := root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
