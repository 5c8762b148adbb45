package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// maxAttempts is how often what a release changes may fail, or the agent may die of it, before the release is
// given up. Attempts have the agent's own times between them, and fail over at least the deadline.
const maxAttempts = 3

// crashRest is how long nothing is changed after the agent has died again and again where there is no release
// to go back to. Then it is tried once more: nobody may come by for a year.
const crashRest = time.Hour

// onFailureHold is the value of an assignment that keeps a release that fails.
const onFailureHold = "hold"

// probation is how the release fares that runs.
type probation struct {
	Release digest.Digest `json:"release"`
	// Interrupted counts the passes in a row that were about to have engines change something and that the
	// process did not survive, with the one that is in progress; At is when the last began.
	Interrupted int       `json:"interrupted,omitempty"`
	At          time.Time `json:"at,omitzero"`
	// Failing are the assignments whose new content has failed and was not compliant yet.
	Failing map[string]failing `json:"failing,omitempty"`
	// Reason says why a release that fails stays, and Message what fails. Empty where it does not.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// failing is how often, in how many passes, an assignment was found failed, and since when; at most maxAttempts.
type failing struct {
	Count int       `json:"count"`
	Since time.Time `json:"since"`
}

// blames reports whether an assignment fails by what the release has changed, as far as the assignment alone
// shows: if it was compliant with this content before, something else has changed since.
func (r record) blames() bool {
	return !r.Removing && r.Item.State == bundle.Failed && r.Reached.Desired != r.Spec.Desired() && r.fault() == reconcilers.FaultRelease
}

// proven reports whether an assignment is no reason to doubt its release.
func (r record) proven(adapter string) bool {
	return r.Removing || !r.stale(adapter) && (r.Reached.Desired == r.Applied || r.Item.State == bundle.Suspended)
}

// after returns the probation once a pass has found the assignments to be like this. What is in progress again
// keeps its count.
func (t probation) after(release digest.Digest, records map[string]*record, now time.Time) probation {
	next := probation{Release: release}
	if t.Release == release {
		next.Interrupted, next.At, next.Failing = t.Interrupted, t.At, maps.Clone(t.Failing)
	}
	for name := range next.Failing {
		r := records[name]
		if r == nil || r.Removing || r.Reached.Desired == r.Spec.Desired() || r.Item.State == bundle.Failed && !r.blames() {
			delete(next.Failing, name)
		}
	}
	for name, r := range records {
		if !r.blames() {
			continue
		}
		f, ok := next.Failing[name]
		if !ok {
			f.Since = state.Stamp(now)
		}
		f.Count = min(f.Count+1, maxAttempts)
		if next.Failing == nil {
			next.Failing = map[string]failing{}
		}
		next.Failing[name] = f
	}
	return next
}

// exhausted reports whether an assignment that fails now has failed often and long enough. A clock may be set back.
func (t probation) exhausted(name string, deadline time.Duration, now time.Time) bool {
	f := t.Failing[name]
	return f.Count >= maxAttempts && now.Sub(f.Since).Abs() >= deadline
}

func (t probation) same(o probation) bool {
	return t.Release == o.Release && t.Reason == o.Reason && t.Message == o.Message && maps.Equal(t.Failing, o.Failing)
}

// assess takes account of a pass over a release that has not proved good yet, and gives it up where
// that is due. It reports whether the pass has to go on with another release.
func (p *pass) assess(ctx context.Context) (gaveUp bool, err error) {
	if p.frozen != nil || p.rollout == nil || p.running == nil {
		return false, nil
	}
	next := probation{Release: p.running.Digest()}
	if p.held == nil && p.good.Digest() != p.running.Digest() {
		next = p.probation.after(p.running.Digest(), p.rollout.records, p.opts.Now())
		if next.Reason, next.Message = p.judgeProbation(ctx, next); next.Reason == ReasonAssignmentsFailed {
			return true, p.giveUp(next.Reason, next.Message)
		}
	}
	if p.assessed = !next.same(p.probation); !p.assessed {
		return false, nil
	}
	if next.Reason != "" && next.Reason != p.probation.Reason {
		p.opts.Log.Error("release fails and stays", "digest", next.Release, "reason", next.Reason, "message", next.Message)
	}
	next.Interrupted, next.At = p.probation.Interrupted, p.probation.At
	p.probation = next
	return false, nil
}

// judgeProbation returns ReasonAssignmentsFailed where the release that runs is to be given up, or the reason why it stays although
// it fails. The reason is empty where there is nothing to tell yet.
func (p *pass) judgeProbation(ctx context.Context, t probation) (reason, message string) {
	now := p.opts.Now()
	failed := slices.Sorted(maps.Keys(t.Failing))
	failed = slices.DeleteFunc(failed, func(name string) bool { return !p.rollout.records[name].blames() })
	exhausted := func(name string) bool { return t.exhausted(name, p.opts.Deadline, now) }
	if !slices.ContainsFunc(failed, exhausted) {
		return "", ""
	}
	before, known := p.goodContents(ctx)
	failed = slices.DeleteFunc(failed, func(name string) bool { return !p.differs(name, before) })
	hold := func(name string) bool { return p.rollout.records[name].Spec.OnFailure == onFailureHold }
	switch {
	case !slices.ContainsFunc(failed, exhausted):
		return "", ""
	case !known:
		return ReasonNoGoodRelease, p.describe(failed)
	case slices.ContainsFunc(failed, hold):
		return ReasonOnFailureHold, p.describe(failed)
	}
	return ReasonAssignmentsFailed, p.describe(failed)
}

// goodContents returns the assignments of the release to go back to, by name; known is false where there is
// none. Its tree may have to be unpacked for that, as it has to be to run again.
func (p *pass) goodContents(ctx context.Context) (before map[string]bundle.Assignment, known bool) {
	if !p.mayGiveUp() || !p.content.Ready(ctx, p.good) {
		return nil, false
	}
	list, err := p.content.Assignments(p.good)
	before = map[string]bundle.Assignment{}
	for _, a := range list {
		before[a.Name] = a
	}
	return before, err == nil
}

// differs reports whether the release that runs has changed the assignment.
func (p *pass) differs(name string, before map[string]bundle.Assignment) bool {
	was, ok := before[name]
	now := p.rollout.records[name].Spec
	return !ok || was.Desired() != now.Desired() || p.adapter(was) != p.adapter(now)
}

// describe says of assignments what the engines said. The first gets the most room.
func (p *pass) describe(names []string) string {
	var all []string
	for _, name := range names {
		i := p.rollout.records[name].Item
		s := name + " (" + i.Reason
		if i.Message != "" {
			s += ": " + i.Message
		}
		all = append(all, s+")")
	}
	return reconcilers.Clip("fails again and again: " + strings.Join(all, ", "))
}

// noteAttempt writes, before engines are called to change something, that this is about to be done for the
// release: should the process not live to conclude the pass, the next one knows.
func (p *pass) noteAttempt(ctx context.Context) error {
	due := func(r *record) bool { return p.allowed(*r, p.due(*r)) > doObserve }
	if p.running == nil || !slices.ContainsFunc(p.rollout.sorted(), due) {
		return nil
	}
	if ok, err := p.mayChange(ctx); err != nil || !ok && len(p.limit) == 0 {
		return err
	}
	if p.probation.Release != p.running.Digest() {
		p.probation = probation{Release: p.running.Digest()}
	}
	p.probation.Interrupted++
	p.probation.At, p.attempted = state.Stamp(p.opts.Now()), true
	return p.state.db.Update(func(tx *bbolt.Tx) error { return state.Save(tx, state.Meta, keyAttempts, p.probation) })
}

// noteProbation keeps what assess found, and that the process has outlived what it had engines do. That it was
// told to end is no crash.
func (p *pass) noteProbation(tx *bbolt.Tx) (bool, error) {
	if !p.attempted && !p.assessed {
		return false, nil
	}
	if p.attempted {
		p.probation.Interrupted, p.probation.At = 0, time.Time{}
	}
	if len(p.probation.Failing) == 0 && p.probation.Interrupted == 0 {
		known := tx.Bucket([]byte(state.Meta)).Get([]byte(keyAttempts)) != nil
		return known, state.Drop(tx, state.Meta, keyAttempts)
	}
	return true, state.Save(tx, state.Meta, keyAttempts, p.probation)
}

// breakLoop gives a release up of which the agent has died again and again. Nobody knows which assignment it was:
// one of those that were in progress and asks for hold keeps the release.
func (p *pass) breakLoop(ctx context.Context) error {
	if !p.crashing() || !p.mayGiveUp() || !p.content.Ready(ctx, p.good) {
		return nil
	}
	all, err := p.records()
	hold := func(r record) bool { return r.Spec.OnFailure == onFailureHold && !r.proven(p.adapter(r.Spec)) }
	if err != nil || slices.ContainsFunc(all, hold) {
		return err
	}
	return p.giveUp(ReasonCrashLoop, fmt.Sprintf("the agent has died %d times in a row while it applied it", p.probation.Interrupted))
}

func (p *pass) crashing() bool {
	return p.running != nil && p.probation.Release == p.running.Digest() && p.probation.Interrupted >= maxAttempts
}

// afterCrashes is the freeze of an agent that has died again and again and has no other release to run.
func (p *pass) afterCrashes(context.Context) (*freeze, error) {
	until := p.probation.At.Add(crashRest)
	if now := p.opts.Now(); !p.crashing() || !now.Before(until) || now.Before(p.probation.At) {
		return nil, nil
	}
	message := fmt.Sprintf("the agent has died %d times in a row while it applied release %s", p.probation.Interrupted, p.running.Name())
	return &freeze{State: bundle.Failed, Reason: ReasonCrashLoop, Message: message, Since: p.probation.At, Until: until}, nil
}
