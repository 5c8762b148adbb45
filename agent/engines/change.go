package engines

import (
	"context"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// perform calls the engine of a task, and returns the assignment's next record.
func (s *Set) perform(ctx context.Context, t task, r assignments.Record) assignments.Record {
	if t.do == assignments.Observe {
		res := s.call(ctx, r, r.Adapter, reconcilers.Reconciler.Observe)
		next := r.After(res, s.rules(r.Adapter), s.opts.Now())
		if i := next.Item; i.State == bundle.Failed && r.Item.State != bundle.Failed {
			s.opts.Log.Error("assignment failed", "assignment", r.Spec.Name, "adapter", r.Adapter, "reason", i.Reason, "message", i.Message)
		}
		return next
	}
	r = s.change(ctx, r)
	r.Ends = assignments.Ends{} // the agent has survived it
	if t.do == assignments.Correct && r.Item.State == bundle.Compliant {
		r.Item.Reason, r.Item.Message = assignments.ReasonDriftCorrected, t.drift
	}
	return r
}

// change makes an engine move one assignment toward its desired state.
func (s *Set) change(ctx context.Context, r assignments.Record) assignments.Record {
	if r.Removing {
		return s.remove(ctx, r)
	}
	wanted := s.For(r.Spec)
	if r.Adapter != wanted { // another engine had it, and removes its objects first
		if res := s.takeAway(ctx, r, r.Adapter, reconcilers.Reconciler.Remove); res.State != bundle.Removed {
			return r.After(res, s.rules(r.Adapter), s.opts.Now())
		}
		r.Adapter, r.Item.Adapter, r.Applied, r.AppliedAt = wanted, wanted, r.Desired(), s.opts.Now()
	}
	res := s.call(ctx, r, wanted, reconcilers.Reconciler.Apply)
	s.logChange(r, res)
	return r.After(res, s.rules(wanted), s.opts.Now())
}

func (s *Set) remove(ctx context.Context, r assignments.Record) assignments.Record {
	if r.Adapter == "" { // no engine ever had it
		return r.After(reconcilers.Result{State: bundle.Removed}, s.rules(""), s.opts.Now())
	}
	how := reconcilers.Reconciler.Remove
	if r.Orphaned() {
		how = releaseClaim
	}
	res := s.takeAway(ctx, r, r.Adapter, how)
	s.logChange(r, res)
	if res.Reason == "" && res.State != bundle.Removed {
		res.Reason = assignments.ReasonRemoving
	}
	return r.After(res, s.rules(r.Adapter), s.opts.Now())
}

// releaseClaim makes the engine forget an assignment and keep its objects.
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

// logChange logs an engine's changes, and its failure if that is new.
func (s *Set) logChange(r assignments.Record, res reconcilers.Result) {
	changed := 0
	for _, c := range res.Changes {
		if c.Action != reconcilers.Unchanged {
			changed++
		}
	}
	news := r.Before == nil || r.Before.State != res.State
	switch {
	case res.State == bundle.Failed && news:
		s.opts.Log.Error("assignment failed", "assignment", r.Spec.Name, "adapter", r.Adapter, "reason", res.Reason, "message", res.Message)
	case res.State == bundle.Removed && res.Reason != "": // a removed assignment has no status to hold the reason
		s.opts.Log.Info("assignment removed", "assignment", r.Spec.Name, "adapter", r.Adapter, "reason", res.Reason, "message", res.Message, "objects", changed)
	case changed > 0 || res.State == bundle.Removed:
		s.opts.Log.Info("assignment changed", "assignment", r.Spec.Name, "adapter", r.Adapter, "state", res.State, "objects", changed)
	}
}
