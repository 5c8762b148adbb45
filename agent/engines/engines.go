// Package engines calls the reconcilers of an agent, its engines, for assignments.
//
// Begin with New. Set.Rollout takes the records of all assignments, and Set.Round runs the needed operation of each, by
// wave and dependency, several at a time, and returns the changes:
//
//	set := engines.New(db, files, engines.Options{Reconcilers: byName})
//	rollout, err := set.Rollout(records)
//	changes, err := set.Round(ctx, rollout, set.Due, guard, engines.Changes{})
//
// An engine that hangs holds up no other. The record of a begun task is on disk before the engine is called, and its result
// when Round returns. If a crash loses a result, the assignment is recorded as applying, and is applied again. The package
// knows nothing of releases, nor of freezes: a Guard decides whether the cluster may be changed.
//
// Before an engine is called, its assignment gets, in this order: its carried artifacts, until then it is pulling; its site
// values, without which it is pending/SiteValueMissing; its folder, the verified one or a copy with the values; and its
// artifact at the endpoint, for Flux and Argo CD with embedded delivery.
package engines

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// Options configures a Set. The zero value has no engine.
type Options struct {
	// Reconcilers are the engines by the name that assignments give.
	Reconcilers map[string]reconcilers.Reconciler
	// Adapter, if set, is the engine for every assignment, whatever adapter it names.
	Adapter string
	// Deadline bounds one call, and the time for which an assignment may be progressing before it has failed.
	Deadline time.Duration
	// Settle is the time for which an engine must report an assignment compliant before it counts as such. Nil means
	// the engine's own default; see reconcilers.Settler.
	Settle *time.Duration
	// Complete are called, in this order, with what an engine is about to get for an assignment, and add to it. The error of
	// one, which should be a *reconcilers.Error, is the result, and no engine is called. They are not called before a
	// removal, which needs no more than the assignment's name. Several goroutines call them.
	Complete []func(context.Context, assignments.Record, *reconcilers.Assignment) error
	// Alive, if set, is called whenever a call begins and ends.
	Alive func()
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log is nil for silence.
	Log *slog.Logger
}

// Set is the engines of one agent.
type Set struct {
	db    *state.DB
	files *content.Store
	opts  Options
}

