//go:build !linux

package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// syncTree has dir and all below it on disk before it returns.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}
