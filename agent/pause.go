package agent

import (
	"errors"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/agent/probation"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// Resumed lists the pause, the rollback and the quarantine that Resume has ended. Nil fields did not exist.
type Resumed struct {
	Pause *freeze.Pause `json:"pause,omitempty"`
	// Held is the rollback that was ended. If there was a pause, the rollback goes on, and is StillHeld.
	Held      *HeldStatus `json:"held,omitempty"`
	StillHeld *HeldStatus `json:"stillHeld,omitempty"`
	// Retried are the releases that were given up and may run again, the newest first.
	Retried []probation.Quarantined `json:"retried,omitempty"`
}

// Pause asks that nothing in the cluster be changed from now on, for the given time, or until Resume where that
// is zero. One that is in force gets the new reason and end, and keeps its beginning.
func (s *State) Pause(reason string, lasting time.Duration, now time.Time) (freeze.Pause, error) {
	next := freeze.Pause{At: state.Stamp(now), Reason: bundle.OneLine(reason)}
	if lasting > 0 {
		next.Until = state.Stamp(now.Add(lasting))
	}
	err := s.db.Update(func(tx *bbolt.Tx) error {
		old, err := freeze.LoadPause(tx, now)
		if err != nil {
			return err
		}
		if old != nil {
			next.At = old.At
		}
		return state.Save(tx, state.Meta, freeze.KeyPause, next)
	})
	return next, err
}

// Resume ends a pause. Where there is none it ends a rollback, so that the newest release runs that was accepted
// and not given up: ending a pause does not end a rollback before it. With retry, releases that were given up may run
// again. It does nothing if there is nothing to end.
func (s *State) Resume(retry bool, now time.Time) (r Resumed, err error) {
	err = s.db.UpdateIf(func(tx *bbolt.Tx) (bool, error) {
		if r.Pause, err = freeze.LoadPause(tx, now); err != nil {
			return false, err
		}
		if err = endHold(tx, &r, now); r.Pause != nil {
			err = errors.Join(err, state.Drop(tx, state.Meta, freeze.KeyPause))
		}
		lifted := false
		if retry && err == nil {
			lifted, err = lift(tx, &r)
		}
		return r.Pause != nil || r.Held != nil || lifted, err
	})
	return r, err
}

// Pause is State.Pause in an agent that may be running: no further assignment is begun, and calls in progress
// end.
func (a *Agent) Pause(reason string, lasting time.Duration) (freeze.Pause, error) {
	p, err := a.state.Pause(reason, lasting, a.opts.Now())
	if err == nil {
		nudge(a.wake)
	}
	return p, err
}

// Resume is State.Resume in an agent that may be running.
func (a *Agent) Resume(retry bool) (Resumed, error) {
	r, err := a.state.Resume(retry, a.opts.Now())
	if err == nil {
		if r.Held != nil { // whose files may have been asked for in vain, ever more seldom
			a.eager.Store(true)
		}
		nudge(a.wake)
	}
	return r, err
}
