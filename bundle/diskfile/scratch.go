package diskfile

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

// Scratch is a folder for temporary files. It is held by a lock that ends with its process.
type Scratch struct {
	// Path is an empty folder of mode 0700.
	Path string

	root string
	lock *os.File
}

// NewScratch makes a folder below the system's one for temporary files, and removes there what processes have left that are gone. The
// caller closes it.
func NewScratch() (*Scratch, error) {
	sweepScratch(os.TempDir())
	for range attempts {
		root, err := os.MkdirTemp("", prefix)
		if err != nil {
			return nil, err
		}
		lock, err := os.OpenFile(filepath.Join(root, lockName), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(root))
		}
		f := &Scratch{Path: filepath.Join(root, filesName), root: root, lock: lock}
		if held, err := TryLock(lock); err != nil {
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
func (f *Scratch) Close() error {
	return errors.Join(os.RemoveAll(f.Path), f.lock.Close(), os.RemoveAll(f.root))
}

// sweepScratch removes the folders whose processes are gone. What cannot be removed, such as another user's, stays.
func sweepScratch(dir string) {
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
		if held, err := TryLock(lock); err == nil && held {
			_ = os.RemoveAll(root)
		}
		_ = lock.Close()
	}
}
