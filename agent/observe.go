package agent

import (
	"context"
	"time"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/reconcilers"
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
		working := p.last && p.working() // before the look, which may be over when the work is
		err := p.round(ctx, func(r assignments.Record) operation { return p.look(r, first) })
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
func (p *pass) look(r assignments.Record, first bool) operation {
	switch {
	case r.Removing, r.Waiting() && !r.OnlySeen():
		if !r.Unsettled() || first && p.touched[r.Spec.Name] { // apply has just tried
			return doNothing
		}
		return doChange
	case r.Stale(p.adapter(r.Spec)): // its engine is missing
		return doNothing
	case r.Unsettled():
		return doObserve
	case first && (p.all || p.allIfUnchanged && !p.switched || r.Item.Floating) && !p.touched[r.Spec.Name]:
		return doObserve
	}
	return doNothing
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

// working reports whether programs that engines run would be cut off, were this process to end.
func (p *pass) working() bool {
	for _, engine := range p.opts.Reconcilers {
		if r, ok := engine.(reconcilers.Runner); ok && r.Working() {
			return true
		}
	}
	return false
}
