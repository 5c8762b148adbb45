package directory

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/wherry-dev/wherry/reconcilers"
)

// That a folder is its assignment's is written beside it, as .wherry/<assignment>.owned: the agent's state may be
// lost, or the disk be another machine's by now. The file is empty, so that its name is all of it, and is there from
// before the folder is put in place until it is gone. Programs that look for manifests in hidden folders too, such as
// k3s, go by extensions, and have none for it. An extended attribute would not do: FAT, NFS and the tmpfs of older
// kernels have none.

// marked says whether it is written that the folder is ours.
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

// empty says whether there is nothing in the live folder, not even folders.
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

// strange says whether the live folder holds something else than is wanted, as far as that is known yet: an artifact
// that was not read may bring what would not belong there else.
func (v *survey) strange() bool {
	return slices.ContainsFunc(compare("", v.have, v.want), func(c reconcilers.Change) bool {
		return c.Action != reconcilers.Deleted || !v.opaque
	})
}

// ours says whether the folder is known to be the assignment's. What the ledger has does not say so: it may be of
// another root.
func (r *Reconciler) ours(s *site, name string) (bool, error) {
	if _, known := r.known(name); known {
		return true, nil
	}
	return s.marked()
}

// known says whether this process knows that the folder is ours, and has seen to it that the mark is durable.
func (r *Reconciler) known(name string) (durable, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	durable, known = r.owned[name]
	return durable, known
}

func (r *Reconciler) know(name string, durable bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owned[name] = durable
}

// disown forgets that the folder was ours, with what was fetched for it.
func (r *Reconciler) disown(ctx context.Context, name string) {
	r.mu.Lock()
	delete(r.owned, name)
	r.mu.Unlock()
	r.forget(ctx, name)
}

// checkOurs refuses to touch what somebody else has put into the folder. One that is empty, or holds what is wanted
// already, may be taken.
func (r *Reconciler) checkOurs(s *site, name string, v *survey) error {
	if v.missing {
		return nil
	}
	ours, err := r.ours(s, name)
	if err != nil || ours || !v.strange() {
		return err
	}
	if empty, err := s.empty(); err != nil || empty {
		return err
	}
	return notOurs("%s was there before, holds something else, and is left alone: move it away, or give another --directory-root", filepath.Join(r.root, name))
}

// own makes it durable that the folder is ours.
func (r *Reconciler) own(s *site, name string) error {
	marked, err := s.marked()
	if durable, _ := r.known(name); err != nil || marked && durable {
		return err
	}
	if err := errors.Join(s.mark(), s.sync()); err != nil {
		return err
	}
	r.know(name, true)
	return nil
}

var _ reconcilers.Claimer = (*Reconciler)(nil)

// Claim marks the folders that an earlier version has put there without a mark, and returns whose it could not, such
// as where the disk is not mounted yet. Apply does it for those that it gets to first.
func (r *Reconciler) Claim(ctx context.Context, assignments []string) (left []string) {
	if len(assignments) == 0 {
		return nil
	}
	r.turn.Lock()
	defer r.turn.Unlock()
	left, err := r.claim(assignments)
	if err != nil {
		r.log.DebugContext(ctx, "folders are not marked as ours yet", "root", r.root, "err", err)
		left = assignments
	}
	for _, name := range assignments {
		r.know(name, !slices.Contains(left, name))
	}
	return left
}

func (r *Reconciler) claim(names []string) (left []string, err error) {
	root, err := os.OpenRoot(r.root)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	for _, name := range names {
		if err := checkName(name); err != nil {
			return nil, err
		}
		s := siteIn(root, name)
		if info, err := root.Lstat(name); err != nil || !info.IsDir() {
			left = append(left, name)
		} else if err := s.mark(); err != nil {
			return nil, err
		}
	}
	if len(left) == len(names) {
		return left, nil
	}
	return left, siteIn(root, names[0]).sync()
}
