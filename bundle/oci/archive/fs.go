package archive

import (
	"io"
	"io/fs"
	"os"

	"github.com/wherry-dev/wherry/bundle/diskfile"
)

// FS is the part of a file system that is read. Names are those of the operating system. OS is the real one; another may
// stand for a medium that behaves in another way.
type FS interface {
	// Open opens a regular file, never anything else, and never blocks.
	Open(name string) (File, error)
	Stat(name string) (fs.FileInfo, error)
	ReadDir(name string) ([]fs.DirEntry, error)
}

// File is an open file.
type File interface {
	io.Reader
	io.ReaderAt
	io.Seeker
	io.Closer
	Stat() (fs.FileInfo, error)
}

// OS is the operating system's file system.
type OS struct{}

// Open opens a regular file for reading.
func (OS) Open(name string) (File, error) {
	f, err := diskfile.Open(name)
	if err != nil {
		return nil, err // not a File that holds a nil pointer
	}
	return f, nil
}

// Stat follows links.
func (OS) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }

// ReadDir lists a folder, sorted by name.
func (OS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }
