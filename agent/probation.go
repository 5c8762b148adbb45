package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/agent/probation"
	"github.com/wherry-dev/wherry/agent/retry"
	"github.com/wherry-dev/wherry/agent/sitevalues"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// onProbation is how the assignments stand that the release lists.
func onProbation(rollout *assignments.Rollout) map[string]probation.Assignment {
	all := map[string]probation.Assignment{}
	for r := range rollout.All() {
		if !r.Removing {
			all[r.Spec.Name] = probation.Assignment{
				Proved: r.Proved(), Failed: r.Item.State == bundle.Failed, Blamed: r.Blames(),
				Hold: r.HoldsRelease(), Reason: r.Item.Reason, Message: r.Item.Message,
			}
		}
	}
	return all
}

// assess takes account of a pass over a release that has not proved good yet, and gives it up where
// that is due. It reports whether the pass has to go on with another release.
func (p *pass) assess(ctx context.Context, rollout *assignments.Rollout, g *freeze.Guard) (gaveUp, news bool, err error) {
	if g.Found() != nil || rollout == nil || p.running == nil {
		return false, false, nil
	}
	next := probation.Probation{Release: p.running.Digest()}
	if p.held == nil && p.good.Digest() != p.running.Digest() {
		now, found := p.opts.Now(), onProbation(rollout)
		next = p.probation.After(p.running.Digest(), found, now)
		var verdict probation.Verdict
		verdict, next.Message = next.Judge(found, func() (func(string) bool, bool) { return p.changedSinceGood(ctx, rollout) }, p.opts.Engines.Deadline, now)
		switch verdict {
		case probation.GiveUp:
			return true, false, p.giveUp(ReasonAssignmentsFailed, next.Message)
		case probation.NoGoodRelease:
			next.Reason = ReasonNoGoodRelease
		case probation.OnHold:
			next.Reason = ReasonOnFailureHold
		}
	}
	if next.Same(p.probation) {
		return false, false, nil
	}
	if next.Reason != "" && next.Reason != p.probation.Reason {
		p.opts.Log.Error("release fails and stays", "digest", next.Release, "reason", next.Reason, "message", next.Message)
	}
	next.Interrupted, next.At = p.probation.Interrupted, p.probation.At
	p.probation = next
	return false, true, nil
}

// changedSinceGood returns which assignments the release that runs has changed since the release to go back to; ok is
// false where there is none. Its tree may have to be unpacked for that, as it has to be to run again.
func (p *pass) changedSinceGood(ctx context.Context, rollout *assignments.Rollout) (changed func(name string) bool, ok bool) {
	if !p.mayGiveUp() || !p.content.Ready(ctx, p.good) {
		return nil, false
	}
	list, err := p.content.Assignments(p.good)
	before := map[string]bundle.Assignment{}
	for _, a := range list {
		before[a.Name] = a
	}
	declared := func(r *state.Release) digest.Digest {
		d, _ := sitevalues.Declared(func(document string) ([]byte, error) { return p.content.Document(r, document) }, p.uid())
		return d // empty if it cannot be read
	}
	values := declared(p.good) != declared(p.running)
	return func(name string) bool {
		was, ok := before[name]
		now := rollout.Of(name).Spec
		return !ok || was.Desired() != now.Desired() || values && len(now.SiteValues) > 0 || p.engines.For(was) != p.engines.For(now)
	}, err == nil
}

// mayGiveUp reports whether there is a release to go back to, and no person has rolled back.
func (p *pass) mayGiveUp() bool {
	return p.held == nil && probation.MayGiveUp(p.running, p.good, p.stream(), p.quarantine)
}

// noteAttempt records, before engines are called to change something, that this is about to happen for the
// release: if the process dies before it concludes the pass, the next process knows.
func (p *pass) noteAttempt(ctx context.Context, rollout *assignments.Rollout, g *freeze.Guard) (attempted bool, err error) {
	due := func(r assignments.Record) bool { return g.Allowed(r, p.engines.Due(r)).Changes() }
	if p.running == nil || !rollout.Contains(due) {
		return false, nil
	}
	if ok, err := g.MayChangeSome(ctx); err != nil || !ok {
		return false, err
	}
	if p.probation.Release != p.running.Digest() {
		p.probation = probation.Probation{Release: p.running.Digest()}
	}
	p.probation.Interrupted++
	p.probation.At = state.Stamp(p.opts.Now())
	return true, p.state.db.Update(func(tx *bbolt.Tx) error { return state.Save(tx, state.Meta, keyAttempts, p.probation) })
}

// noteProbation saves the findings of assess, and that the process has survived the calls of engines. A
// stop on request is no crash.
func (p *pass) noteProbation(tx *bbolt.Tx, seen observed) (bool, error) {
	if !seen.attempted && !seen.assessed {
		return false, nil
	}
	if seen.attempted {
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
	if !p.probation.Crashing(p.running) || !p.mayGiveUp() || !p.content.Ready(ctx, p.good) {
		return nil
	}
	all, err := p.state.allRecords()
	hold := func(r assignments.Record) bool { return r.HoldsRelease() && !r.Proven(p.engines.For(r.Spec)) }
	if err != nil || slices.ContainsFunc(all, hold) {
		return err
	}
	return p.giveUp(ReasonCrashLoop, fmt.Sprintf("the agent has died %d times in a row while it applied it", p.probation.Interrupted))
}

// noteEnd records, in the first pass of a process, at which assignments the one before has died, if it has.
func (p *pass) noteEnd() error {
	if p.looked {
		return nil
	}
	p.looked = true
	if p.probation.Interrupted == 0 {
		return nil
	}
	all, err := p.state.allRecords()
	if err != nil {
		return err
	}
	rest := func(n int) time.Duration { return retry.Backoff(p.opts.Interval, p.opts.MaxBackoff, n) }
	var ended []assignments.Record
	for _, r := range all {
		if r.Removing || r.Item.State != bundle.Applying {
			continue
		}
		next := r.Ended(p.opts.Boot, rest, p.opts.Now())
		if next.Item.State == bundle.Failed {
			p.opts.Log.Error("assignment is put last: the agent has died of it", "assignment", r.Spec.Name, "times", next.Ends.Count, "until", next.Ends.Until)
		}
		ended = append(ended, next)
	}
	return assignments.Write(p.state.db, ended)
}

// giveUp writes that the release which runs is not to run any more. The pass then goes on with the good one.
func (p *pass) giveUp(reason, message string) error {
	r := p.running
	g := probation.Quarantined{
		Digest: r.Digest(), Content: r.Release.Content.DiffID, Epoch: r.Release.Epoch, Sequence: r.Release.Sequence, Number: r.Release.Number,
		Reason: reason, Message: bundle.Clip(message), At: state.Stamp(p.opts.Now()),
	}
	var all probation.Quarantine
	err := p.state.db.Update(func(tx *bbolt.Tx) (err error) {
		if all, err = probation.Add(tx, g); err != nil {
			return err
		}
		return state.Drop(tx, state.Meta, keyAttempts)
	})
	if err != nil {
		return err
	}
	p.quarantine, p.probation = all, probation.Probation{}
	p.opts.Log.Error("release given up", "release", r.Name(), "digest", g.Digest, "sequence", g.Sequence, "reason", reason, "message", g.Message, "good", p.good.Digest())
	return nil
}

// lift empties the quarantine, and forgets the crashes of the agent.
func lift(tx *bbolt.Tx, r *Resumed) (changed bool, err error) {
	given, err1 := probation.Clear(tx)
	tried, err2 := state.Load[probation.Probation](tx, state.Meta, keyAttempts)
	if err := errors.Join(err1, err2); err != nil {
		return false, err
	}
	r.Retried = given
	ended, err := forgiveEnds(tx)
	return len(given) > 0 || tried.Release != "" || ended, errors.Join(err, state.Drop(tx, state.Meta, keyAttempts))
}

// forgiveEnds has assignments at which the agent has died tried again at once.
func forgiveEnds(tx *bbolt.Tx) (changed bool, err error) {
	all, err := new(assignments.Reader).All(tx)
	for _, r := range all {
		if r.Ends.Count > 0 {
			r.Ends = assignments.Ends{}
			changed, err = true, errors.Join(err, assignments.Save(tx, r))
		}
	}
	return changed, err
}

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
