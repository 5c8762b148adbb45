// Package regularfile opens files that people name, and never waits: a pipe without a writer would hang its reader where no
// signal reaches it, and a device may do something when it is opened. So only regular files are read; the pipe
// of a shell's <(command) is refused too.
//
// Begin with [Open], or [Read] for all that a file holds.
package regularfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// ErrNotRegular is wrapped where a name stands for something else than a regular file.
var ErrNotRegular = errors.New("only regular files are read")

// Open opens a regular file, or what links lead to. Its errors are of type *fs.PathError.
func Open(name string) (*os.File, error) {
	info, err := os.Stat(name) // to open a device may already do something
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

// Read returns what a regular file holds, which may be limit bytes.
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
