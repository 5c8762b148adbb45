package agent

import (
	"context"
	"errors"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/engines"
	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// apply gives engines the assignments that they do not have yet, by wave and dependency, each one independently, and
// removes those that a newer verified release no longer lists.
func (p *pass) apply(ctx context.Context, got pulled, g *freeze.Guard) (did applied, err error) {
	if did.switched, err = p.choose(ctx, got, g); err != nil {
		return did, err
	}
	if did.rollout, err = p.rollout(); err != nil {
		return did, err
	}
	if p.force {
		p.carrier.Forgive()
	}
	if err = p.carry(ctx, got, did.rollout, g.Found() != nil); err != nil {
		return did, err
	}
	if err = p.useValues(ctx, did.rollout); err != nil {
		return did, err
	}
	if did.dropped, err = p.derive(ctx, got.target, did.rollout); err != nil {
		return did, err
	}
	if err = p.memory.entrust(ctx, g, p.self()); err != nil {
		return did, err
	}
	if did.attempted, err = p.noteAttempt(ctx, did.rollout, g); err != nil {
		return did, err
	}
	did.changes, err = p.engines.Round(ctx, did.rollout, p.engines.Due, g, engines.Changes{})
	return did, err
}

// rollout reads how all assignments stand.
func (p *pass) rollout() (*assignments.Rollout, error) {
	all, err := p.state.allRecords()
	if err != nil {
		return nil, err
	}
	rollout, err := p.engines.Rollout(all)
	if err == nil {
		rollout.HoldBack(p.carrier.Wait)
	}
	return rollout, err
}

// choose has the items get the release that is to run, and reports whether that is another one than before, or the same
// with its content whole again.
func (p *pass) choose(ctx context.Context, got pulled, g *freeze.Guard) (switched bool, err error) {
	next := p.next(ctx, got)
	if next == nil {
		return false, nil
	}
	if next.Digest() != p.running.Digest() {
		if ok, err := g.MayChangeSome(ctx); err != nil || !ok {
			return false, err
		}
	}
	if !p.content.Ready(ctx, next) {
		return false, state.Local("the files of release %s are damaged, and so is its layer in the store", next.Digest())
	}
	list, err := p.content.Assignments(next)
	if err != nil {
		return false, state.Local("read tree: %w", err)
	}
	forgiven := got.staged && p.isRefused(next) // it was judged again, or its content is whole now
	if next.Digest() == p.running.Digest() && !forgiven {
		return false, nil
	}
	err = p.switchTo(next, list, forgiven)
	return err == nil, err
}

// switchTo writes in one transaction what every assignment of next is to have, and which ones are to go. Forgiven ends
// the refusal of next.
func (p *pass) switchTo(next *state.Release, list []bundle.Assignment, forgiven bool) error {
	now := p.opts.Now()
	err := p.state.db.Update(func(tx *bbolt.Tx) error {
		known, err := p.state.records.ByName(tx)
		if err != nil {
			return err
		}
		left, err := p.memory.inheritInventory(tx, known, now)
		if err != nil {
			return err
		}
		for _, r := range left {
			known[r.Spec.Name] = r
		}
		for _, a := range list {
			err = errors.Join(err, assignments.Save(tx, known[a.Name].Listed(a, p.engines.For(a), now)))
			delete(known, a.Name)
		}
		for _, r := range known {
			err = errors.Join(err, assignments.Save(tx, r.Dropped(now)))
		}
		if forgiven {
			err = errors.Join(err, state.Drop(tx, state.Meta, keyRefused))
		}
		return errors.Join(err, catchUp(tx, next), state.Save(tx, state.Meta, keyRunning, next), p.begin(tx, "apply", next.Digest()))
	})
	if err != nil {
		return err
	}
	if forgiven {
		p.refused = nil
	}
	p.memory.inherited = nil
	if p.running.Digest() != next.Digest() {
		p.opts.Log.Info("release begins to run", "release", next.Name(), "digest", next.Digest(), "before", p.running.Digest(), "assignments", len(list))
	}
	p.running = next
	return nil
}

// isRefused reports whether r is the release that was refused.
func (e *earlier) isRefused(r *state.Release) bool {
	return e.refused != nil && e.refused.Digest == r.Digest()
}

// allRecords reads the records of all assignments.
func (s *State) allRecords() (rs []assignments.Record, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		rs, err = s.records.All(tx)
		return err
	})
	if err != nil {
		return nil, state.Local("read state: %w", err)
	}
	return rs, nil
}
