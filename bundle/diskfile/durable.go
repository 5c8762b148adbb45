package diskfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// WriteFile makes data the content of the file, which only this user can read, and returns when that is on the disk.
// It writes path.new first: a file of that name that a crash has left is overwritten. There may be one writer at a time.
func WriteFile(path string, data []byte) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// Replace is WriteFile for several writers at a time, and with a mode. A crash may leave a temporary file beside path.
func Replace(path string, mode fs.FileMode, data []byte) error {
	return ReplaceBy(path, mode, func(w io.Writer) error { _, err := w.Write(data); return err })
}

// ReplaceBy is Replace with the content that write writes. If write fails, the file stays as it was.
func ReplaceBy(path string, mode fs.FileMode, write func(io.Writer) error) error {
	return place(path, mode, write, os.Rename)
}

// Create is Replace with the mode 0600 for a file that must not exist: if it does, the error wraps fs.ErrExist.
func Create(path string, data []byte) error {
	return place(path, 0o600, func(w io.Writer) error { _, err := w.Write(data); return err }, os.Link)
}

func place(path string, mode fs.FileMode, write func(io.Writer) error, move func(from, to string) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone already after a rename
	err = write(f)
	if err == nil {
		err = errors.Join(ignoreNoModes(f.Chmod(mode)), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := move(f.Name(), path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// ignoreNoModes ignores the error of file systems that keep no modes, such as FAT32.
func ignoreNoModes(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// SyncDir returns when the names in a folder are on the disk. Windows has no call for it.
func SyncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
