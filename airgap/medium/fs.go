package medium

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/oci/archive"
)

// FS is a file system that is written. Names are those of the operating system.
type FS interface {
	archive.FS
	// Create opens a file for reading and writing. Its error wraps fs.ErrExist if the file exists.
	Create(name string) (File, error)
	// Reopen opens an existing file for reading and writing, at its beginning. Its error wraps ErrBusy if another process
	// writes it.
	Reopen(name string) (File, error)
	// Rename replaces a file of the new name.
	Rename(from, to string) error
	Remove(name string) error
	// SyncDir returns once the names in a folder are on disk.
	SyncDir(dir string) error
	// Space describes the room in a folder.
	Space(dir string) Space
}

// File is an open file that is written.
type File interface {
	archive.File
	io.Writer
	Truncate(size int64) error
	Sync() error
}

// Space is the room in a folder, in bytes.
type Space struct {
	Free  int64 // what may still be written; meaningful if Known
	Known bool
	// MaxFile bounds one file; zero if only the room does.
	MaxFile int64
}

// FAT32 is the size of the largest file that FAT32 holds.
const FAT32 = 4<<30 - 1

// ErrBusy means that another process is writing the file.
var ErrBusy = errors.New("another process is writing it")

// OS is the operating system's file system.
type OS struct{ archive.OS }

// Create opens a file for reading and writing, which must not exist.
func (OS) Create(name string) (File, error) {
	return open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

// Reopen opens a regular file for reading and writing.
func (OS) Reopen(name string) (File, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("not a regular file")}
	}
	return open(name, os.O_RDWR)
}

// open takes the lock of the file, which ends with the process.
func open(name string, flags int) (File, error) {
	f, err := os.OpenFile(name, flags|syscall.O_NONBLOCK, 0o666)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.Join(err, f.Close())}
	}
	return f, nil
}

// Rename replaces a file of the new name.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove removes a file.
func (OS) Remove(name string) error { return os.Remove(name) }

// SyncDir returns once the names in a folder are on disk.
func (OS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) { // network file systems that sync names at once
		err = nil
	}
	return errors.Join(err, d.Close())
}

// Space asks the file system.
func (OS) Space(dir string) Space {
	free, known := oci.RoomIn(dir)
	return Space{Free: free, Known: known, MaxFile: maxFile(dir)}
}
