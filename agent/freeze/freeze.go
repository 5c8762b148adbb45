// Package freeze has the reasons against changes to a cluster, such as a person's pause or a closed maintenance window,
// and enforces them in a pass.
//
// A Guard asks the causes of a freeze, and says which operations engines may still do. Save keeps the freeze that it has
// found for the next pass, and At returns the one to show to people. A frozen pass fetches newer releases, observes and
// reports; it calls no engine to change anything, and switches to no other release. A Veto is the site's own reason, from a
// file or a command; the zero Veto forbids nothing.
package freeze

import (
	"errors"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// The records of state.Meta.
const (
	key      = "bar"    // Freeze: that of the last pass
	KeyPause = "paused" // Pause
)

// Freeze is the reason why the cluster must not be changed now. Its JSON is a record of the state file.
type Freeze struct {
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

// Shown reports whether people are to know of it: a window that is closed is nothing to tell while
// everything is as it should be.
func (f *Freeze) Shown() bool { return f != nil && (f.Holding || f.Reason == ReasonPaused) }

// Describe returns the beginning of the freeze, its end if that is known, and its reason, as a text.
func (f *Freeze) Describe() string {
	s := "since " + f.Since.Format(time.RFC3339)
	if !f.Until.IsZero() {
		s += ", until " + f.Until.Format(time.RFC3339)
	}
	if f.Message != "" {
		s += ": " + f.Message
	}
	return s
}

// Load returns the freeze of the last pass, nil for none.
func Load(tx *bbolt.Tx) (*Freeze, error) { return state.Load[*Freeze](tx, state.Meta, key) }

// Save keeps the freeze of a pass; nil is none.
func Save(tx *bbolt.Tx, f *Freeze) error {
	if f == nil {
		return state.Drop(tx, state.Meta, key)
	}
	return state.Save(tx, state.Meta, key, f)
}

// At returns the freeze that people are to know of at now: that of the last pass, and a pause from when it was asked for. Nil is none.
func At(tx *bbolt.Tx, now time.Time) (*Freeze, error) {
	found, err1 := Load(tx)
	paused, err2 := LoadPause(tx, now)
	switch known := found != nil && found.Reason == ReasonPaused; {
	case paused != nil:
		b := paused.freeze()
		b.Holding = known && found.Holding
		found = b
	case known: // it has ended, and no pass has been made since
		found = nil
	}
	if !found.Shown() {
		found = nil
	}
	return found, errors.Join(err1, err2)
}
