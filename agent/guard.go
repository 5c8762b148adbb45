package agent

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/engines"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// cause is something that may forbid changes.
type cause struct {
	ask func(context.Context) (*freeze, error)
	// onNeed is true where asking costs something. It is asked when something is to be changed, and not before.
	onNeed bool
	// once is true where an answer is good for the whole pass. Others are asked again before more is begun.
	once bool
	// onCluster is true where it is for the engines of the cluster alone. Those come last.
	onCluster bool
}

// guard decides in a pass whether the cluster may be changed: it is an engines.Guard. A freeze that it has found counts for
// the rest of the pass.
type guard struct {
	causes    []cause // asked in this order; the first that has a freeze counts
	before    *freeze // of the pass before
	engines   *engines.Set
	onCluster []string // the names of those that work on the cluster
	now       func() time.Time
	rest      func(took time.Duration) time.Duration

	found *freeze   // nil where the cluster may be changed
	limit []string  // the engines that it is for; empty is all
	askAt time.Time // when to ask again
}

// guard returns that of a pass which has brought this here.
func (p *pass) guard(got pulled) *guard {
	return &guard{
		causes: []cause{
			{ask: p.pausedBy},
			{ask: p.heldByAnother},
			{ask: p.afterCrashes, once: true},
			{ask: p.outsideMaintenance},
			{ask: func(ctx context.Context) (*freeze, error) { return p.memoryUnknown(ctx, got) }, once: true},
			{ask: p.vetoed, onNeed: true},
			{ask: p.outOfReach, onCluster: true},
		},
		before: p.frozenBefore, engines: p.engines, onCluster: p.opts.OnCluster, now: p.opts.Now, rest: p.freezeRest,
	}
}

// begin asks the causes before anything is to be changed.
func (g *guard) begin(ctx context.Context) error { return g.find(ctx, true) }

// find asks the causes as the cluster is begun with, or else as something is about to be changed, and keeps how long a
// freeze has stood.
func (g *guard) find(ctx context.Context, begins bool) error {
	for _, cause := range g.causes {
		if begins && cause.onNeed || !begins && cause.once {
			continue
		}
		b, err := cause.ask(ctx)
		if err != nil {
			return err
		}
		if b == nil {
			continue
		}
		b.Since = cmp.Or(b.Since, state.Stamp(g.now()))
		if old := g.before; old != nil && old.Reason == b.Reason && old.Since.Before(b.Since) {
			b.Since = old.Since
		}
		g.found, g.limit = b, nil
		if cause.onCluster {
			g.limit = g.onCluster
		}
		return nil
	}
	return nil
}

// MayChange reports whether something that is to be changed may be. A freeze that begins in the course of a pass is
// found here.
func (g *guard) MayChange(ctx context.Context) (bool, error) {
	if begun := time.Now(); (g.found == nil || len(g.limit) > 0) && !begun.Before(g.askAt) {
		if err := g.find(ctx, false); err != nil {
			return false, err
		}
		now := time.Now()
		g.askAt = now.Add(g.rest(now.Sub(begun)))
	}
	if g.found != nil {
		g.found.Holding = true
	}
	return g.found == nil, nil
}

// mayChangeSome reports whether there may be an engine that is not frozen.
func (g *guard) mayChangeSome(ctx context.Context) (bool, error) {
	all, err := g.MayChange(ctx)
	return all || len(g.limit) > 0, err
}

// Allowed returns the permitted part of an operation for r. An assignment whose engine was interrupted during a call is
// observed, since its state is unknown.
func (g *guard) Allowed(r assignments.Record, do assignments.Operation) assignments.Operation {
	if g.found == nil || !do.Changes() || len(g.limit) > 0 && !slices.Contains(g.limit, g.engines.Next(r)) {
		return do
	}
	g.found.Holding = true
	if r.Item.State == bundle.Applying && !r.Removing && !r.Stale(g.engines.For(r.Spec)) {
		return assignments.Observe
	}
	return assignments.Nothing
}

// freezeCluster freezes the engines of the cluster for the rest of the pass.
func (g *guard) freezeCluster(err error) {
	if g.found == nil {
		g.found, g.limit = &freeze{State: bundle.Pending, Reason: ReasonAPIServerUnreachable, Message: reconcilers.Clip(err.Error()), Since: state.Stamp(g.now())}, g.onCluster
	}
}

// freezeRest is the time between two questions for a freeze within a pass, where the last one took so long: a second
// is soon enough for people, and a program that takes its time is not to take the pass's.
func freezeRest(took time.Duration) time.Duration { return max(time.Second, 10*took) }