// New returns the engines of opts. They read the content of assignments from files, and save records in db.
func New(db *state.DB, files *content.Store, opts Options) *Set {
	if opts.Alive == nil {
		opts.Alive = func() {}
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	return &Set{db, files, opts}
}

// For returns the name of the engine for an assignment.
func (s *Set) For(a bundle.Assignment) string { return cmp.Or(s.opts.Adapter, a.Adapter) }

// Next returns the name of the engine that is called next for an assignment: if another engine has it, that one is called
// first, to remove it.
func (s *Set) Next(r assignments.Record) string {
	if r.Adapter != "" && (r.Removing || r.Adapter != s.For(r.Spec)) {
		return r.Adapter
	}
	return s.For(r.Spec)
}

// Due returns the operation that an assignment needs at the beginning of a pass.
func (s *Set) Due(r assignments.Record) assignments.Operation {
	name := s.For(r.Spec)
	return r.Due(name, s.opts.Reconcilers[name] != nil)
}

// Unfinished returns the operation that an unfinished assignment needs after its engine got its desired content.
func (s *Set) Unfinished(r assignments.Record) assignments.Operation {
	return r.Unfinished(s.For(r.Spec))
}

// Working reports whether engines run programs that would be interrupted if this process ended.
func (s *Set) Working() bool {
	for _, engine := range s.opts.Reconcilers {
		if r, ok := engine.(reconcilers.Runner); ok && r.Working() {
			return true
		}
	}
	return false
}

// Rollout returns the rollout of the assignments with these records. It records those whose engine is missing as failed.
func (s *Set) Rollout(records []assignments.Record) (*assignments.Rollout, error) {
	rollout := assignments.NewRollout(records, s.For, s.opts.Deadline)
	var hopeless []assignments.Record
	for _, r := range records {
		wanted := s.For(r.Spec)
		if r.Removing || s.opts.Reconcilers[wanted] != nil {
			continue
		}
		next := r.After(s.unavailable(wanted), s.rules(wanted), s.opts.Now())
		if next.Item.Adapter = wanted; !next.Same(r) {
			hopeless = append(hopeless, next)
		}
		rollout.Put(next)
	}
	return rollout, assignments.Write(s.db, hopeless)
}

// Handed returns an assignment in the form in which the named engine gets it. The error is that of Options.Complete.
func (s *Set) Handed(ctx context.Context, r assignments.Record, engine string) (reconcilers.Assignment, error) {
	a := s.bare(r, engine)
	for _, complete := range s.opts.Complete {
		if err := complete(ctx, r, &a); err != nil {
			return a, err
		}
	}
	return a, nil
}

// bare returns an assignment with nothing but its files.
func (s *Set) bare(r assignments.Record, engine string) reconcilers.Assignment {
	a := reconcilers.Assignment{Assignment: r.Spec}
	a.Adapter = engine
	if r.Spec.Content != "" { // it is unknown if the record comes from an earlier machine
		a.Dir = s.files.Folder(r.Spec.Content)
	}
	return a
}

// Fetcher returns the engine that fetches the content of an assignment from the agent's endpoint: the named one, or nil.
func (s *Set) Fetcher(a bundle.Assignment, engine string) reconcilers.Fetcher {
	f, is := s.opts.Reconcilers[engine].(reconcilers.Fetcher)
	if !is || a.Delivery != bundle.Embedded {
		return nil
	}
	return f
}

// rules are the times by which an engine's results are judged.
func (s *Set) rules(engine string) assignments.Rules {
	rules := assignments.Rules{Deadline: s.opts.Deadline}
	if e, ok := s.opts.Reconcilers[engine].(reconcilers.Settler); ok {
		rules.Settle = e.SettleTime()
	}
	if s.opts.Settle != nil {
		rules.Settle = *s.opts.Settle
	}
	return rules
}

func (s *Set) unavailable(engine string) reconcilers.Result {
	names := strings.Join(slices.Sorted(maps.Keys(s.opts.Reconcilers)), ", ")
	err := fmt.Errorf("adapter %q is not configured on this agent, which has: %s", engine, cmp.Or(names, "none"))
	return (&reconcilers.Error{Reason: assignments.ReasonAdapterUnavailable, Fault: reconcilers.FaultSite, Err: err}).Result()
}

// method is one of a reconciler's calls.
type method func(reconcilers.Reconciler, context.Context, reconcilers.Assignment) reconcilers.Result

// call calls one method of an engine with a complete assignment, with the assignment's own deadline.
func (s *Set) call(ctx context.Context, r assignments.Record, engine string, do method) reconcilers.Result {
	a, err := s.Handed(ctx, r, engine)
	var known *reconcilers.Error
	switch {
	case ctx.Err() != nil:
		return reconcilers.Interrupted(ctx.Err())
	case errors.As(err, &known):
		return known.Result()
	case err != nil:
		return reconcilers.Waiting(reconcilers.ReasonInterrupted, err)
	}
	return s.callWith(ctx, a, engine, do)
}

// takeAway calls one method of an engine that needs only the assignment's name.
func (s *Set) takeAway(ctx context.Context, r assignments.Record, engine string, do method) reconcilers.Result {
	return s.callWith(ctx, s.bare(r, engine), engine, do)
}

func (s *Set) callWith(ctx context.Context, a reconcilers.Assignment, engine string, do method) reconcilers.Result {
	e := s.opts.Reconcilers[engine]
	if e == nil {
		return s.unavailable(engine)
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.Deadline)
	defer cancel()
	return do(e, ctx, a)
}
