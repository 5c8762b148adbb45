package trust

import (
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/bundle"
)

// Known is what an agent knows of who may sign.
type Known struct {
	// Chain is empty in an agent with pinned keys.
	Chain bundle.TrustChain
	// AskedAt is when a registry or a file answered last; zero is never. Reason and Message say why the
	// chain is not known to be the newest, where that is so.
	AskedAt         time.Time
	Reason, Message string
	// Pinned are the ids of the pinned keys, sorted. They count where the chain is empty. Only a running
	// agent knows them.
	Pinned []string
}

// Of is what is known with chain.
func (a Asked) Of(chain bundle.TrustChain) Known {
	return Known{Chain: chain, AskedAt: a.At, Reason: a.Reason, Message: a.Message}
}

// Status says how the trust document in force stands.
type Status struct {
	Version   int64     `json:"version"`
	Epoch     int64     `json:"epoch"`
	IssuedAt  time.Time `json:"issuedAt"`
	ExpiresAt time.Time `json:"expiresAt"`
	// Expired means that nothing new is accepted before the next version. DaysLeft counts whole days.
	Expired  bool  `json:"expired,omitempty"`
	DaysLeft int64 `json:"daysLeft"`
	// AskedAt is when a registry or a file answered last whether there is a newer one. Reason and Message say
	// why none was taken, where that is so.
	AskedAt *time.Time `json:"askedAt,omitempty"`
	Reason  string     `json:"reason,omitempty"`
	Message string     `json:"message,omitempty"`
	// PassedOver are the ids of pinned keys, which count no more. Only a running agent knows them.
	PassedOver []string `json:"passedOver,omitempty"`
}

// SoonDays is how many days before a trust document expires people are to know: the roots may have to meet.
const SoonDays = 30

// Soon reports whether the document has expired, or will within SoonDays.
func (s *Status) Soon() bool { return s.Expired || s.DaysLeft < SoonDays }

// Status returns how the document in force stands at now; nil where there is none.
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

// Known returns what the agent knows of who may sign.
func (s *Store) Known() (Known, error) {
	var a Asked
	err := s.db.View(func(tx *bbolt.Tx) (err error) {
		a, err = LoadAsked(tx)
		return err
	})
	return a.Of(s.Chain()), err
}
