// Package advance brings what is in a ring to the next one, from the registry alone, once its gate passes.
//
// [Once] looks at all rings of an environment, the widest first, and takes each at most one step: the ring gets the content of
// the ring before it, in a new signed release that refers to the same blobs ([publisher.Reissue]). So a release reaches the last
// ring only if its gate passed before each ring, and a newer release in a narrow ring takes the place of an older one that is
// still on its way. [Pass] does it for several environments, until no gate passes.
package advance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/lineage"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/publisher/usage"
	"github.com/wherry-dev/wherry/rollout/gate"
)

// Ask is what a gate is asked.
type Ask struct {
	Environment string
	// Ring is the ring that is to get the content of From, the ring before it.
	Ring, From string
	// Candidate has the contents of the cluster types whose rings differ, and the newest base commit and time of issue of
	// their releases in From.
	Candidate gate.Candidate
}

// Gate judges whether the content of a ring may go to the next one. It may be asked again about the same.
type Gate func(ctx context.Context, ask Ask) (gate.Verdict, error)

// Options says what to advance.
type Options struct {
	Environment string
	// ClusterType advances one cluster type; empty is all.
	ClusterType string
	// Ring is the ring that is to get something; empty is each that may.
	Ring string
	// Rings are the platform's rings, narrowest first, for a record that does not have them; see bundle.EnvironmentRecord.
	Rings []string
}

// Result is what happened to a ring.
type Result string

// The results of steps.
const (
	Advanced Result = "advanced"
	Pending  Result = "pending" // advanced, but more signatures are needed
	NotYet   Result = "not yet" // its gate waits
	Held     Result = "held"    // its gate says no
	Ready    Result = "ready"   // its gate passes, and it has not been advanced; see Look
)

// Step is a ring that is behind the one before it.
type Step struct {
	Ring   string `json:"ring"`
	From   string `json:"from"`
	Commit string `json:"commit,omitempty"`
	// ClusterTypes are those whose content differs, sorted.
	ClusterTypes []string     `json:"clusterTypes"`
	Result       Result       `json:"result"`
	Verdict      gate.Verdict `json:"verdict"`
}

// Done is what Once did. Its JSON form is an interface.
type Done struct {
	Platform    string `json:"platform"`
	Environment string `json:"environment"`
	// Steps are the rings that are behind, the widest first; none if all rings have what the first has.
	Steps []Step `json:"steps"`
	// Published is what was released; nil if nothing was.
	Published *publisher.Published `json:"published,omitempty"`
	Warnings  []string             `json:"warnings,omitempty"`
	// NextLook is the earliest moment at which a gate may pass by time alone; zero if there is none.
	NextLook time.Time `json:"nextLook,omitzero"`
}

// Has reports whether any step has that result.
func (d *Done) Has(r Result) bool {
	return slices.ContainsFunc(d.Steps, func(s Step) bool { return s.Result == r })
}

// Once brings the content of rings to the rings after them where judge says pass. The result is nil with an error that came
// before anything was read. Of opts, Once uses Trust, OCI, Parallel and Now.
func Once(ctx context.Context, to oci.Location, signers []*keys.Key, o Options, judge Gate, opts publisher.PublishOptions) (*Done, error) {
	var done *Done
	published, err := publisher.Reissue(ctx, to, signers, o.Environment, func(ctx context.Context, at *state.Reader, record state.Record) (*publisher.Content, error) {
		done = &Done{Platform: at.Platform, Environment: at.Environment, Steps: []Step{}}
		return choose(ctx, at, record.Verified.Record, o, judge, done)
	}, opts)
	if done == nil {
		return done, err
	}
	done.Warnings = published.Warnings
	if err == nil && done.Has(Advanced) {
		done.Published = published
		if published.Record.Result == releases.OutcomePending {
			for i := range done.Steps {
				if done.Steps[i].Result == Advanced {
					done.Steps[i].Result = Pending
				}
			}
		}
	}
	return done, err
}

