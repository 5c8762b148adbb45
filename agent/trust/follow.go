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

// Follow adds one version after the other from source until there is no newer one. Each is on disk before the next one is
// verified with it.
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

// askEvery is the interval at which the agent asks for newer trust documents while it is offered no new release.
const askEvery = 24 * time.Hour

// keyAsked is the record of state.Meta with an Asked.
const keyAsked = "asked"

// Asked is the outcome of the last request for a newer trust document.
type Asked struct {
	// At is the time of the answer, good or bad.
	At time.Time `json:"at,omitzero"`
	// Reason and Message are the reason why the chain may not be the newest; empty if it was the newest then.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Due reports whether to ask even without a new release: if the last request failed, or if it was a day ago. A clock that
// was set back by a day counts too.
func (a Asked) Due(now time.Time) bool {
	return a.Reason != "" || now.Sub(a.At).Abs() >= askEvery
}

// LoadAsked reads the outcome of the last request; the zero value means that there was none.
func LoadAsked(tx *bbolt.Tx) (Asked, error) { return state.Load[Asked](tx, state.Meta, keyAsked) }

// Save saves a for LoadAsked.
func (a Asked) Save(tx *bbolt.Tx) error { return state.Save(tx, state.Meta, keyAsked, a) }
