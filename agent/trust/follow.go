package trust

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.etcd.io/bbolt"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// Follow takes one version after the other from source until there is no newer one. Each is on disk before the next is
// judged by it.
func (s *Store) Follow(ctx context.Context, source bundle.Source, log *slog.Logger) error {
	for {
		version := int64(len(s.Chain())) + 1
		envelope, err := bundle.FetchTrust(ctx, source, version)
		if errors.Is(err, errdef.ErrNotFound) {
			return nil
		}
		if err == nil {
			err = s.believe(version, envelope)
		}
		if err != nil {
			return err
		}
		d := s.Chain().Current()
		log.Info("trust document accepted", "version", d.Version, "epoch", d.Epoch, "expires", d.ExpiresAt)
	}
}

// askEvery is how often the registry is asked for a newer trust document while it offers no new release.
const askEvery = 24 * time.Hour

// keyAsked is the record of state.Meta with an Asked.
const keyAsked = "asked"

// Asked is how the agent fared when it last asked for a newer trust document.
type Asked struct {
	// At is when it got an answer, good or bad.
	At time.Time `json:"at,omitzero"`
	// Reason and Message say why the chain is not known to be the newest. Empty where it was, then.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Due reports whether to ask although no release asks for it. A clock may be set back.
func (a Asked) Due(now time.Time) bool {
	return a.Reason != "" || now.Sub(a.At).Abs() >= askEvery
}

// LoadAsked reads how the last question for a trust document ended; the zero value is that none was asked.
func LoadAsked(tx *bbolt.Tx) (Asked, error) { return state.Load[Asked](tx, state.Meta, keyAsked) }

// Save replaces what LoadAsked returns.
func (a Asked) Save(tx *bbolt.Tx) error { return state.Save(tx, state.Meta, keyAsked, a) }
