package agent

import (
	"context"
	"time"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/freeze"
)

// pollTime is the time between two looks at assignments that are progressing, while a pass waits.
const pollTime = 250 * time.Millisecond

// observe asks engines how their assignments stand, corrects drift, and goes on while the scope's time
// lasts and something is progressing, or the process is about to end under programs, or transfers of artifacts, that are at
// work.
func (p *pass) observe(ctx context.Context, got pulled, did applied, g *freeze.Guard) (seen observed, err error) {
	seen.applied = did
	if p.running == nil && !(p.last && p.carrier.Working()) {
		return seen, nil
	}
	begun := time.Now()
	needed := func(r assignments.Record) assignments.Operation { return p.look(r, did) }
	for {
		if p.carrier.Stale() { // more has arrived since apply looked
			if err = p.carry(ctx, got, seen.rollout, g.Found() != nil); err != nil {
				return seen, err
			}
		}
		// Before the look, which may be over when the work is.
		working, carrying := p.last && p.engines.Working(), p.last && p.carrier.Working()
		if seen.changes, err = p.engines.Round(ctx, seen.rollout, needed, g, seen.changes); err != nil {
			return seen, err
		}
		if !carrying && (!p.open(seen.rollout, g) || time.Since(begun) >= p.wait && !working) {
			return seen, nil
		}
		select {
		case <-ctx.Done():
			return seen, ctx.Err()
		case <-time.After(pollTime):
		}
		needed = p.engines.Unfinished
	}
}

// look returns the operation that an assignment needs after apply.
func (p *pass) look(r assignments.Record, did applied) assignments.Operation {
	do, called := p.engines.Unfinished(r), did.changes.Called[r.Spec.Name]
	switch {
	case called && do == assignments.Change: // apply has just tried
		return assignments.Nothing
	case called || do != assignments.Nothing || r.Removing || r.Stale(p.engines.For(r.Spec)):
		return do
	case p.all || p.allIfUnchanged && !did.switched || r.Item.Floating:
		return assignments.Observe
	}
	return do
}

// open reports whether time alone may change how an assignment stands. One that waits for others moves
// only after they have.
func (p *pass) open(rollout *assignments.Rollout, g *freeze.Guard) bool {
	gate := rollout.Gate(p.opts.Now())
	for r := range rollout.All() {
		if w := gate.Waits(r); r.Unsettled() && (w.Reason == "" || w.Moving) && (g.Found() == nil || !r.Waiting()) {
			return true
		}
	}
	return false
}
