package agent

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/engines"
	"github.com/wherry-dev/wherry/agent/probation"
	"github.com/wherry-dev/wherry/agent/retry"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/agent/trust"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// scope is what a pass is to do.
type scope struct {
	// from is asked for a newer release; nil asks nobody.
	from bundle.Source
	// documents is asked for newer trust documents; nil asks nobody.
	documents bundle.Source
	// ask asks documents also where nothing new is offered and no day is over.
	ask bool
	// media means that the offer is a file and says nothing of the registry.
	media bool
	// all observes every assignment, not only those that may change by themselves; allIfUnchanged does so
	// where the pass takes no newer release.
	all, allIfUnchanged bool
	// force judges a refused release again before its time.
	force bool
	// wait is how long to go on observing while something is progressing.
	wait time.Duration
	// last means that the process ends after this pass, and with it the programs that engines run: it goes
	// on for as long as they do.
	last bool
}

// earlier is what earlier passes have left, read in one transaction as a pass begins. What the pass writes, it changes
// here as well, once it is on the disk.
type earlier struct {
	accepted     *state.Release // the newest that passed verification
	running      *state.Release // the one whose content the items have, or are being given
	good         *state.Release // the one that proved good last; see noteGood
	former       *state.Release // the one, of other content, that was good before
	refused      *refusal       // of the release that was offered last
	contact      contact
	asked        trust.Asked
	frozenBefore *freeze
	probation    probation.Probation
	quarantine   probation.Quarantine
	held         *hold
}

func loadEarlier(tx *bbolt.Tx) (e earlier, err error) {
	var errs [11]error
	e.accepted, errs[0] = state.Load[*state.Release](tx, state.Meta, keyAccepted)
	e.running, errs[1] = state.Load[*state.Release](tx, state.Meta, keyRunning)
	e.good, errs[2] = state.Load[*state.Release](tx, state.Meta, keyGood)
	e.former, errs[3] = state.Load[*state.Release](tx, state.Meta, keyFormer)
	e.refused, errs[4] = state.Load[*refusal](tx, state.Meta, keyRefused)
	e.contact, errs[5] = state.Load[contact](tx, state.Meta, keyContact)
	e.asked, errs[6] = trust.LoadAsked(tx)
	e.frozenBefore, errs[7] = state.Load[*freeze](tx, state.Meta, keyFreeze)
	e.probation, errs[8] = state.Load[probation.Probation](tx, state.Meta, keyAttempts)
	e.quarantine, errs[9] = probation.LoadQuarantine(tx)
	e.held, errs[10] = state.Load[*hold](tx, state.Meta, keyHeld)
	return e, errors.Join(errs[:]...)
}

// journal is the step that was begun.
type journal struct {
	Step   string        `json:"step"`
	Digest digest.Digest `json:"digest,omitempty"` // of the release it works for
	At     time.Time     `json:"at"`
}

// contact is what is known of the place where bundles come from.
type contact struct {
	// Last is when it answered last; at most an hour older than the truth, to spare the disk.
	Last time.Time `json:"last,omitzero"`
	// Verdict, Reason and Message tell how the last pass that asked it ended.
	Verdict Verdict `json:"verdict,omitempty"`
	Reason  string  `json:"reason,omitempty"`
	Message string  `json:"message,omitempty"`
}

// pulled is what the first half of a pass has brought: resolve, learn, verify, fetch, stage.
type pulled struct {
	offer    offer
	aside    outcome        // of learn: why no trust document was taken, where no release depends on it
	recalled bool           // of verify: the refusal is one from memory
	target   *state.Release // of verify: what is to be here; nil where nothing was accepted
	taken    bool           // of verify: the target was accepted in this pass
	staged   bool           // of stage: the target's tree is whole and on disk
}

// freezing is what is known of why the cluster must not be changed.
type freezing struct {
	frozen      *freeze   // from when that was found on; nil where it may be changed
	limit       []string  // the engines that it is for; empty is all
	askFreezeAt time.Time // when to ask again
}

// changes are what the second half of a pass has done: apply, observe, and the conclusion.
type changes struct {
	engines.Changes
	rollout  *assignments.Rollout // how all assignments stand
	switched bool                 // another release than before is running
	proved   bool                 // what runs became the good one
	// attempted means that engines were to change something, and assessed that the probation has something new.
	attempted, assessed bool
}