// choose decides what the rings of a record are to have.
func choose(ctx context.Context, at *state.Reader, record bundle.EnvironmentRecord, o Options, judge Gate, done *Done) (*publisher.Content, error) {
	order := orderOf(record, o)
	switch {
	case len(record.Rings) == 0:
		return nil, usage.Errorf("environment %s has no rings", o.Environment)
	case len(order) == 0:
		return nil, usage.Errorf("the record of environment %s does not say the order of its rings: publish once", o.Environment)
	case o.Ring != "" && !slices.Contains(order, o.Ring):
		return nil, usage.Errorf("unknown ring %q (known: %s)", o.Ring, strings.Join(order, ", "))
	case o.Ring != "" && o.Ring == order[0]:
		return nil, usage.Errorf("%s is the first ring: it gets what is published", o.Ring)
	case o.ClusterType != "" && len(record.Rings[o.ClusterType]) == 0:
		return nil, usage.Errorf("cluster type %s has no rings in environment %s (known: %s)", o.ClusterType, o.Environment, strings.Join(slices.Sorted(maps.Keys(record.Rings)), ", "))
	}
	content := &publisher.Content{
		Releases: map[string]map[string]digest.Digest{}, Why: "it is advanced", Recorded: true,
		BaseCommit: record.BaseCommit, BaseID: record.BaseID, EnvironmentCommit: record.EnvironmentCommit, Incomplete: record.Incomplete,
	}
	for i := len(order) - 1; i > 0; i-- {
		if o.Ring != "" && o.Ring != order[i] {
			continue
		}
		s, err := step(ctx, at, record, o, order, i, judge)
		if err != nil {
			return nil, err
		}
		if s == nil {
			continue
		}
		if s.Result == Ready {
			s.Result = Advanced
			for _, name := range s.ClusterTypes {
				give(content.Releases, record, name, order, i)
			}
		}
		done.NextLook = earlier(done.NextLook, s.Verdict.NextLook)
		done.Steps = append(done.Steps, *s)
	}
	if len(content.Releases) == 0 {
		return nil, nil
	}
	return content, nil
}

// orderOf returns the rings, narrowest first; none if there are none, or if their order is not known.
func orderOf(record bundle.EnvironmentRecord, o Options) []string {
	if len(record.RingOrder) > 0 {
		return record.RingOrder
	}
	return o.Rings
}

// earlier returns the earlier of two moments; a zero one is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// step asks whether the ring order[i] may get what the ring before it has; nil if it has that already.
func step(ctx context.Context, at *state.Reader, record bundle.EnvironmentRecord, o Options, order []string, i int, judge Gate) (*Step, error) {
	candidate, err := Candidate(record, order[i-1], order[i], o.ClusterType, func(typ string, d digest.Digest) (*bundle.Release, error) {
		v, err := at.ReleaseOf(ctx, typ, d)
		if err != nil {
			return nil, err
		}
		return &v.Release, nil
	})
	if candidate == nil {
		return nil, err
	}
	s := Step{Ring: order[i], From: order[i-1], Commit: candidate.BaseCommit, ClusterTypes: slices.Sorted(maps.Keys(candidate.Contents))}
	if s.Verdict, err = judge(ctx, Ask{Environment: o.Environment, Ring: s.Ring, From: s.From, Candidate: *candidate}); err != nil {
		return nil, fmt.Errorf("gate of ring %s: %w", s.Ring, err)
	}
	switch s.Verdict.Result {
	case gate.Pass:
		s.Result = Ready
	case gate.Wait:
		s.Result = NotYet
	default:
		s.Result = Held
	}
	return &s, nil
}

// give has the ring order[i] get what the ring before it has, and all others what they have: those before it that have the same
// share its release.
func give(all map[string]map[string]digest.Digest, record bundle.EnvironmentRecord, name string, order []string, i int) {
	rings := all[name]
	if rings == nil {
		rings = maps.Clone(record.Rings[name])
		if d := record.ClusterTypes[name]; d != "" {
			rings[""] = d
		}
		all[name] = rings
	}
	rings[order[i]] = record.Rings[name][order[i-1]]
	if i == len(order)-1 {
		rings[""] = rings[order[i]]
	}
}

// Candidate returns what a ring is to get from the ring before it, as a gate sees it; see lineage.StepOf.
func Candidate(record bundle.EnvironmentRecord, before, ring, clusterType string, release func(typ string, d digest.Digest) (*bundle.Release, error)) (*gate.Candidate, error) {
	s, err := lineage.StepOf(record, before, ring, clusterType, release)
	if s == nil || err != nil {
		return nil, err
	}
	return &gate.Candidate{Platform: record.Platform, Environment: record.Environment, BaseCommit: s.BaseCommit, IssuedAt: s.IssuedAt, Incomplete: s.Incomplete, Contents: s.Contents}, nil
}

// maxRounds bounds how often Pass looks at an environment again because a ring got something.
const maxRounds = 20

// Pass advances the rings of several environments as far as their gates pass: an environment in which a ring got something is looked at again.
// Tell gets what was done in each round, and ends Pass if it returns an error. What fails in one environment keeps none of the others
// back; the error joins all.
func Pass(ctx context.Context, to oci.Location, signers []*keys.Key, all []Options, judge Gate, opts publisher.PublishOptions, tell func(*Done) error) error {
	var failures []error
	for round := 0; len(all) > 0; round++ {
		var again []Options
		for _, o := range all {
			done, err := Once(ctx, to, signers, o, judge, opts)
			if err != nil {
				failures = append(failures, fmt.Errorf("environment %s: %w", o.Environment, err))
			}
			if done == nil {
				continue
			}
			if err := tell(done); err != nil {
				return errors.Join(append(failures, err)...)
			}
			if done.Has(Advanced) && round < maxRounds { // the gate of the next ring may pass, or know when it will
				again = append(again, o)
			}
		}
		all = again
	}
	return errors.Join(failures...)
}
