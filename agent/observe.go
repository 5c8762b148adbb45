package agent

import (
	"context"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// pollTime is the time between two looks at assignments that are progressing, while a pass waits.
const pollTime = 250 * time.Millisecond

// observe asks engines how their assignments stand, corrects drift, and goes on while the scope's time
// lasts and something is progressing.
func (p *pass) observe(ctx context.Context) outcome {
	if p.running == nil {
		return done
	}
	begun := time.Now()
	for first := true; ; first = false {
		all, err := p.records()
		if err != nil {
			return outcomeOf(ctx, err)
		}
		open := false
		for _, r := range all {
			next := p.look(ctx, r, first)
			if ctx.Err() != nil {
				return outcomeOf(ctx, ctx.Err())
			}
			if !next.same(r) {
				if err := p.write([]record{next}); err != nil {
					return outcomeOf(ctx, err)
				}
			}
			open = open || next.unsettled()
		}
		if !open || time.Since(begun) >= p.wait {
			return done
		}
		select {
		case <-ctx.Done():
			return outcomeOf(ctx, ctx.Err())
		case <-time.After(pollTime):
		}
	}
}

// look has one assignment observed, if there is reason to, and set right if it can be.
func (p *pass) look(ctx context.Context, r record, first bool) record {
	switch {
	case r.Removing, r.waiting():
		if first || !r.unsettled() { // apply has just tried
			return r
		}
		return p.change(ctx, r)
	case r.stale(p.adapter(r.Spec)): // its engine is missing
		return r
	case r.unsettled():
		return p.see(ctx, r)
	case first && (p.all || p.allIfUnchanged && !p.switched || r.Item.Floating) && !p.touched[r.Spec.Name]:
		return p.see(ctx, r)
	}
	return r
}

// see observes, and applies again what has drifted.
func (p *pass) see(ctx context.Context, r record) record {
	res := p.call(ctx, r, r.Adapter, reconcilers.Reconciler.Observe)
	next := r.after(res, p.rules(r.Adapter), p.opts.Now())
	if next.Item.State != bundle.Drifted || p.touched[r.Spec.Name] {
		return next
	}
	p.opts.Log.Info("drift found", "assignment", r.Spec.Name, "reason", res.Reason, "message", res.Message)
	next = p.change(ctx, next.begun(r.Adapter, p.opts.Now()))
	if next.Item.State == bundle.Compliant {
		next.Item.Reason, next.Item.Message = "DriftCorrected", res.Message
	}
	return next
}
