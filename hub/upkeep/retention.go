package upkeep

import (
	"context"
	"log/slog"
	"time"

	"github.com/wherry-dev/wherry/hub/store"
)

// Retention is how long a hub keeps what is not the present. Zero is for ever.
type Retention struct {
	// Envelopes is for the envelopes of reports, History for changes.
	Envelopes, History time.Duration
}

// The usual retention of a hub.
const (
	DefaultEnvelopes = 90 * 24 * time.Hour
	DefaultHistory   = 400 * 24 * time.Hour
)

// trimInterval is the time between two rounds of Run.
const trimInterval = time.Hour

// Trim removes what is older than the retention at a time. Envelopes that are not older than unsent stay; zero means that
// it bounds nothing.
func (r Retention) Trim(ctx context.Context, of store.Evidence, now, unsent time.Time) (store.Trimmed, error) {
	before := func(keep time.Duration) time.Time {
		if keep <= 0 {
			return time.Time{}
		}
		return now.Add(-keep)
	}
	envelopes, history := before(r.Envelopes), before(r.History)
	if !unsent.IsZero() && unsent.Before(envelopes) {
		envelopes = unsent
	}
	if envelopes.IsZero() && history.IsZero() {
		return store.Trimmed{}, nil
	}
	return of.Trim(ctx, envelopes, history)
}

// Options are the optional parts of Run; the zero value works.
type Options struct {
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log is nil for silence.
	Log *slog.Logger
	// Unsent returns when the oldest envelope was stored that another hub is still to get, and false if that is not known:
	// then no envelope is removed. Nil means that no other hub gets any.
	Unsent func() (time.Time, bool)
	// Trimmed, if not nil, is called with what was removed.
	Trimmed func(store.Trimmed)
}

// Run trims at once, and then every hour until ctx ends. It returns nil. A round that fails is logged, and made up for by the
// next.
func (r Retention) Run(ctx context.Context, of store.Evidence, o Options) error {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	for {
		r.round(ctx, of, o)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(trimInterval):
		}
	}
}

func (r Retention) round(ctx context.Context, of store.Evidence, o Options) {
	var unsent time.Time
	if o.Unsent != nil {
		at, known := o.Unsent()
		if unsent = at; !known {
			r.Envelopes = 0
		}
	}
	trimmed, err := r.Trim(ctx, of, o.Now(), unsent)
	if o.Trimmed != nil {
		o.Trimmed(trimmed)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		o.Log.Error("what is older than the retention is not removed", "err", err)
	case trimmed != store.Trimmed{}:
		o.Log.Info("removed what is older than the retention", "envelopes", trimmed.Envelopes, "changes", trimmed.Transitions)
	}
}
