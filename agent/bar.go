package agent

import (
	"cmp"
	"context"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/bundle"
)

// Reasons for which a cluster must not be changed.
const reasonPaused = "Paused"

// bar is why the cluster must not be changed now. A barred pass brings what is newer here, observes and
// reports; it calls no engine to change anything, and another release does not begin to run.
type bar struct {
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
func (b *bar) shown() bool { return b != nil && (b.Holding || b.Reason == reasonPaused) }

// causes are asked in this order before a pass changes anything. The first that has a bar counts.
var causes = [...]func(*pass, context.Context) (*bar, error){
	(*pass).pausedBy,
	(*pass).restsBy,
}

// findBar looks for a bar, and keeps how long it has stood.
func (p *pass) findBar(ctx context.Context) error {
	for _, cause := range causes {
		b, err := cause(p, ctx)
		if err != nil {
			return err
		}
		if b == nil {
			continue
		}
		b.Since = cmp.Or(b.Since, stamp(p.opts.Now()))
		if old := p.barBefore; old != nil && old.Reason == b.Reason && old.Since.Before(b.Since) {
			b.Since = old.Since
		}
		p.barred = b
		return nil
	}
	return nil
}

// allowed is what may be done of an errand for r. What was interrupted while an engine was called is looked
// at, since nobody knows how it stands.
func (p *pass) allowed(r record, do errand) errand {
	if p.barred == nil || do == nothing || do == see {
		return do
	}
	p.barred.Holding = true
	if r.Item.State == bundle.Applying && !r.Removing && !r.stale(p.adapter(r.Spec)) {
		return see
	}
	return nothing
}

// noteBar keeps the bar of the pass, and says once that there is one, or that there is none any more.
func (p *pass) noteBar(tx *bbolt.Tx) (bool, error) {
	old, next := p.barBefore, p.barred
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
		return true, drop(tx, bucketMeta, keyBar)
	}
	return true, save(tx, bucketMeta, keyBar, next)
}

// pause is a person's wish that nothing be changed.
type pause struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason,omitempty"`
}

func (p *pass) pausedBy(context.Context) (*bar, error) {
	var by *pause
	err := p.state.view(func(tx *bbolt.Tx) (err error) {
		by, err = load[*pause](tx, bucketMeta, keyPaused)
		return err
	})
	if err != nil || by == nil {
		return nil, err
	}
	return &bar{State: bundle.Suspended, Reason: reasonPaused, Message: by.Reason, Since: by.At}, nil
}
