// Package scratch makes folders for temporary files that go at every end of a process.
//
// Begin with [New], and close the [Folder]. What a process leaves that was killed, or whose machine lost power, is removed by the
// next New of the same user: a folder is held by a lock, which ends with its process.
package scratch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

const (
	prefix = "wherry-tmp-"
	// lockName is the file in a folder that is locked as long as its process lives, and filesName the folder for its user.
	lockName, filesName = "lock", "files"
	// attempts bounds how often a folder is made anew because another process has taken it for one that was left.
	attempts = 10
)

// Folder is a folder for temporary files.
type Folder struct {
	// Path is an empty folder of mode 0700.
	Path string

	root string
	lock *os.File
}

// New makes a folder below the system's one for temporary files, and removes there what processes have left that are gone. The
// caller closes it.
func New() (*Folder, error) {
	sweep(os.TempDir())
	for range attempts {
		root, err := os.MkdirTemp("", prefix)
		if err != nil {
			return nil, err
		}
		lock, err := os.OpenFile(filepath.Join(root, lockName), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(root))
		}
		f := &Folder{Path: filepath.Join(root, filesName), root: root, lock: lock}
		if held, err := hold(lock); err != nil {
			return nil, errors.Join(err, f.Close())
		} else if !held { // a sweep of this moment has it
			_ = f.Close()
			continue
		}
		err = os.Mkdir(f.Path, 0o700)
		if errors.Is(err, os.ErrNotExist) { // a sweep had it before the lock was ours, and has ended since
			_ = f.Close()
			continue
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
	return nil, errors.New("no folder for temporary files can be kept")
}

// Close removes the folder with all that is in it.
func (f *Folder) Close() error {
	return errors.Join(os.RemoveAll(f.Path), f.lock.Close(), os.RemoveAll(f.root))
}

// sweep removes the folders whose processes are gone. What cannot be removed, such as another user's, stays.
func sweep(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		root := filepath.Join(dir, e.Name())
		lock, err := os.OpenFile(filepath.Join(root, lockName), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if held, err := hold(lock); err == nil && held {
			_ = os.RemoveAll(root)
		}
		_ = lock.Close()
	}
}
