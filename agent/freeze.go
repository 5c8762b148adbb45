package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/agent/window"
	"github.com/wherry-dev/wherry/bundle"
)

// freeze is the reason why the cluster must not be changed now. A frozen pass fetches newer releases, observes and
// reports; it calls no engine to change anything, and switches to no other release.
type freeze struct {
	// State is the state of the agent as a whole during the freeze, unless another one takes precedence.
	State   bundle.State `json:"state"`
	Reason  string       `json:"reason"`
	Message string       `json:"message,omitempty"`
	// Since is the time at which it was first found.
	Since time.Time `json:"since"`
	// Until is the time at which it ends by itself; zero if unknown.
	Until time.Time `json:"until,omitzero"`
	// Holding is true if a change waits for its end.
	Holding bool `json:"holding,omitempty"`
}

// shown reports whether people are to know of it: a window that is closed is nothing to tell while
// everything is as it should be.
func (b *freeze) shown() bool { return b != nil && (b.Holding || b.Reason == ReasonPaused) }

// noteFreeze saves the freeze of the pass, and logs its beginning and its end once.
func (p *pass) noteFreeze(tx *bbolt.Tx, next *freeze) (bool, error) {
	old := p.frozenBefore
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

// describe returns the beginning of the freeze, its end if that is known, and its reason, as a text.
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