// pass is one pass: what it is to do, what it knows, and what it has found and done so far.
type pass struct {
	*Agent
	scope
	earlier
	pulled
	freezing
	changes
}

func newPass(a *Agent, s scope) *pass {
	return &pass{Agent: a, scope: s}
}

// step is one step of the second half of a pass.
type step struct {
	name string
	run  func(*pass, context.Context) outcome
}

// keep brings the cluster to what is here. It runs whatever became of pull, because an agent that is
// offline or is offered bad releases keeps the last good one.
var keep = [...]step{
	{"apply", (*pass).apply},
	{"observe", (*pass).observe},
}

// makePass makes one pass and returns how it ended.
func (a *Agent) makePass(ctx context.Context, s scope) (out outcome) {
	a.busy.Lock()
	defer a.busy.Unlock()
	defer a.enter("")
	begun := time.Now()
	defer func() { a.passes.Add(string(out.Verdict), time.Since(begun)) }()
	if a.rebound.Load() {
		return outcome{Verdict: Interrupted, Err: ErrRebound}
	}
	p := newPass(a, s)
	p.content.LookAgain()
	if err := p.remember(); err != nil {
		return outcomeOf(ctx, err)
	}
	if err := p.recall(ctx); err != nil {
		return outcomeOf(ctx, err)
	}
	if err := errors.Join(p.introduce(), p.voidHold(), p.breakLoop(ctx)); err != nil {
		return outcomeOf(ctx, err)
	}
	var verdict outcome
	p.pulled, verdict = p.pull(ctx)
	if verdict.Verdict != Interrupted {
		if kept := p.keep(ctx); kept.Verdict != Done {
			verdict = kept
		}
	}
	verdict.moved, verdict.frozen = p.switched || p.Began, p.frozen
	return p.conclude(ctx, verdict)
}

// pull brings here what is offered, and what else is to run and is not here. A person who has brought a file gets to know
// what is wrong with its trust documents also where its release is no news.
func (p *pass) pull(ctx context.Context) (pulled, outcome) {
	got, out := p.take(ctx)
	if out.Verdict != Interrupted {
		var back outcome
		if got, back = p.bringBack(ctx, got); back.Verdict != Done && (out.Verdict == Done || out.Verdict == Idle) {
			out = back
			if back.Verdict == Refused || back.reason() == ReasonNotFound { // it says nothing of the offer
				out.Verdict, out.answered = Unreachable, got.offer.answered
			}
		}
	}
	if p.media && got.aside.Err != nil && (out.Verdict == Done || out.Verdict == Idle) {
		return got, got.aside
	}
	return got, out
}

// take brings the release here that the scope's source offers. It ends at the first step that is not done.
func (p *pass) take(ctx context.Context) (got pulled, out outcome) {
	p.enter("resolve")
	if got.offer, out = p.resolve(ctx, p.from); out.Verdict != Done {
		return got, out
	}
	p.enter("learn")
	if got.aside, out = p.learn(ctx, got.offer.manifest.Digest); out.Verdict != Done {
		return got, out
	}
	p.enter("verify")
	v, out := p.verify(ctx, got.offer)
	got.target, got.taken, got.recalled = v.release, v.taken, v.recalled
	if out.Verdict != Done {
		return got, out
	}
	got.staged, out = p.fetchAndStage(ctx, got.offer, v)
	return got, out
}

// keep takes the steps of that name where the cluster may be changed, and takes them once more with the last
// good release where the one that runs is given up.
func (p *pass) keep(ctx context.Context) outcome {
	if err := p.findFreeze(ctx, true); err != nil {
		return outcomeOf(ctx, err)
	}
	out := p.steps(ctx, keep[:])
	if out.Verdict != Done {
		return out
	}
	gaveUp, err := p.assess(ctx)
	if err != nil || !gaveUp {
		return outcomeOf(ctx, err)
	}
	p.Called = nil
	return p.steps(ctx, keep[:])
}

