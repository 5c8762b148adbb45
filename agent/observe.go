package agent

import (
	"context"
	"time"

	"github.com/wherry-dev/wherry/agent/assignments"
)

// pollTime is the time between two looks at assignments that are progressing, while a pass waits.
const pollTime = 250 * time.Millisecond

// observe asks engines how their assignments stand, corrects drift, and goes on while the scope's time
// lasts and something is progressing, or the process is about to end under programs that are at work.
func (p *pass) observe(ctx context.Context) outcome {
	if p.running == nil {
		return done
	}
	begun := time.Now()
	for first := true; ; first = false {
		working := p.last && p.engines.Working() // before the look, which may be over when the work is
		var err error
		p.changes.Changes, err = p.engines.Round(ctx, p.rollout, func(r assignments.Record) assignments.Operation { return p.look(r, first) }, p, p.changes.Changes)
		if err != nil {
			return outcomeOf(ctx, err)
		}
		if !p.open() || time.Since(begun) >= p.wait && !working {
			return done
		}
		select {
		case <-ctx.Done():
			return outcomeOf(ctx, ctx.Err())
		case <-time.After(pollTime):
		}
	}
}

// look is what an assignment needs once engines have been given what they are to have.
func (p *pass) look(r assignments.Record, first bool) assignments.Operation {
	do := p.engines.Unfinished(r)
	called := p.Called[r.Spec.Name]
	switch {
	case !first:
		return do
	case called && do == assignments.Change: // apply has just tried
		return assignments.Nothing
	case called || do != assignments.Nothing || r.Removing || r.Stale(p.engines.For(r.Spec)):
		return do
	case p.all || p.allIfUnchanged && !p.switched || r.Item.Floating:
		return assignments.Observe
	}
	return do
}

// open reports whether time alone may change how an assignment stands. One that waits for others moves
// only after they have.
func (p *pass) open() bool {
	g := p.rollout.Gate(p.opts.Now())
	for _, r := range p.rollout.All() {
		if reason, _ := g.Waits(r); r.Unsettled() && reason == "" && (p.frozen == nil || !r.Waiting()) {
			return true
		}
	}
	return false
}
