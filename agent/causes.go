package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/backup"
	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/agent/lease"
	"github.com/wherry-dev/wherry/agent/probation"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// guard returns that of a pass which has brought this here. It has not asked anything yet.
func (p *pass) guard(got pulled) *freeze.Guard {
	return &freeze.Guard{
		Causes: []freeze.Cause{
			{Ask: func(context.Context) (*freeze.Freeze, error) { return freeze.Paused(p.state.db, p.opts.Now()) }},
			{Ask: func(context.Context) (*freeze.Freeze, error) { return heldByAnother(p.lease), nil }},
			{Ask: func(context.Context) (*freeze.Freeze, error) {
				return afterCrashes(p.probation, p.running, p.opts.Now()), nil
			}, Once: true},
			{Ask: func(context.Context) (*freeze.Freeze, error) {
				return freeze.OutsideMaintenance(p.opts.Maintenance, p.opts.Now()), nil
			}},
			{Ask: func(ctx context.Context) (*freeze.Freeze, error) { return p.memoryUnknown(ctx, got) }, Once: true},
			{Ask: func(ctx context.Context) (*freeze.Freeze, error) { return vetoed(ctx, p.opts.Veto) }, OnNeed: true},
			{Ask: func(context.Context) (*freeze.Freeze, error) { return p.memory.outOfReach(), nil }, OnCluster: true},
		},
		Before: p.frozenBefore, Engines: p.engines, OnCluster: p.opts.OnCluster.Adapters, Now: p.opts.Now, Rest: p.freezeRest,
	}
}

// vetoed is the freeze of a site that must not be changed.
func vetoed(ctx context.Context, by freeze.Veto) (*freeze.Freeze, error) {
	why, veto, err := by.Ask(ctx)
	if err != nil || !veto {
		return nil, err
	}
	return &freeze.Freeze{State: bundle.Pending, Reason: freeze.ReasonVetoed, Message: why}, nil
}

// afterCrashes is the freeze of an agent that has died again and again and has no other release to run.
func afterCrashes(of probation.Probation, running *state.Release, now time.Time) *freeze.Freeze {
	until := of.RestsUntil(running, now)
	if until.IsZero() {
		return nil
	}
	message := fmt.Sprintf("the agent has died %d times in a row while it applied release %s", of.Interrupted, running.Name())
	return &freeze.Freeze{State: bundle.Failed, Reason: ReasonCrashLoop, Message: message, Since: of.At, Until: until}
}

// behind reports whether the cluster has had a newer release of a stream than r.
func (m *clusterMemory) behind(stream bundle.Stream, r *state.Release) bool {
	note, err := backup.ReadNote(m.state.db)
	if err != nil || note == nil {
		return false
	}
	at, ok := note.Ahead[state.OrderKey(stream)]
	if !ok {
		return false
	}
	if r == nil || r.Release.Stream() != stream {
		return true
	}
	return r.Order().Compare(at.Order()) < 0
}

// isBound reports whether a person has bound this agent to its stream; see rebind.
func (s *State) isBound() (bound bool, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		bound = tx.Bucket([]byte(state.Meta)).Get([]byte(keyBinding)) != nil
		return nil
	})
	return bound, err
}

// blank reports whether the agent is new on this machine and has not read the cluster's memory yet.
func (m *clusterMemory) blank(running *state.Release) (bool, error) {
	if m.store == nil || m.known || running != nil {
		return false, nil
	}
	note, err := backup.ReadNote(m.state.db)
	return note == nil || !note.Known, err
}

// heldByAnother freezes a pass while another agent holds the Lease.
func heldByAnother(l *lease.Held) *freeze.Freeze {
	if who := l.Other(); who != "" {
		return &freeze.Freeze{State: bundle.Pending, Reason: freeze.ReasonAnotherAgent, Message: reconcilers.Clip(who), Holding: true}
	}
	return nil
}

// memoryUnknown freezes a pass while the memory is not known, cannot be understood, or tells of a newer release than there
// is here.
func (p *pass) memoryUnknown(ctx context.Context, got pulled) (*freeze.Freeze, error) {
	blank, err := p.memory.blank(p.running)
	switch {
	case err != nil || p.memory.store == nil:
		return nil, err
	case p.memory.bad != nil:
		b := *p.memory.bad
		b.Holding = true
		return &b, nil
	case blank:
		why := cmp.Or(p.memory.err, p.lease.Fault(), errors.New("it was not read yet"))
		return &freeze.Freeze{State: bundle.Pending, Reason: freeze.ReasonMemoryUnread, Message: reconcilers.Clip("what was done to this cluster before is not known: " + why.Error()), Holding: true}, nil
	case !p.memory.behind(p.stream(), p.running):
		return nil, nil
	case got.staged && !p.memory.behind(p.stream(), got.target), p.accepted != nil && !p.memory.behind(p.stream(), p.accepted) && !p.isRefused(p.accepted) && p.content.Ready(ctx, p.accepted):
		return nil, nil
	}
	return &freeze.Freeze{State: bundle.Pending, Reason: freeze.ReasonBehindMemory, Message: fmt.Sprintf("the cluster has had a newer release than is here, as %s says, and waits for it or a later one", p.memory.store), Holding: true}, nil
}

// outOfReach freezes the engines of the cluster, and no others, while the Lease is not held and nobody else is known
// to hold it.
func (m *clusterMemory) outOfReach() *freeze.Freeze {
	if m.lease.Holds() && (m.store == nil || m.known) {
		return nil
	}
	why := cmp.Or(m.lease.Fault(), m.err, errors.New("it does not answer"))
	return &freeze.Freeze{State: bundle.Pending, Reason: freeze.ReasonAPIServerUnreachable, Message: reconcilers.Clip(why.Error())}
}
