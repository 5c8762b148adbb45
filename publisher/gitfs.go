package publisher

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// gitFS is the tree of a commit as an fs.FS, read from the object store: there is no checkout. Files have
// no modification time, and links are listed but cannot be opened, so that nothing leads out of the tree.
type gitFS struct {
	root    *object.Tree
	objects storer.EncodedObjectStorer
}

// Open returns a file or a folder of the tree. It may be called by several goroutines only as far as the
// object store may.
func (g *gitFS) Open(name string) (fs.File, error) {
	file, err := g.open(name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return file, nil
}

func (g *gitFS) open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, fs.ErrInvalid
	}
	if name == "." {
		return &gitFolder{info: gitInfo{name: ".", mode: fs.ModeDir | 0o755}, fs: g, tree: g.root}, nil
	}
	entry, err := g.root.FindEntry(name)
	if isMissing(err) {
		return nil, fs.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	info, err := g.info(path.Base(name), *entry)
	if err != nil {
		return nil, err
	}
	switch {
	case info.IsDir():
		tree, err := object.GetTree(g.objects, entry.Hash)
		return &gitFolder{info: info, fs: g, tree: tree}, err
	case info.mode.IsRegular() && info.size > maxFileBytes: // before go-git takes it into memory
		return nil, fmt.Errorf("%w: %d bytes, at most %d are read", ErrTooLarge, info.size, maxFileBytes)
	case info.mode.IsRegular():
		blob, err := object.GetBlob(g.objects, entry.Hash)
		if err != nil {
			return nil, err
		}
		r, err := blob.Reader()
		return &gitFile{ReadCloser: r, info: info}, err
	}
	return nil, fmt.Errorf("%w: a link or submodule", fs.ErrInvalid)
}

func isMissing(err error) bool {
	return errors.Is(err, object.ErrEntryNotFound) || errors.Is(err, object.ErrDirectoryNotFound) ||
		errors.Is(err, object.ErrFileNotFound)
}

// info describes an entry; only a file's size needs the object store.
func (g *gitFS) info(name string, entry object.TreeEntry) (gitInfo, error) {
	info := gitInfo{name: name, mode: entryMode(entry.Mode)}
	if !info.mode.IsRegular() {
		return info, nil
	}
	size, err := g.objects.EncodedObjectSize(entry.Hash)
	info.size = size
	return info, err
}

func entryMode(mode filemode.FileMode) fs.FileMode {
	switch mode {
	case filemode.Dir:
		return fs.ModeDir | 0o755
	case filemode.Regular, filemode.Deprecated:
		return 0o644
	case filemode.Executable:
		return 0o755
	case filemode.Symlink:
		return fs.ModeSymlink | 0o777
	}
	return fs.ModeIrregular // a submodule
}

type gitFile struct {
	io.ReadCloser
	info gitInfo
}

func (f *gitFile) Stat() (fs.FileInfo, error) { return f.info, nil }

type gitFolder struct {
	info gitInfo
	fs   *gitFS
	tree *object.Tree
	next int // the entry that ReadDir returns next
}

func (d *gitFolder) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *gitFolder) Close() error               { return nil }

func (d *gitFolder) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.info.name, Err: errors.New("is a folder")}
}

// ReadDir returns the entries in git's order, in which a folder sorts as if its name ended in a slash.
func (d *gitFolder) ReadDir(n int) ([]fs.DirEntry, error) {
	rest := d.tree.Entries[d.next:]
	if n > 0 && len(rest) == 0 {
		return nil, io.EOF
	}
	if n > 0 && n < len(rest) {
		rest = rest[:n]
	}
	d.next += len(rest)
	entries := make([]fs.DirEntry, 0, len(rest))
	for _, e := range rest {
		// A tree that somebody wrote by hand may hold names that lead elsewhere.
		if e.Name == "." || e.Name == ".." || !fs.ValidPath(e.Name) || path.Base(e.Name) != e.Name {
			return nil, &fs.PathError{Op: "readdir", Path: d.info.name, Err: fmt.Errorf("%w: entry %q", fs.ErrInvalid, e.Name)}
		}
		entries = append(entries, gitEntry{fs: d.fs, entry: e})
	}
	return slices.Clip(entries), nil
}

type gitEntry struct {
	fs    *gitFS
	entry object.TreeEntry
}

func (e gitEntry) Name() string               { return e.entry.Name }
func (e gitEntry) IsDir() bool                { return e.entry.Mode == filemode.Dir }
func (e gitEntry) Type() fs.FileMode          { return entryMode(e.entry.Mode).Type() }
func (e gitEntry) Info() (fs.FileInfo, error) { return e.fs.info(e.entry.Name, e.entry) }
func (e gitEntry) String() string             { return fs.FormatDirEntry(e) }

type gitInfo struct {
	name string
	size int64
	mode fs.FileMode
}

func (i gitInfo) Name() string       { return i.name }
func (i gitInfo) Size() int64        { return i.size }
func (i gitInfo) Mode() fs.FileMode  { return i.mode }
func (i gitInfo) ModTime() time.Time { return time.Time{} }
func (i gitInfo) IsDir() bool        { return i.mode.IsDir() }
func (i gitInfo) Sys() any           { return nil }
