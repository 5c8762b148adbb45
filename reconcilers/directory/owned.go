package directory

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/wherry-dev/wherry/reconcilers"
)

// That a folder is its assignment's is written beside it, as .wherry/<assignment>.owned: the agent's state may be
// lost, or the disk be another machine's by now. The file is empty, so that its name is all of it, and is there from
// before the folder is put in place until it is gone. Programs that look for manifests in hidden folders too, such as
// k3s, go by extensions, and have none for it. An extended attribute would not do: FAT, NFS and the tmpfs of older
// kernels have none.

// marked reports whether the folder has the mark that it is ours.
func (s *site) marked() (bool, error) {
	_, err := s.root.Lstat(s.owned)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// mark writes that the folder is ours. It is durable with sync.
func (s *site) mark() error {
	if err := s.root.MkdirAll(workDir, 0o755); err != nil {
		return err
	}
	f, err := s.root.OpenFile(s.owned, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// unmark writes, durably, that the folder is not ours.
func (s *site) unmark() error {
	if err := s.root.Remove(s.owned); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return syncDir(s.root, workDir)
}

// empty reports whether the live folder has nothing in it, not even folders.
func (s *site) empty() (bool, error) {
	dir, err := s.root.Open(s.live)
	if err != nil {
		return false, err
	}
	defer dir.Close()
	_, err = dir.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}

// strange reports whether the live folder differs from the wanted content. While the names of some wanted files are not
// known yet, additional files do not count, since they may be among those.
func (v *survey) strange() bool {
	return slices.ContainsFunc(compare("", v.have, v.want), func(c reconcilers.Change) bool {
		return c.Action != reconcilers.Deleted || !v.opaque
	})
}

// owned are the folders that this process knows to be ours. It may be used by several goroutines.
type owned struct {
	mu      sync.Mutex
	folders map[string]bool
}

// has reports whether the folder is known to be ours: then the mark beside it is durable.
func (o *owned) has(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.folders[name]
}

func (o *owned) add(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.folders == nil {
		o.folders = map[string]bool{}
	}
	o.folders[name] = true
}

func (o *owned) forget(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.folders, name)
}

// holds reports whether the folder is the assignment's. The ledger's entry is no proof: it may be about another root.
func (o *owned) holds(s *site) (bool, error) {
	if o.has(s.live) {
		return true, nil
	}
	return s.marked()
}

// check returns an error if the folder holds somebody else's files. A folder that is empty, or that already holds the
// wanted content, may be taken.
func (o *owned) check(s *site, root string, v *survey) error {
	if v.missing {
		return nil
	}
	ours, err := o.holds(s)
	if err != nil || ours || !v.strange() {
		return err
	}
	if empty, err := s.empty(); err != nil || empty {
		return err
	}
	return notOurs("%s was there before, holds something else, and is left alone: move it away, or give another --directory-root", filepath.Join(root, s.live))
}

// take makes it durable that the folder is ours.
func (o *owned) take(s *site) error {
	marked, err := s.marked()
	if err != nil || marked && o.has(s.live) {
		return err
	}
	if err := errors.Join(s.mark(), s.sync()); err != nil {
		return err
	}
	o.add(s.live)
	return nil
}
