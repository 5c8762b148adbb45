// Package diskfile reads and writes files of the operating system where mistakes are easy to make.
//
// Open and Read take files that people name, and never block: opening a pipe without a writer would block where no signal
// ends it, and opening a device may have side effects. So they read regular files only, and refuse even the pipe of a shell's
// <(command). WriteFile, Replace and Create write a file that survives a crash and a power cut as a whole or not at all.
// NewScratch makes a folder for temporary files that goes at every end of a process. KeepPrivate takes permissions away from
// other users.
package diskfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// ErrNotRegular is wrapped by errors about names of anything but a regular file.
var ErrNotRegular = errors.New("only regular files are read")

// Open opens a regular file, and follows links. The caller closes it. Its errors are of type *fs.PathError.
func Open(name string) (*os.File, error) {
	info, err := os.Stat(name) // before opening, which may have side effects on a device
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		err = &fs.PathError{Op: "open", Path: name, Err: failed.Err}
	}
	if err == nil {
		err = check(name, info)
	}
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may be a pipe by now
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil {
		err = check(name, info)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// Read returns the content of a regular file of at most limit bytes. A longer file is an error.
func Read(name string, limit int64) ([]byte, error) {
	f, err := Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return ReadAll(name, f, limit)
}

// ReadAll is Read for an open file; name is for the error.
func ReadAll(name string, r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", name, limit)
	}
	return data, err
}

func check(name string, info fs.FileInfo) error {
	var is string
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return &fs.PathError{Op: "open", Path: name, Err: syscall.EISDIR}
	case mode&fs.ModeNamedPipe != 0:
		is = "a pipe"
	case mode&fs.ModeSocket != 0:
		is = "a socket"
	default:
		is = "a device"
	}
	return &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("it is %s, and %w", is, ErrNotRegular)}
}
