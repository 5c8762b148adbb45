package freeze

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

// Cause is something that may forbid changes.
type Cause struct {
	// Ask returns nil where changes are not forbidden.
	Ask func(context.Context) (*Freeze, error)
	// OnNeed is true where asking costs something. It is asked when something is to be changed, and not before.
	OnNeed bool
	// Once is true where an answer is good for the whole pass. Others are asked again before more is begun.
	Once bool
	// OnCluster is true where it is for the engines of the cluster alone. Those come last.
	OnCluster bool
}

// Guard decides in one pass whether the cluster may be changed; it is an engines.Guard. A freeze that it has found counts
// for the rest of the pass. All fields are required but Before and OnCluster.
type Guard struct {
	Causes    []Cause // asked in this order; the first that has a freeze counts
	Before    *Freeze // of the pass before
	Engines   *engines.Set
	OnCluster []string // the names of the engines that work on the cluster
	Now       func() time.Time
	// Rest is the time between two questions, where the last one took so long; see Rest.
	Rest func(took time.Duration) time.Duration

	found *Freeze   // nil where the cluster may be changed
	limit []string  // the engines that it is for; empty is all
	askAt time.Time // when to ask again
}

// Found returns why the cluster must not be changed, and nil where it may.
func (g *Guard) Found() *Freeze { return g.found }

// Begin asks the causes before anything is to be changed.
func (g *Guard) Begin(ctx context.Context) error { return g.find(ctx, true) }

// find asks the causes, either as the pass begins with the cluster or before a change. A freeze that stood in the pass
// before keeps its beginning.
func (g *Guard) find(ctx context.Context, begins bool) error {
	for _, cause := range g.Causes {
		if begins && cause.OnNeed || !begins && cause.Once {
			continue
		}
		b, err := cause.Ask(ctx)
		if err != nil {
			return err
		}
		if b == nil {
			continue
		}
		b.Since = cmp.Or(b.Since, state.Stamp(g.Now()))
		if old := g.Before; old != nil && old.Reason == b.Reason && old.Since.Before(b.Since) {
			b.Since = old.Since
		}
		g.found, g.limit = b, nil
		if cause.OnCluster {
			g.limit = g.OnCluster
		}
		return nil
	}
	return nil
}

// MayChange reports whether changes may begin. It finds a freeze that begins in the course of a pass.
func (g *Guard) MayChange(ctx context.Context) (bool, error) {
	if begun := time.Now(); (g.found == nil || len(g.limit) > 0) && !begun.Before(g.askAt) {
		if err := g.find(ctx, false); err != nil {
			return false, err
		}
		now := time.Now()
		g.askAt = now.Add(g.Rest(now.Sub(begun)))
	}
	if g.found != nil {
		g.found.Holding = true
	}
	return g.found == nil, nil
}

// MayChangeSome reports whether there may be an engine that is not frozen.
func (g *Guard) MayChangeSome(ctx context.Context) (bool, error) {
	all, err := g.MayChange(ctx)
	return all || len(g.limit) > 0, err
}

// Allowed returns the permitted part of an operation for r. An assignment whose engine was interrupted during a call is
// observed, since its state is unknown.
func (g *Guard) Allowed(r assignments.Record, do assignments.Operation) assignments.Operation {
	if g.found == nil || !do.Changes() || len(g.limit) > 0 && !slices.Contains(g.limit, g.Engines.Next(r)) {
		return do
	}
	g.found.Holding = true
	if r.Item.State == bundle.Applying && !r.Removing && !r.Stale(g.Engines.For(r.Spec)) {
		return assignments.Observe
	}
	return assignments.Nothing
}

// FreezeCluster freezes the engines of the cluster for the rest of the pass.
func (g *Guard) FreezeCluster(err error) {
	if g.found == nil {
		g.found, g.limit = &Freeze{State: bundle.Pending, Reason: ReasonAPIServerUnreachable, Message: reconcilers.Clip(err.Error()), Since: state.Stamp(g.Now())}, g.OnCluster
	}
}

// Rest is the time between two questions for a freeze within a pass, where the last one took so long: a second
// is soon enough for people, and a program that takes its time is not to take the pass's.
func Rest(took time.Duration) time.Duration { return max(time.Second, 10*took) }
