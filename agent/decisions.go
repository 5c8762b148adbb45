package agent

import (
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/probation"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// decisions are those of the agent, or of a person, about releases that the status of the agent as a whole shows.
type decisions struct {
	held       *hold
	quarantine probation.Quarantine
	// given is the newest release, if it was given up and no person has rolled back.
	given     *probation.Quarantined
	probation probation.Probation // of the release that runs
}

func loadDecisions(tx *bbolt.Tx, accepted, running *state.Release) (f decisions, err error) {
	var err1, err2, err3 error
	f.held, err1 = state.Load[*hold](tx, state.Meta, keyHeld)
	f.quarantine, err2 = probation.LoadQuarantine(tx)
	if f.probation, err3 = state.Load[probation.Probation](tx, state.Meta, keyAttempts); f.probation.Release != running.Digest() {
		f.probation = probation.Probation{}
	}
	if f.held == nil {
		f.given = quarantinedNewest(f.quarantine, accepted, running)
	}
	return f, errors.Join(err1, err2, err3)
}

// wentBackTo reports whether r was refused as older than the accepted release, and is the one to which a person has rolled
// back.
func (f decisions) wentBackTo(r *refusal) bool {
	return r != nil && r.Reason == bundle.OlderRelease && f.held != nil && f.held.To.Digest() == r.Digest
}

// states returns the states that count for the agent as a whole, beside those of its items.
func (f decisions) states() (states []bundle.State) {
	if f.held != nil {
		states = append(states, bundle.Suspended)
	}
	if f.given != nil {
		states = append(states, bundle.Failed)
	}
	return states
}

// quarantinedNewest returns the newest release if it was given up, with a message that names it and the running one.
func quarantinedNewest(q probation.Quarantine, accepted, running *state.Release) *probation.Quarantined {
	g := q.Of(accepted)
	if g == nil {
		return nil
	}
	s := fmt.Sprintf("release %s was given up", accepted.Name())
	if accepted.Digest() != g.Digest {
		s += fmt.Sprintf(", as its content is that of release %s", bundle.ReleaseName(g.Number, g.Digest))
	}
	if running.Digest() != accepted.Digest() {
		s += fmt.Sprintf("; release %s runs", running.Name())
	}
	newest := *g
	newest.Message = bundle.Clip(fmt.Sprintf("%s: %s: %s", s, g.Reason, g.Message))
	return &newest
}
