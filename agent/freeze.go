package agent

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/agent/window"
	"github.com/wherry-dev/wherry/bundle"
)

// freeze is why the cluster must not be changed now. A frozen pass brings what is newer here, observes and
// reports; it calls no engine to change anything, and another release does not begin to run.
type freeze struct {
	// State is what the agent as a whole is while it stands and nothing worse is to be told.
	State   bundle.State `json:"state"`
	Reason  string       `json:"reason"`
	Message string       `json:"message,omitempty"`
	// Since is when it was first found.
	Since time.Time `json:"since"`
	// Until is when it ends by itself; zero where nobody knows.
	Until time.Time `json:"until,omitzero"`
	// Holding is true where something is to be changed, and waits for it.
	Holding bool `json:"holding,omitempty"`
}

// shown reports whether people are to know of it: a window that is closed is nothing to tell while
// everything is as it should be.
func (b *freeze) shown() bool { return b != nil && (b.Holding || b.Reason == ReasonPaused) }

// cause is something that may forbid changes.
type cause struct {
	ask func(*pass, context.Context) (*freeze, error)
	// onNeed is true where asking costs something. It is asked when something is to be changed, and not before.
	onNeed bool
	// once is true where an answer is good for the whole pass. Others are asked again before more is begun.
	once bool
	// onCluster is true where it is for the engines of the cluster alone. Those come last.
	onCluster bool
}

// causes are asked in this order. The first that has a freeze counts, for the rest of the pass.
var causes = [...]cause{
	{ask: (*pass).pausedBy},
	{ask: (*pass).heldByAnother},
	{ask: (*pass).afterCrashes, once: true},
	{ask: (*pass).outsideMaintenance},
	{ask: (*pass).memoryUnknown, once: true},
	{ask: (*pass).vetoed, onNeed: true},
	{ask: (*pass).outOfReach, onCluster: true},
}

// freezeRest is the time between two questions for a freeze within a pass, where the last one took so long: a second
// is soon enough for people, and a program that takes its time is not to take the pass's.
func freezeRest(took time.Duration) time.Duration { return max(time.Second, 10*took) }

// findFreeze asks the causes as a pass begins, or else as something is about to be changed, and keeps how long a freeze
// has stood.
func (p *pass) findFreeze(ctx context.Context, begins bool) error {
	for _, cause := range causes {
		if begins && cause.onNeed || !begins && cause.once {
			continue
		}
		b, err := cause.ask(p, ctx)
		if err != nil {
			return err
		}
		if b == nil {
			continue
		}
		b.Since = cmp.Or(b.Since, state.Stamp(p.opts.Now()))
		if old := p.frozenBefore; old != nil && old.Reason == b.Reason && old.Since.Before(b.Since) {
			b.Since = old.Since
		}
		p.frozen, p.limit = b, nil
		if cause.onCluster {
			p.limit = p.opts.OnCluster
		}
		return nil
	}
	return nil
}

// MayChange reports whether something that is to be changed may be. A freeze that begins in the course of a pass is
// found here.
func (p *pass) MayChange(ctx context.Context) (bool, error) {
	if begun := time.Now(); (p.frozen == nil || len(p.limit) > 0) && !begun.Before(p.askFreezeAt) {
		if err := p.findFreeze(ctx, false); err != nil {
			return false, err
		}
		now := time.Now()
		p.askFreezeAt = now.Add(p.freezeRest(now.Sub(begun)))
	}
	if p.frozen != nil {
		p.frozen.Holding = true
	}
	return p.frozen == nil, nil
}

// Allowed is what may be done of an operation for r. What was interrupted while an engine was called is looked
// at, since nobody knows how it stands.
func (p *pass) Allowed(r assignments.Record, do assignments.Operation) assignments.Operation {
	if p.frozen == nil || !do.Changes() || len(p.limit) > 0 && !slices.Contains(p.limit, p.engines.Next(r)) {
		return do
	}
	p.frozen.Holding = true
	if r.Item.State == bundle.Applying && !r.Removing && !r.Stale(p.engines.For(r.Spec)) {
		return assignments.Observe
	}
	return assignments.Nothing
}

// noteFreeze keeps the freeze of the pass, and says once that there is one, or that there is none any more.
func (p *pass) noteFreeze(tx *bbolt.Tx) (bool, error) {
	old, next := p.frozenBefore, p.frozen
	switch {
	case next.shown() && (!old.shown() || old.Reason != next.Reason):
		p.opts.Log.Info("the cluster must not be changed now", "reason", next.Reason, "message", next.Message)
	case old.shown() && !next.shown():
		p.opts.Log.Info("the cluster may be changed again", "was", old.Reason)
	}
	switch {
	case next == nil && old == nil, next != nil && old != nil && *next == *old:
		return false, nil
	case next == nil:
		return true, state.Drop(tx, state.Meta, keyFreeze)
	}
	return true, state.Save(tx, state.Meta, keyFreeze, next)
}

// describe says since when the cluster must not be changed, until when if that is known, and why.
func (b *freeze) describe() string {
	s := "since " + b.Since.Format(time.RFC3339)
	if !b.Until.IsZero() {
		s += ", until " + b.Until.Format(time.RFC3339)
	}
	if b.Message != "" {
		s += ": " + b.Message
	}
	return s
}

// freezeAt is the freeze that people are to know of at now: that of the last pass, and a pause from when it was asked for.
func freezeAt(tx *bbolt.Tx, now time.Time) (*freeze, error) {
	found, err1 := state.Load[*freeze](tx, state.Meta, keyFreeze)
	paused, err2 := loadPause(tx, now)
	switch known := found != nil && found.Reason == ReasonPaused; {
	case paused != nil:
		b := paused.freeze()
		b.Holding = known && found.Holding
		found = b
	case known: // it has ended, and no pass has been made since
		found = nil
	}
	if !found.shown() {
		found = nil
	}
	return found, errors.Join(err1, err2)
}

func (p *pass) outsideMaintenance(context.Context) (*freeze, error) {
	windows, now := p.opts.Maintenance, p.opts.Now()
	if len(windows) == 0 || slices.ContainsFunc(windows, func(w window.Maintenance) bool { return w.Open(now) }) {
		return nil, nil
	}
	var texts []string
	opens := windows[0].Opens(now)
	for _, w := range windows {
		opens, texts = earliest(opens, w.Opens(now)), append(texts, w.String())
	}
	message := bundle.Clip("maintenance is at " + strings.Join(texts, ", and at "))
	return &freeze{State: bundle.Pending, Reason: ReasonOutsideMaintenance, Message: message, Until: opens.UTC()}, nil
}

func (p *pass) vetoed(ctx context.Context) (*freeze, error) {
	why, veto, err := p.opts.Veto.Ask(ctx)
	if err != nil || !veto {
		return nil, err
	}
	return &freeze{State: bundle.Pending, Reason: ReasonVetoed, Message: why}, nil
}