func (p *pass) steps(ctx context.Context, steps []step) outcome {
	for _, s := range steps {
		p.enter(s.name)
		if out := s.run(p, ctx); out.Verdict != Done {
			return out
		}
	}
	return done
}

// conclude turns the pass's outcome into state, retry and report. It is the only place that does.
func (p *pass) conclude(ctx context.Context, out outcome) outcome {
	now := p.opts.Now()
	p.enter("report")
	p.lived = p.lived || p.attempted
	if out.Verdict == Interrupted { // the journal stays: the next start says what it found
		if err := p.state.db.UpdateIf(p.noteProbation); err != nil {
			p.opts.Log.Error("pass not recorded", "err", err)
		}
		return out
	}
	if err := p.entrust(ctx); err != nil {
		return outcomeOf(ctx, err)
	}
	err := p.state.db.UpdateIf(func(tx *bbolt.Tx) (bool, error) {
		refusal, err1 := p.noteRefusal(tx, out, now)
		contact, err2 := p.noteContact(tx, out, now)
		journal, err3 := p.endJournal(tx, out)
		good, err4 := p.noteGood(tx)
		freeze, err5 := p.noteFreeze(tx)
		probation, err6 := p.noteProbation(tx)
		return refusal || contact || journal || good || freeze || probation, errors.Join(err1, err2, err3, err4, err5, err6)
	})
	if err == nil {
		err = p.report(now)
	}
	if err != nil {
		message := reconcilers.Clip(err.Error())
		if p.unrecorded.Swap(&message) == nil {
			p.opts.Log.Error("pass not recorded", "err", err)
		}
		return outcomeOf(ctx, err)
	}
	if p.from != nil || p.source == nil { // else less was tried, and less was to be written
		p.unrecorded.Store(nil)
	}
	if err := p.tidy(); err != nil {
		p.opts.Log.Warn("left-overs stay on the disk", "err", err)
	}
	return out
}

// noteRefusal keeps a refusal with the release it is about, and how often it was judged.
func (p *pass) noteRefusal(tx *bbolt.Tx, out outcome, now time.Time) (bool, error) {
	var r *bundle.Refusal
	if out.Verdict != Refused || !errors.As(out.Err, &r) || p.recalled || out.Err == p.aside.Err {
		return false, nil
	}
	next := refusal{Digest: p.pulled.offer.manifest.Digest, Reason: r.Reason, Message: bundle.Clip(r.Message), At: state.Stamp(now), Trust: p.judgedBy()}
	if old := p.refused; old != nil && old.Digest == next.Digest && old.Reason == next.Reason && old.Trust == next.Trust && !now.Before(old.At) {
		next.At, next.Count = old.At, old.Count
	} else {
		p.opts.Log.Warn("release refused", "release", bundle.ReleaseName(0, next.Digest), "digest", next.Digest, "reason", next.Reason, "message", next.Message, "running", p.running.Digest())
	}
	next.NotBefore = now.Add(retry.Backoff(p.opts.Interval, p.opts.MaxBackoff, next.Count))
	next.Count++
	return true, state.Save(tx, state.Meta, keyRefused, next)
}

// noteContact keeps how the pass ended, and writes it only where it says something new.
func (p *pass) noteContact(tx *bbolt.Tx, out outcome, now time.Time) (bool, error) {
	old, next := p.contact, p.contact
	switch {
	case p.from != nil || out.Verdict == Broken:
		next.Verdict, next.Reason, next.Message = out.Verdict, out.reason(), ""
		if out.Err != nil {
			next.Message = reconcilers.Clip(out.Err.Error())
		}
	case old.Verdict == Broken && p.accepted.Digest() == p.running.Digest(), p.source == nil:
		// The fault is mended, and not one that a release still waits for; or there is nobody to reach any more.
		next.Verdict, next.Reason, next.Message = Idle, "", ""
	}
	if p.pulled.offer.answered {
		p.lastContact.Store(&now)
		if now.Sub(old.Last).Abs() >= time.Hour || next.Verdict != old.Verdict {
			next.Last = state.Stamp(now)
		}
	}
	p.logContact(old, next)
	return next != old, state.Save(tx, state.Meta, keyContact, next)
}

