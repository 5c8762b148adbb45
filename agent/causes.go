package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/backup"
	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
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

// behind reports whether the cluster has had a newer release of the agent's stream than r.
func (p *pass) behind(r *state.Release) bool {
	note, err := backup.ReadNote(p.state.db)
	if err != nil || note == nil {
		return false
	}
	at, ok := note.Ahead[state.OrderKey(p.stream())]
	if !ok {
		return false
	}
	if r == nil || r.Release.Stream() != p.stream() {
		return true
	}
	return r.Order().Compare(at.Order()) < 0
}

// boundBy reports whether a person has bound this agent to its stream; see rebind.
func (p *pass) boundBy() (bound bool, err error) {
	err = p.state.db.View(func(tx *bbolt.Tx) error {
		bound = tx.Bucket([]byte(state.Meta)).Get([]byte(keyBinding)) != nil
		return nil
	})
	return bound, err
}

// blank reports whether the agent is new on this machine and has not read the cluster's memory yet.
func (p *pass) blank() (bool, error) {
	if p.opts.Memory == nil || p.memory.known || p.running != nil {
		return false, nil
	}
	note, err := backup.ReadNote(p.state.db)
	return note == nil || !note.Known, err
}

// heldByAnother freezes a pass while another agent holds the Lease.
func (p *pass) heldByAnother(context.Context) (*freeze.Freeze, error) {
	if who := p.lease.Other(); who != "" {
		return &freeze.Freeze{State: bundle.Pending, Reason: freeze.ReasonAnotherAgent, Message: reconcilers.Clip(who), Holding: true}, nil
	}
	return nil, nil
}

// memoryUnknown freezes a pass while the memory is not known, cannot be understood, or tells of a newer release than there
// is here.
func (p *pass) memoryUnknown(ctx context.Context, got pulled) (*freeze.Freeze, error) {
	blank, err := p.blank()
	switch {
	case err != nil || p.opts.Memory == nil:
		return nil, err
	case p.memory.bad != nil:
		b := *p.memory.bad
		b.Holding = true
		return &b, nil
	case blank:
		why := cmp.Or(p.memory.err, p.lease.Fault(), errors.New("it was not read yet"))
		return &freeze.Freeze{State: bundle.Pending, Reason: freeze.ReasonMemoryUnread, Message: reconcilers.Clip("what was done to this cluster before is not known: " + why.Error()), Holding: true}, nil
	case !p.behind(p.running):
		return nil, nil
	case got.staged && !p.behind(got.target), p.accepted != nil && !p.behind(p.accepted) && !p.isRefused(p.accepted) && p.content.Ready(ctx, p.accepted):
		return nil, nil
	}
	return &freeze.Freeze{State: bundle.Pending, Reason: freeze.ReasonBehindMemory, Message: fmt.Sprintf("the cluster has had a newer release than is here, as %s says, and waits for it or a later one", p.opts.Memory), Holding: true}, nil
}

// outOfReach freezes the engines of the cluster, and no others, while the Lease is not held and nobody else is known
// to hold it.
func (p *pass) outOfReach(context.Context) (*freeze.Freeze, error) {
	if p.lease.Holds() && (p.opts.Memory == nil || p.memory.known) {
		return nil, nil
	}
	why := cmp.Or(p.lease.Fault(), p.memory.err, errors.New("it does not answer"))
	return &freeze.Freeze{State: bundle.Pending, Reason: freeze.ReasonAPIServerUnreachable, Message: reconcilers.Clip(why.Error())}, nil
}
