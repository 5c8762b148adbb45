package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// apply gives engines what they do not have yet, by wave and dependency, each assignment for itself, and
// takes away what a newer verified release no longer lists.
func (p *pass) apply(ctx context.Context) outcome {
	if err := p.claim(ctx); err != nil {
		return outcomeOf(ctx, err)
	}
	if err := p.choose(ctx); err != nil {
		return outcomeOf(ctx, err)
	}
	if err := p.loadRollout(); err != nil {
		return outcomeOf(ctx, err)
	}
	if err := p.entrust(ctx); err != nil {
		return outcomeOf(ctx, err)
	}
	if err := p.noteAttempt(ctx); err != nil {
		return outcomeOf(ctx, err)
	}
	return outcomeOf(ctx, p.round(ctx, p.due))
}

// loadRollout reads how all assignments stand. Those whose engine is missing have failed.
func (p *pass) loadRollout() error {
	all, err := p.records()
	if err != nil {
		return err
	}
	p.rollout = assignments.NewRollout(all, p.adapter, p.opts.Deadline)
	var hopeless []assignments.Record
	for _, r := range all {
		wanted := p.adapter(r.Spec)
		if !r.Removing && p.opts.Reconcilers[wanted] == nil {
			next := r.After(p.unavailable(wanted), p.rules(wanted), p.opts.Now())
			if next.Item.Adapter = wanted; !next.Same(r) {
				hopeless = append(hopeless, next)
			}
			p.rollout.Put(next)
		}
	}
	return assignments.Write(p.state.db, hopeless)
}

// round does what is needed of each assignment: first for those that the release lists, and then for those
// that it no longer does, so that what moves from one to the other is not without both.
func (p *pass) round(ctx context.Context, needed func(assignments.Record) operation) error {
	all := p.rollout.Sorted()
	for _, gone := range []bool{false, true} {
		var tasks []task
		for _, r := range all {
			if do := p.allowed(r, needed(r)); r.Removing == gone && do != doNothing {
				tasks = append(tasks, task{name: r.Spec.Name, do: do, drift: r.Item.Message})
			}
		}
		if err := p.runTasks(ctx, tasks); err != nil {
			return err
		}
	}
	return nil
}

// due is what an assignment needs before anything is known of the engine.
func (p *pass) due(r assignments.Record) operation {
	wanted := p.adapter(r.Spec)
	failed, drifted := r.Item.State == bundle.Failed, r.Item.State == bundle.Drifted
	switch {
	case r.Removing:
		return doChange
	case p.opts.Reconcilers[wanted] == nil:
		return doNothing
	case r.Stale(wanted):
		return doChange
	case r.OnlySeen() && (failed || r.Waiting()):
		return doObserve
	case drifted && r.Corrected():
		return doCorrect
	case failed, r.Waiting():
		return doChange
	}
	return doNothing
}

// perform has an engine called, and returns how the assignment stands then.
func (p *pass) perform(ctx context.Context, t task, r assignments.Record) assignments.Record {
	if t.do == doObserve {
		res := p.call(ctx, r, r.Adapter, reconcilers.Reconciler.Observe)
		next := r.After(res, p.rules(r.Adapter), p.opts.Now())
		if i := next.Item; i.State == bundle.Failed && r.Item.State != bundle.Failed {
			p.opts.Log.Error("assignment failed", "assignment", r.Spec.Name, "adapter", r.Adapter, "reason", i.Reason, "message", i.Message)
		}
		return next
	}
	r = p.change(ctx, r)
	if t.do == doCorrect && r.Item.State == bundle.Compliant {
		r.Item.Reason, r.Item.Message = assignments.ReasonDriftCorrected, t.drift
	}
	return r
}

// choose has the items get the release that is to run.
func (p *pass) choose(ctx context.Context) error {
	next := p.next(ctx)
	if next == nil {
		return nil
	}
	if next.Digest() != p.running.Digest() {
		if ok, err := p.mayChange(ctx); err != nil || !ok && len(p.limit) == 0 {
			return err
		}
	}
	if !p.content.Ready(ctx, next) {
		return state.Local("the files of release %s are damaged, and so is its layer in the store", next.Digest())
	}
	list, err := p.content.Assignments(next)
	if err != nil {
		return state.Local("read tree: %w", err)
	}
	return p.switchTo(next, list)
}

