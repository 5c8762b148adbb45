// Package durable writes small files that survive a crash and a power cut: as a whole or not at all.
package durable

import (
	"errors"
	"os"
	"path/filepath"
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

// SyncDir returns when the names in a folder are on the disk.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