// noteGood keeps the release that runs as good once each of its assignments was compliant in what it has there. What
// has gone bad later does not count, nor what somebody has suspended: one of them that stays so for a year would
// have a release that fails give way to one of a year ago.
func (p *pass) noteGood(tx *bbolt.Tx) (bool, error) {
	if p.running == nil || p.good.Digest() == p.running.Digest() || p.quarantine.Of(p.running) != nil {
		return false, nil
	}
	all, err := p.state.records.All(tx)
	if err != nil || slices.ContainsFunc(all, func(r assignments.Record) bool { return !r.Proven(p.engines.For(r.Spec)) }) {
		return false, err
	}
	if p.good != nil && p.good.Release.Content.DiffID != p.running.Release.Content.DiffID {
		p.former, err = p.good, state.Save(tx, state.Meta, keyFormer, p.good)
	}
	p.good, p.proved = p.running, true
	return true, errors.Join(err, state.Save(tx, state.Meta, keyGood, p.running))
}

// logContact says once that bundles cannot be read, and once that they can again.
func (p *pass) logContact(old, next contact) {
	bad := func(v Verdict) bool { return v == Unreachable || v == Broken }
	switch {
	case bad(next.Verdict) && (next.Verdict != old.Verdict || next.Reason != old.Reason):
		p.opts.Log.Warn("no newer release can be taken", "reason", next.Reason, "message", next.Message)
	case next.Verdict == Deferred && old.Verdict != Deferred:
		p.opts.Log.Info("a newer release waits", "reason", next.Reason, "message", next.Message)
	case bad(old.Verdict) && !bad(next.Verdict):
		p.opts.Log.Info("releases can be taken again")
	}
}

// remember reads what earlier passes have left.
func (p *pass) remember() error {
	err := p.state.db.View(func(tx *bbolt.Tx) (err error) {
		p.earlier, err = loadEarlier(tx)
		return err
	})
	if err != nil {
		return state.Local("read state: %w", err)
	}
	if p.lived {
		p.probation.Interrupted = 0
	}
	return nil
}

// introduce writes who the agent is, for those who read its state while it does not run, and for an older agent that
// meets a file that it does not know.
func (p *pass) introduce() error {
	var known bundle.ReportCluster
	var writer string
	err := p.state.db.View(func(tx *bbolt.Tx) error {
		var err1, err2 error
		known, err1 = state.Load[bundle.ReportCluster](tx, state.Meta, keyCluster)
		writer, err2 = state.Load[string](tx, state.Meta, state.KeyWriter)
		return errors.Join(err1, err2)
	})
	if err != nil {
		return state.Local("read state: %w", err)
	}
	if reflect.DeepEqual(known, p.cluster) && writer == p.opts.Version {
		return nil
	}
	was := FeedOf(known)
	return p.state.db.Update(func(tx *bbolt.Tx) error {
		if was != (Feed{}) && was != FeedOf(p.cluster) {
			if err := p.move(tx, was); err != nil {
				return err
			}
		}
		return errors.Join(state.Save(tx, state.Meta, keyCluster, p.cluster), state.Save(tx, state.Meta, state.KeyWriter, p.opts.Version))
	})
}

// begin writes what is about to be done, for the time after a crash.
func (p *pass) begin(tx *bbolt.Tx, step string, d digest.Digest) error {
	return state.Save(tx, state.Meta, keyJournal, journal{Step: step, Digest: d, At: state.Stamp(p.opts.Now())})
}

// endJournal says that nothing is in progress any more, unless this machine is at fault.
func (p *pass) endJournal(tx *bbolt.Tx, out outcome) (bool, error) {
	if tx.Bucket([]byte(state.Meta)).Get([]byte(keyJournal)) == nil || out.Verdict == Broken {
		return false, nil
	}
	return true, state.Drop(tx, state.Meta, keyJournal)
}

// tidy deletes what no release in use needs: where another one was accepted, begins to run or runs well, and once in a
// process, for what a killed one has left.
func (p *pass) tidy() error {
	if p.tidied && !p.switched && !p.taken && !p.proved {
		return nil
	}
	p.tidied = true
	return p.content.Prune([]*state.Release{p.accepted, p.running}, p.kept(p.target))
}
