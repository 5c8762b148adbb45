package gitrepo

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
)

// Bounds on one source; a platform is text that people write.
const (
	// MaxFileBytes bounds one file, as it does in the scheduler.
	MaxFileBytes   = 8 << 20
	maxSourceBytes = 256 << 20 // all files that are read
	maxEntries     = 200_000   // files and folders that are listed
)

// ErrTooLarge is returned for a source beyond these bounds.
var ErrTooLarge = errors.New("too large")

// guardedFS bounds the bytes and entries that are read from a source, and hides some of its folders.
type guardedFS struct {
	fs.FS
	hidden  []string
	bytes   int64
	entries int
}

// Guard returns files with bounds: beyond them, reading fails with an error wrapping [ErrTooLarge]. The paths in hidden
// are not listed. It serves one goroutine.
func Guard(files fs.FS, hidden ...string) fs.FS { return &guardedFS{FS: files, hidden: hidden} }

func (g *guardedFS) Open(name string) (fs.File, error) {
	file, err := g.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return &guardedFile{File: file, fs: g}, nil
}

// ReadDir bounds the folders too: a small git repository can hold a tree of endless depth and width.
func (g *guardedFS) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(g.FS, name)
	if g.entries += len(entries); g.entries > maxEntries {
		return nil, fmt.Errorf("%w: more than %d files and folders", ErrTooLarge, maxEntries)
	}
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return slices.Contains(g.hidden, path.Join(name, e.Name())) }), err
}

type guardedFile struct {
	fs.File
	fs *guardedFS
}

func (f *guardedFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	if f.fs.bytes += int64(n); f.fs.bytes > maxSourceBytes {
		return n, fmt.Errorf("%w: the files of this source hold more than %d bytes", ErrTooLarge, maxSourceBytes)
	}
	return n, err
}
