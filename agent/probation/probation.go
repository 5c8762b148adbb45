// Package probation decides whether a failing release goes on, and which releases are not run again.
//
// A release is on probation from its first run until each of its assignments was compliant in it. Probation
// is its state from pass to pass: After updates it by the results of a pass, and Judge returns the decision. Releases that
// were given up are in the Quarantine, by their content too. MayGiveUp reports whether there is a release to go back to.
//
// The decisions are functions of values: they read no clock, no file and no cluster. Only LoadQuarantine, Add and Clear
// work on the state file.
package probation

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// MaxAttempts is how often what a release changes may fail, or the agent may die of it, before the release is
// given up. Attempts have the agent's own times between them, and fail over at least the deadline.
const MaxAttempts = 3

// CrashRest is how long nothing is changed after the agent has died again and again where there is no release
// to go back to. Then it is tried once more: nobody may come by for a year.
const CrashRest = time.Hour

// Probation is how the release fares that runs. Its JSON is a record of the state file.
type Probation struct {
	Release digest.Digest `json:"release"`
	// Interrupted counts the passes in a row that were about to have engines change something and that the
	// process did not survive, with the one that is in progress; At is when the last began.
	Interrupted int       `json:"interrupted,omitempty"`
	At          time.Time `json:"at,omitzero"`
	// Failing are the assignments whose new content has failed and was not compliant yet.
	Failing map[string]Failing `json:"failing,omitempty"`
	// Reason is the reason why a failing release stays, and Message describes the failure; empty if it does not stay.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Failing is how often, in how many passes, an assignment was found failed, and since when; at most MaxAttempts.
type Failing struct {
	Count int       `json:"count"`
	Since time.Time `json:"since"`
}

// Assignment is how one stands that the release lists. One that is being removed is none of them.
type Assignment struct {
	Proved bool // it was compliant in the content that it is to have
	Failed bool // it fails now
	Blamed bool // it fails by what the release has changed, as far as it can tell by itself
	Hold   bool // it asks that a release stay though it fails
	// Reason and Message are the engine's.
	Reason, Message string
}

// After returns the probation after a pass with these results for the assignments of a release. An assignment that is in
// progress again keeps its count.
func (p Probation) After(release digest.Digest, assignments map[string]Assignment, now time.Time) Probation {
	next := Probation{Release: release}
	if p.Release == release {
		next.Interrupted, next.At, next.Failing = p.Interrupted, p.At, maps.Clone(p.Failing)
	}
	for name := range next.Failing {
		a, listed := assignments[name]
		if !listed || a.Proved || a.Failed && !a.Blamed {
			delete(next.Failing, name)
		}
	}
	for name, a := range assignments {
		if !a.Blamed {
			continue
		}
		f, ok := next.Failing[name]
		if !ok {
			f.Since = state.Stamp(now)
		}
		f.Count = min(f.Count+1, MaxAttempts)
		if next.Failing == nil {
			next.Failing = map[string]Failing{}
		}
		next.Failing[name] = f
	}
	return next
}

// exhausted reports whether an assignment that fails now has failed often and long enough. A clock may be set back.
func (p Probation) exhausted(name string, deadline time.Duration, now time.Time) bool {
	f := p.Failing[name]
	return f.Count >= MaxAttempts && now.Sub(f.Since).Abs() >= deadline
}

// Same reports whether p and o say the same of a release that runs.
func (p Probation) Same(o Probation) bool {
	return p.Release == o.Release && p.Reason == o.Reason && p.Message == o.Message && maps.Equal(p.Failing, o.Failing)
}

// Verdict is what follows for a release.
type Verdict int

// The verdicts.
const (
	Undecided     Verdict = iota // there is nothing to tell yet
	GiveUp                       // the last good release is to run again
	NoGoodRelease                // it fails and stays: there is no release to go back to
	OnHold                       // it fails and stays: an assignment that fails asks for it
)

// Judge decides on a release on probation, and returns the reason as a text for people. It calls changed once an assignment
// has failed often and for longer than the deadline: changed returns a function that reports whether an assignment differs
// from the one in the release to go back to, and false if there is no such release. An unchanged assignment is no reason to
// give the release up.
func (p Probation) Judge(assignments map[string]Assignment, changed func() (func(name string) bool, bool), deadline time.Duration, now time.Time) (Verdict, string) {
	failed := slices.Sorted(maps.Keys(p.Failing))
	failed = slices.DeleteFunc(failed, func(name string) bool { return !assignments[name].Blamed })
	exhausted := func(name string) bool { return p.exhausted(name, deadline, now) }
	if !slices.ContainsFunc(failed, exhausted) {
		return Undecided, ""
	}
	differs, good := changed()
	if good {
		failed = slices.DeleteFunc(failed, func(name string) bool { return !differs(name) })
	}
	hold := func(name string) bool { return assignments[name].Hold }
	switch {
	case !slices.ContainsFunc(failed, exhausted):
		return Undecided, ""
	case !good:
		return NoGoodRelease, describe(failed, assignments)
	case slices.ContainsFunc(failed, hold):
		return OnHold, describe(failed, assignments)
	}
	return GiveUp, describe(failed, assignments)
}

// describe returns the engines' messages about assignments. The first one gets the most room.
func describe(names []string, assignments map[string]Assignment) string {
	var all []string
	for _, name := range names {
		a := assignments[name]
		s := name + " (" + a.Reason
		if a.Message != "" {
			s += ": " + a.Message
		}
		all = append(all, s+")")
	}
	return reconcilers.Clip("fails again and again: " + strings.Join(all, ", "))
}

// Crashing reports whether the agent has died again and again while it applied the release that runs.
func (p Probation) Crashing(running *state.Release) bool {
	return running != nil && p.Release == running.Digest() && p.Interrupted >= MaxAttempts
}

// RestsUntil returns the time before which an agent that crashes changes nothing; zero where it may.
func (p Probation) RestsUntil(running *state.Release, now time.Time) time.Time {
	until := p.At.Add(CrashRest)
	if !p.Crashing(running) || !now.Before(until) || now.Before(p.At) {
		return time.Time{}
	}
	return until
}

// MayGiveUp reports whether there is something to go back to from the release that runs: a release of the stream that
// is followed, of other content, that has proved good. That one is never given up itself. It has to be of the same epoch: a
// new one is the answer to stolen keys, and content of the one before, which those may have signed, must not come back.
func MayGiveUp(running, good *state.Release, followed bundle.Stream, q Quarantine) bool {
	if running == nil || good == nil || q.Of(good) != nil {
		return false
	}
	g, r := good.Release, running.Release
	return g.Stream() == r.Stream() && g.Stream() == followed && g.Epoch == r.Epoch && g.Content.DiffID != r.Content.DiffID
}
