package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// WriteFile has write make the file at path: whole and on disk, or not at all. A file that is there is
// replaced; where write fails it stays as it was.
func WriteFile(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreGone(os.Remove(f.Name())))
		}
	}()
	err = write(f)
	if err == nil {
		err = errors.Join(ignoreNoModes(f.Chmod(0o644)), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// ignoreNoModes ignores the error of file systems that keep no modes, such as FAT32.
func ignoreNoModes(err error) error {
	if errors.Is(err, os.ErrPermission) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

func ignoreGone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
