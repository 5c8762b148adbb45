package trust

import (
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/bundle"
)

// Known is an agent's trust chain and pinned keys, with the time at which the chain was last found to be the newest.
type Known struct {
	// Chain is empty in an agent with pinned keys.
	Chain bundle.TrustChain
	// AskedAt is the time of the last answer of a registry or a file; zero means never. Reason and Message are the
	// reason why the chain may not be the newest; empty if it was then.
	AskedAt         time.Time
	Reason, Message string
	// Pinned are the ids of the pinned keys, sorted. They count if the chain is empty. Only a running
	// agent knows them.
	Pinned []string
}

// Of returns the outcome of asking together with chain.
func (a Asked) Of(chain bundle.TrustChain) Known {
	return Known{Chain: chain, AskedAt: a.At, Reason: a.Reason, Message: a.Message}
}

// Status is the status of the trust document in force.
type Status struct {
	Version   int64     `json:"version"`
	Epoch     int64     `json:"epoch"`
	IssuedAt  time.Time `json:"issuedAt"`
	ExpiresAt time.Time `json:"expiresAt"`
	// Expired means that no new release is accepted before the next version. DaysLeft counts whole days.
	Expired  bool  `json:"expired,omitempty"`
	DaysLeft int64 `json:"daysLeft"`
	// AskedAt is the time of the last answer of a registry or a file about a newer document. Reason and Message are
	// the reason why none was accepted; empty otherwise.
	AskedAt *time.Time `json:"askedAt,omitempty"`
	Reason  string     `json:"reason,omitempty"`
	Message string     `json:"message,omitempty"`
	// PassedOver are the ids of pinned keys, which no longer count. Only a running agent knows them.
	PassedOver []string `json:"passedOver,omitempty"`
}

// SoonDays is the number of days before expiry at which people are warned: the owners of the root keys may have to meet.
const SoonDays = 30

// Soon reports whether the document has expired, or will within SoonDays.
func (s *Status) Soon() bool { return s.Expired || s.DaysLeft < SoonDays }

// Status returns the status of the document in force at the time now; nil if there is none.
func (k Known) Status(now time.Time) *Status {
	if len(k.Chain) == 0 {
		return nil
	}
	d := k.Chain.Current()
	s := &Status{
		Version: d.Version, Epoch: d.Epoch, IssuedAt: d.IssuedAt, ExpiresAt: d.ExpiresAt, Expired: !now.Before(d.ExpiresAt),
		DaysLeft: max(0, int64(d.ExpiresAt.Sub(now)/(24*time.Hour))), Reason: k.Reason, Message: k.Message,
	}
	if !k.AskedAt.IsZero() {
		s.AskedAt = &k.AskedAt
	}
	return s
}

// Known returns the agent's trust chain with the outcome of the last request for a newer document.
func (s *Store) Known() (Known, error) {
	var a Asked
	err := s.db.View(func(tx *bbolt.Tx) (err error) {
		a, err = LoadAsked(tx)
		return err
	})
	return a.Of(s.Chain()), err
}
