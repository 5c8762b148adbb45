package directory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// Remove deletes the assignment's folder, and its fetched files. A folder that is not known to be ours stays.
func (r *Reconciler) Remove(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	return r.end(ctx, a, "remove", r.takeAway)
}

var _ reconcilers.Releaser = (*Reconciler)(nil)

// Release keeps the folder and removes the mark that it is ours.
func (r *Reconciler) Release(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	return r.end(ctx, a, "release", func(_ context.Context, s *site) (tree, error) { return nil, s.unmark() })
}

// end gives an assignment up. It calls last to delete or keep the folder; last returns the deleted files.
func (r *Reconciler) end(ctx context.Context, a reconcilers.Assignment, verb string, last func(context.Context, *site) (tree, error)) reconcilers.Result {
	if ctx.Err() == nil {
		r.fetches.Stop(a.Name)
	}
	gone, err := r.give(ctx, a.Name, last)
	if err != nil {
		return r.failed(fmt.Errorf("%s %s: %w", verb, a.Name, err))
	}
	changes := compare(a.Name, gone, nil)
	r.logChanges(ctx, a, changes)
	return reconcilers.Result{State: bundle.Removed, Changes: changes}
}

func (r *Reconciler) give(ctx context.Context, name string, last func(context.Context, *site) (tree, error)) (gone tree, err error) {
	r.turn.Lock()
	defer r.turn.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(r.root)
	if errors.Is(err, fs.ErrNotExist) {
		r.owned.forget(name)
		r.entries.forget(ctx, name)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	s := siteIn(root, name)
	if err := s.repair(); err != nil {
		return nil, err
	}
	if gone, err = last(ctx, s); err != nil {
		return nil, err
	}
	r.owned.forget(name)
	r.entries.forget(ctx, name)
	return gone, s.discardFetched()
}

// takeAway deletes the live folder if it is ours. Anything else with that name stays.
func (r *Reconciler) takeAway(ctx context.Context, s *site) (tree, error) {
	ours, err := r.owned.holds(s)
	if err != nil {
		return nil, err
	}
	info, err := s.root.Lstat(s.live)
	if !ours {
		if err == nil {
			r.log.InfoContext(ctx, "what has the assignment's name in the root is not this agent's and stays", "assignment", s.live, "root", r.root)
		}
		return nil, nil
	}
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil, s.unmark()
	}
	if err != nil {
		return nil, err
	}
	have, _, err := s.read(ctx, r.entries.load(ctx, s.live).Seen)
	if err != nil {
		return nil, err
	}
	return have, s.takeAway()
}
