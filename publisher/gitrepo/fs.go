package gitrepo

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/opencontainers/go-digest"
)

// treeFS is the tree of a commit as an fs.FS, read from the object store: there is no checkout. Files have
// no modification time, and links are listed but cannot be opened, so that nothing leads out of the tree.
type treeFS struct {
	root    *object.Tree
	objects storer.EncodedObjectStorer
}

// Open returns a file or a folder of the tree. It may be called by several goroutines only as far as the
// object store may.
func (g *treeFS) Open(name string) (fs.File, error) {
	file, err := g.open(name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return file, nil
}

func (g *treeFS) open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, fs.ErrInvalid
	}
	if name == "." {
		return &treeFolder{info: treeInfo{name: ".", mode: fs.ModeDir | 0o755, object: g.root.Hash.String()}, fs: g, tree: g.root}, nil
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
		return &treeFolder{info: info, fs: g, tree: tree}, err
	case info.mode.IsRegular() && info.size > MaxFileBytes: // before go-git takes it into memory
		return nil, fmt.Errorf("%w: %d bytes, at most %d are read", ErrTooLarge, info.size, MaxFileBytes)
	case info.mode.IsRegular():
		blob, err := object.GetBlob(g.objects, entry.Hash)
		if err != nil {
			return nil, err
		}
		r, err := blob.Reader()
		return &treeFile{ReadCloser: r, info: info}, err
	}
	return nil, fmt.Errorf("%w: a link or submodule", fs.ErrInvalid)
}

func isMissing(err error) bool {
	return errors.Is(err, object.ErrEntryNotFound) || errors.Is(err, object.ErrDirectoryNotFound) ||
		errors.Is(err, object.ErrFileNotFound)
}

// info describes an entry; only a file's size needs the object store.
func (g *treeFS) info(name string, entry object.TreeEntry) (treeInfo, error) {
	info := treeInfo{name: name, mode: entryMode(entry.Mode), object: entry.Hash.String()}
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

type treeFile struct {
	io.ReadCloser
	info treeInfo
}

func (f *treeFile) Stat() (fs.FileInfo, error) { return f.info, nil }

type treeFolder struct {
	info treeInfo
	fs   *treeFS
	tree *object.Tree
	next int // the entry that ReadDir returns next
}

func (d *treeFolder) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *treeFolder) Close() error               { return nil }

func (d *treeFolder) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.info.name, Err: errors.New("is a folder")}
}

// ReadDir returns the entries in git's order, in which a folder sorts as if its name ended in a slash.
func (d *treeFolder) ReadDir(n int) ([]fs.DirEntry, error) {
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
		entries = append(entries, treeEntry{fs: d.fs, entry: e})
	}
	return slices.Clip(entries), nil
}

type treeEntry struct {
	fs    *treeFS
	entry object.TreeEntry
}

func (e treeEntry) Name() string               { return e.entry.Name }
func (e treeEntry) IsDir() bool                { return e.entry.Mode == filemode.Dir }
func (e treeEntry) Type() fs.FileMode          { return entryMode(e.entry.Mode).Type() }
func (e treeEntry) Info() (fs.FileInfo, error) { return e.fs.info(e.entry.Name, e.entry) }
func (e treeEntry) String() string             { return fs.FormatDirEntry(e) }

type treeInfo struct {
	name string
	size int64
	mode fs.FileMode
	// object is the digest by which git knows the content of a file or folder, in hexadecimal digits.
	object string
}

// ObjectOf returns the digest by which git knows the content of a file, or of a folder with all that is in it: two with one
// digest are the same. It is empty for files of no git tree.
func ObjectOf(info fs.FileInfo) string {
	of, _ := info.(treeInfo)
	return of.object
}

// ID returns the digest by which git knows a folder of a git tree. Without the folders that are hidden, it is the SHA-256 of the lines PATH
// MODE DIGEST of all the rest.
func ID(files fs.FS, hidden ...string) (string, error) {
	lines, whole := []string(nil), ""
	err := fs.WalkDir(files, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if slices.Contains(hidden, name) {
			return fs.SkipDir
		}
		if e.IsDir() && slices.ContainsFunc(hidden, func(h string) bool { return name == "." || strings.HasPrefix(h, name+"/") }) {
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if whole = ObjectOf(info); name != "." {
			lines = append(lines, fmt.Sprintln(name, info.Mode(), whole))
		}
		if e.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil || lines == nil {
		return whole, err
	}
	return digest.FromString(strings.Join(lines, "")).String(), nil
}

func (i treeInfo) Name() string       { return i.name }
func (i treeInfo) Size() int64        { return i.size }
func (i treeInfo) Mode() fs.FileMode  { return i.mode }
func (i treeInfo) ModTime() time.Time { return time.Time{} }
func (i treeInfo) IsDir() bool        { return i.mode.IsDir() }
func (i treeInfo) Sys() any           { return nil }
