package agent

import (
	"context"
	"fmt"

	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/bundle"
)

// guard returns that of a pass which has brought this here. It has not asked anything yet.
func (p *pass) guard(got pulled) *freeze.Guard {
	return &freeze.Guard{
		Causes: []freeze.Cause{
			{Ask: p.pausedBy},
			{Ask: p.heldByAnother},
			{Ask: p.afterCrashes, Once: true},
			{Ask: p.outsideMaintenance},
			{Ask: func(ctx context.Context) (*freeze.Freeze, error) { return p.memoryUnknown(ctx, got) }, Once: true},
			{Ask: p.vetoed, OnNeed: true},
			{Ask: p.outOfReach, OnCluster: true},
		},
		Before: p.frozenBefore, Engines: p.engines, OnCluster: p.opts.OnCluster, Now: p.opts.Now, Rest: p.freezeRest,
	}
}

func (p *pass) pausedBy(context.Context) (*freeze.Freeze, error) {
	return freeze.Paused(p.state.db, p.opts.Now())
}

func (p *pass) outsideMaintenance(context.Context) (*freeze.Freeze, error) {
	return freeze.OutsideMaintenance(p.opts.Maintenance, p.opts.Now()), nil
}

func (p *pass) vetoed(ctx context.Context) (*freeze.Freeze, error) {
	why, veto, err := p.opts.Veto.Ask(ctx)
	if err != nil || !veto {
		return nil, err
	}
	return &freeze.Freeze{State: bundle.Pending, Reason: freeze.ReasonVetoed, Message: why}, nil
}

// afterCrashes is the freeze of an agent that has died again and again and has no other release to run.
func (p *pass) afterCrashes(context.Context) (*freeze.Freeze, error) {
	until := p.probation.RestsUntil(p.running, p.opts.Now())
	if until.IsZero() {
		return nil, nil
	}
	message := fmt.Sprintf("the agent has died %d times in a row while it applied release %s", p.probation.Interrupted, p.running.Name())
	return &freeze.Freeze{State: bundle.Failed, Reason: ReasonCrashLoop, Message: message, Since: p.probation.At, Until: until}, nil
}