// switchTo writes in one transaction what every assignment of next is to have, and which ones are to go.
func (p *pass) switchTo(next *state.Release, list []bundle.Assignment) error {
	forgiven := p.staged && p.isRefused(next) // it was judged again, or its content is whole now
	if next.Digest() == p.running.Digest() && !forgiven {
		return nil
	}
	now := p.opts.Now()
	err := p.state.db.Update(func(tx *bbolt.Tx) error {
		known, err := p.state.records.ByName(tx)
		if err != nil {
			return err
		}
		left, err := p.inheritInventory(tx, known, now)
		if err != nil {
			return err
		}
		for _, r := range left {
			known[r.Spec.Name] = r
		}
		for _, a := range list {
			err = errors.Join(err, assignments.Save(tx, known[a.Name].Listed(a, p.adapter(a), now)))
			delete(known, a.Name)
		}
		for _, r := range known {
			err = errors.Join(err, assignments.Save(tx, r.Dropped(now)))
		}
		if forgiven {
			err = errors.Join(err, state.Drop(tx, state.Meta, keyRefused))
		}
		return errors.Join(err, p.catchUp(tx, next), state.Save(tx, state.Meta, keyRunning, next), p.begin(tx, "apply", next.Digest()))
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
	p.running, p.switched = next, true
	return nil
}

func (p *pass) isRefused(r *state.Release) bool {
	return p.refused != nil && p.refused.Digest == r.Digest()
}

func (p *pass) unavailable(adapter string) reconcilers.Result {
	names := strings.Join(slices.Sorted(maps.Keys(p.opts.Reconcilers)), ", ")
	err := fmt.Errorf("adapter %q is not configured on this agent, which has: %s", adapter, cmp.Or(names, "none"))
	return (&reconcilers.Error{Reason: assignments.ReasonAdapterUnavailable, Fault: reconcilers.FaultSite, Err: err}).Result()
}

// change has an engine move one assignment toward what it should be.
func (p *pass) change(ctx context.Context, r assignments.Record) assignments.Record {
	if r.Removing {
		return p.remove(ctx, r)
	}
	wanted := p.adapter(r.Spec)
	if r.Adapter != wanted { // another engine had it: that one takes its own away first
		if res := p.call(ctx, r, r.Adapter, reconcilers.Reconciler.Remove); res.State != bundle.Removed {
			return r.After(res, p.rules(r.Adapter), p.opts.Now())
		}
		r.Adapter, r.Item.Adapter, r.Applied, r.AppliedAt = wanted, wanted, r.Spec.Desired(), p.opts.Now()
	}
	res := p.call(ctx, r, wanted, reconcilers.Reconciler.Apply)
	p.logChange(r, res)
	return r.After(res, p.rules(wanted), p.opts.Now())
}

func (p *pass) remove(ctx context.Context, r assignments.Record) assignments.Record {
	if r.Adapter == "" { // no engine ever had it
		return r.After(reconcilers.Result{State: bundle.Removed}, p.rules(""), p.opts.Now())
	}
	takeAway := reconcilers.Reconciler.Remove
	if r.Orphaned() {
		takeAway = releaseClaim
	}
	res := p.call(ctx, r, r.Adapter, takeAway)
	p.logChange(r, res)
	if res.Reason == "" && res.State != bundle.Removed {
		res.Reason = assignments.ReasonRemoving
	}
	return r.After(res, p.rules(r.Adapter), p.opts.Now())
}

// releaseClaim ends what the engine knows of an assignment, and leaves what it has brought.
func releaseClaim(engine reconcilers.Reconciler, ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	res := reconcilers.Result{State: bundle.Removed}
	if r, ok := engine.(reconcilers.Releaser); ok {
		res = r.Release(ctx, a)
	}
	if res.State == bundle.Removed {
		res.Reason = assignments.ReasonOrphaned
	}
	return res
}

// call calls one method of an engine, with the assignment's own deadline.
func (p *pass) call(ctx context.Context, r assignments.Record, adapter string, method func(reconcilers.Reconciler, context.Context, reconcilers.Assignment) reconcilers.Result) reconcilers.Result {
	engine := p.opts.Reconcilers[adapter]
	if engine == nil {
		return p.unavailable(adapter)
	}
	ctx, cancel := context.WithTimeout(ctx, p.opts.Deadline)
	defer cancel()
	return method(engine, ctx, p.handed(r, adapter))
}

// handed is what an engine gets of r.
func (p *pass) handed(r assignments.Record, adapter string) reconcilers.Assignment {
	a := reconcilers.Assignment{Assignment: r.Spec}
	a.Adapter = adapter
	if r.Spec.Content != "" { // else nobody knows what it was; see holding.record
		a.Dir = p.content.Folder(r.Spec.Content)
	}
	return a
}

// logChange logs what an engine changed, and what it could not do where that is news.
func (p *pass) logChange(r assignments.Record, res reconcilers.Result) {
	changed := 0
	for _, c := range res.Changes {
		if c.Action != reconcilers.Unchanged {
			changed++
		}
	}
	news := r.Before == nil || r.Before.State != res.State
	switch {
	case res.State == bundle.Failed && news:
		p.opts.Log.Error("assignment failed", "assignment", r.Spec.Name, "adapter", r.Adapter, "reason", res.Reason, "message", res.Message)
	case res.State == bundle.Removed && res.Reason != "": // said here, as a removed assignment has no status
		p.opts.Log.Info("assignment removed", "assignment", r.Spec.Name, "adapter", r.Adapter, "reason", res.Reason, "message", res.Message, "objects", changed)
	case changed > 0 || res.State == bundle.Removed:
		p.opts.Log.Info("assignment changed", "assignment", r.Spec.Name, "adapter", r.Adapter, "state", res.State, "objects", changed)
	}
}

func (p *pass) records() (rs []assignments.Record, err error) {
	err = p.state.db.View(func(tx *bbolt.Tx) error {
		rs, err = p.state.records.All(tx)
		return err
	})
	if err != nil {
		return nil, state.Local("read state: %w", err)
	}
	return rs, nil
}
