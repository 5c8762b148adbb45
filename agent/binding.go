package agent

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/enroll"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// ErrRebound is how Run ends where the agent is to follow other releases: another agent, of the same state, follows
// them.
var ErrRebound = errors.New("other releases are to be followed")

// Feed identifies the releases that an agent follows: those of a stream for a ring.
type Feed struct {
	bundle.Stream
	Ring string `json:"ring,omitempty"`
}

// String is such as dev/drone, or prod/drone of platform coffee in ring canary.
func (f Feed) String() string {
	s := f.Environment + "/" + f.ClusterType
	if f.Platform != "default" {
		s += " of platform " + f.Platform
	}
	if f.Ring != "" {
		s += " in ring " + f.Ring
	}
	return s
}

// FeedOf is that of an agent that is configured as cluster.
func FeedOf(cluster bundle.ReportCluster) Feed {
	return Feed{bundle.Stream{Platform: cluster.Platform, Environment: cluster.Environment, ClusterType: cluster.Type}, cluster.Ring}
}

// Of is cluster as one that follows f.
func (f Feed) Of(cluster bundle.ReportCluster) bundle.ReportCluster {
	cluster.Platform, cluster.Environment, cluster.Type, cluster.Ring = f.Platform, f.Environment, f.ClusterType, f.Ring
	return cluster
}

// Binding is a person's wish that an agent follow other releases than its configuration says.
type Binding struct {
	// Configured is what the configuration said when the wish was made. It counts as long as that is so.
	Configured Feed      `json:"configured"`
	Bound      Feed      `json:"bound"`
	At         time.Time `json:"at"`
}

// orNone returns nil for a binding that was undone. Such a binding is deleted only once an agent follows its configuration
// again, since until then no other record has the configured values.
func (b *Binding) orNone() *Binding {
	if b == nil || b.Bound == b.Configured {
		return nil
	}
	return b
}

// Rebinding is the stream and the ring that an agent is to follow. Empty fields, and a nil Ring, keep their values; Undo
// goes back to the configured values.
type Rebinding struct {
	Platform    string  `json:"platform,omitempty"`
	Environment string  `json:"environment,omitempty"`
	ClusterType string  `json:"clusterType,omitempty"`
	Ring        *string `json:"ring,omitempty"`
	Undo        bool    `json:"undo,omitempty"`
}

// Rebound is the result of Rebind. Before and After are the same if nothing has changed.
type Rebound struct {
	Before, After Feed
	// Binding is nil where After is what the configuration says.
	Binding *Binding
}

// Bound returns cluster, which is as the configuration says, as it was bound by a person. A binding of another
// configuration is forgotten, where s may be written: who changes the configuration has the last word.
func (s *State) Bound(cluster bundle.ReportCluster) (bundle.ReportCluster, error) {
	var b *Binding
	err := s.db.View(func(tx *bbolt.Tx) (err error) {
		b, err = state.Load[*Binding](tx, state.Meta, keyBinding)
		return err
	})
	switch {
	case err != nil || b == nil:
		return cluster, err
	case b.Configured == FeedOf(cluster):
		return b.Bound.Of(cluster), nil
	case s.db.ReadOnly():
		return cluster, nil
	}
	return cluster, s.db.Update(func(tx *bbolt.Tx) error { return state.Drop(tx, state.Meta, keyBinding) })
}

// Rebind makes the next agent follow other releases. Until one of them is verified, the present one stays. The error
// wraps state.ErrNoState if no agent has worked yet, and is a *bundle.Refusal if the trust document is for another
// platform.
func (s *State) Rebind(to Rebinding, now time.Time) (r Rebound, err error) {
	var refusal error
	err = s.db.UpdateIf(func(tx *bbolt.Tx) (bool, error) {
		cluster, err1 := enroll.LoadCluster(tx)
		b, err2 := state.Load[*Binding](tx, state.Meta, keyBinding)
		if err := errors.Join(err1, err2); err != nil {
			return false, err
		}
		if cluster.Environment == "" {
			refusal = fmt.Errorf("state folder %s: %w", s.db.Dir(), state.ErrNoState)
			return false, nil
		}
		configured := FeedOf(cluster)
		r.Before = configured
		if b != nil {
			configured, r.Before = b.Configured, b.Bound
		}
		r.After = to.from(r.Before, configured)
		if chain := s.trust.Chain(); len(chain) > 0 && chain.Current().Platform != r.After.Platform {
			refusal = bundle.Refuse(bundle.WrongPlatform, "the trust document is for platform %q: another platform is another state folder", chain.Current().Platform)
			return false, nil
		}
		if r.After == r.Before {
			r.Binding = b.orNone()
			return false, nil
		}
		b = &Binding{Configured: configured, Bound: r.After, At: state.Stamp(now)}
		r.Binding = b.orNone()
		return true, state.Save(tx, state.Meta, keyBinding, b)
	})
	return r, cmp.Or(err, refusal)
}

func (to Rebinding) from(now, configured Feed) Feed {
	if to.Undo {
		return configured
	}
	now.Platform, now.Environment, now.ClusterType = cmp.Or(to.Platform, now.Platform), cmp.Or(to.Environment, now.Environment), cmp.Or(to.ClusterType, now.ClusterType)
	if to.Ring != nil {
		now.Ring = *to.Ring
	}
	return now
}

// Rebind is State.Rebind in an agent that may be running: its pass ends, and then Run does.
func (a *Agent) Rebind(to Rebinding) (Rebound, error) {
	r, err := a.state.Rebind(to, a.opts.Now())
	if err == nil && r.After != FeedOf(a.cluster) {
		a.rebound.Store(true)
		nudge(a.wake)
	}
	return r, err
}

// own reports whether a release is for this agent, which may have been bound elsewhere since it was accepted.
func (a *Agent) own(r *state.Release) bool {
	if r == nil {
		return false
	}
	var refusal *bundle.Refusal
	err := bundle.Expect{Stream: a.stream(), Ring: a.cluster.Ring, Highest: bundle.Order{Digest: r.Digest()}}.Check(r.Release, r.Digest())
	return !errors.As(err, &refusal)
}

// move deletes the state of the stream that was followed before. It keeps the order, which is kept for each stream, and the
// running release.
func (p *pass) move(tx *bbolt.Tx, was Feed) error {
	b, err := state.Load[*Binding](tx, state.Meta, keyBinding)
	if err != nil {
		return err
	}
	now := FeedOf(p.cluster)
	if b != nil && b.Bound == now {
		p.opts.Log.Info("other releases are followed from now on", "before", was, "now", now, "by", "rebind")
	} else {
		p.opts.Log.Warn("other releases are followed from now on", "before", was, "now", now, "by", "configuration")
	}
	if b.orNone() == nil {
		err = state.Drop(tx, state.Meta, keyBinding)
	}
	p.refused, p.contact = nil, contact{}
	err = errors.Join(err, state.Drop(tx, state.Meta, keyRefused), state.Drop(tx, state.Meta, keyContact))
	if !p.own(p.accepted) {
		p.accepted = nil
		err = errors.Join(err, state.Drop(tx, state.Meta, keyAccepted))
	}
	return err
}

// awaits returns the message of an agent that still runs a release of another stream; empty if it does not.
func awaits(running *state.Release, cluster bundle.ReportCluster) string {
	if running == nil || cluster.Environment == "" || running.Release.Stream() == FeedOf(cluster).Stream {
		return ""
	}
	was := Feed{Stream: running.Release.Stream()}
	return fmt.Sprintf("what is here of %s stays until the first release of %s begins to run", was, FeedOf(cluster))
}
