package agent

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/enroll"
	"github.com/wherry-dev/wherry/agent/probation"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// maxHistory is how many accepted releases are remembered, with those in use beside them. Ten reach over a
// release with three rings, twice, and cost some kilobytes.
const maxHistory = 10

// past holds the releases to which a person may roll back, and the state for judging that.
type past struct {
	accepted, running, good *state.Release
	previous                *state.Release
	held                    *hold
	known                   []*state.Release // the newest first
	quarantine              probation.Quarantine
	epoch                   int64
}

// recall reads it. It skips releases of another stream, to which the agent was bound before.
func (s *State) recall(tx *bbolt.Tx) (p past, err error) {
	cluster, err0 := enroll.LoadCluster(tx)
	var err1, err2, err3, err4, err5 error
	p.accepted, err1 = state.Load[*state.Release](tx, state.Meta, keyAccepted)
	p.running, err2 = state.Load[*state.Release](tx, state.Meta, keyRunning)
	p.good, err3 = state.Load[*state.Release](tx, state.Meta, keyGood)
	p.quarantine, err4 = probation.LoadQuarantine(tx)
	p.epoch = s.trust.Chain().Current().Epoch
	p.previous, err5 = state.Load[*state.Release](tx, state.Meta, keyPrevious)
	history, err6 := state.Load[[]*state.Release](tx, state.Meta, keyHistory)
	var err7 error
	p.held, err7 = state.Load[*hold](tx, state.Meta, keyHeld)
	stream := bundle.Stream{Platform: cluster.Platform, Environment: cluster.Environment, ClusterType: cluster.Type}
	for _, r := range append(history, p.accepted, p.running, p.good, p.previous) {
		same := func(o *state.Release) bool { return o.Digest() == r.Digest() }
		if r != nil && r.Release.Stream() == stream && !slices.ContainsFunc(p.known, same) {
			p.known = append(p.known, r)
		}
	}
	slices.SortFunc(p.known, func(a, b *state.Release) int {
		return b.Order().Compare(a.Order())
	})
	return p, errors.Join(err0, err1, err2, err3, err4, err5, err6, err7)
}

// find returns the release that a person names, if it may be gone back to.
func (p past) find(to string, now time.Time) (*state.Release, error) {
	var ids []bundle.ReleaseID
	for _, r := range p.known {
		ids = append(ids, r.ID())
	}
	query, err := bundle.ParseReleaseQuery(to)
	if err != nil {
		return nil, fmt.Errorf("release %s %w", to, ErrNotAccepted)
	}
	i, err := query.Find(ids, now)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", err, ErrAmbiguous)
	case i < 0:
		return nil, fmt.Errorf("release %s %w", to, ErrNotAccepted)
	}
	return p.known[i], p.judge(p.known[i])
}

// judge returns an error if a person may not roll back to the release.
func (p past) judge(r *state.Release) error {
	switch g := p.quarantine.Of(r); {
	case r.Digest() == p.accepted.Digest():
		return fmt.Errorf("release %s %w", r.Name(), ErrNewest)
	case r.Release.Epoch != p.epoch:
		return fmt.Errorf("release %s %w: %s: the trust in force has epoch %d", r.Name(), ErrNotAllowed, bundle.OldEpoch, p.epoch)
	case g != nil:
		return fmt.Errorf("release %s %w: it was given up: %s: %s", r.Name(), ErrNotAllowed, g.Reason, g.Message)
	}
	return nil
}

// KnownRelease is a release that was accepted here.
type KnownRelease struct {
	ReleaseStatus
	AcceptedAt time.Time `json:"acceptedAt"`
	// Here is true if its files are on this machine, so that running it needs no link.
	Here bool `json:"here"`
	// Running is true for the release that runs, Newest for the one that was accepted last, and Good for the last
	// one each assignment of which was compliant in it.
	Running bool `json:"running,omitempty"`
	Newest  bool `json:"newest,omitempty"`
	Good    bool `json:"good,omitempty"`
	// Held is true for the one that a person has decided to run; see Status.
	Held bool `json:"held,omitempty"`
	// GivenUp is the reason for which it, or its content, was given up; empty where it was not.
	GivenUp string `json:"givenUp,omitempty"`
	// NotAllowed is the reason why RollBack refuses it; empty if it does not.
	NotAllowed string `json:"notAllowed,omitempty"`
}

// Releases returns the releases of the agent's stream that are remembered, the newest first.
func (s *State) Releases(now time.Time) (list []KnownRelease, err error) {
	var p past
	err = s.db.View(func(tx *bbolt.Tx) (err error) {
		p, err = s.recall(tx)
		return err
	})
	store := content.New(s.db, content.Options{})
	for _, r := range p.known {
		k := KnownRelease{
			ReleaseStatus: *releaseStatus(r, now), AcceptedAt: r.AcceptedAt, Here: store.Has(r),
			Running: r.Digest() == p.running.Digest(), Newest: r.Digest() == p.accepted.Digest(), Good: r.Digest() == p.good.Digest(),
			Held: p.held != nil && p.held.To.Digest() == r.Digest(),
		}
		if g := p.quarantine.Of(r); g != nil {
			k.GivenUp = g.Reason
		}
		if err := p.judge(r); err != nil {
			k.NotAllowed = err.Error()
		}
		list = append(list, k)
	}
	return list, err
}
