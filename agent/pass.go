package agent

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/engines"
	"github.com/wherry-dev/wherry/agent/enroll"
	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/agent/probation"
	"github.com/wherry-dev/wherry/agent/registries"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/agent/trust"
	"github.com/wherry-dev/wherry/bundle"
)

// scope is what a pass is to do.
type scope struct {
	// asker ends if whoever asked for the pass has gone: it is then not begun any more. Nil is nobody.
	asker context.Context
	// from is asked for a newer release; nil asks nobody.
	from bundle.Source
	// documents is asked for newer trust documents; nil asks nobody.
	documents bundle.Source
	// further are asked after from, in their order, if it has no answer that counts.
	further []registries.Registry
	// ask asks documents also where nothing new is offered and no day is over.
	ask bool
	// media means that the offer is a file and says nothing of the registry.
	media bool
	// allowExpired is why a person lets an expired release be accepted; empty lets none.
	allowExpired string
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
	previous     *state.Release // the one, of other content, that was good before
	refused      *refusal       // of the release that was offered last
	contact      contact
	asked        trust.Asked
	frozenBefore *freeze.Freeze
	probation    probation.Probation
	quarantine   probation.Quarantine
	held         *hold
	registries   []registries.Status // empty where there are not several
}

func loadEarlier(tx *bbolt.Tx) (e earlier, err error) {
	var errs [12]error
	e.accepted, errs[0] = state.Load[*state.Release](tx, state.Meta, keyAccepted)
	e.running, errs[1] = state.Load[*state.Release](tx, state.Meta, keyRunning)
	e.good, errs[2] = state.Load[*state.Release](tx, state.Meta, keyGood)
	e.previous, errs[3] = state.Load[*state.Release](tx, state.Meta, keyPrevious)
	e.refused, errs[4] = state.Load[*refusal](tx, state.Meta, keyRefused)
	e.contact, errs[5] = state.Load[contact](tx, state.Meta, keyContact)
	e.asked, errs[6] = trust.LoadAsked(tx)
	e.frozenBefore, errs[7] = freeze.Load(tx)
	e.probation, errs[8] = state.Load[probation.Probation](tx, state.Meta, keyAttempts)
	e.quarantine, errs[9] = probation.LoadQuarantine(tx)
	e.held, errs[10] = state.Load[*hold](tx, state.Meta, keyHeld)
	e.registries, errs[11] = registries.Load(tx)
	return e, errors.Join(errs[:]...)
}

// journal is the step that was begun.
type journal struct {
	Step   string        `json:"step"`
	Digest digest.Digest `json:"digest,omitempty"` // of the release it works for
	At     time.Time     `json:"at"`
}

// contact is the state of the connection to the source of bundles.
type contact struct {
	// Last is the time of its last answer. It is saved at most once an hour, to spare the disk.
	Last time.Time `json:"last,omitzero"`
	// Verdict, Reason and Message are the outcome of the last pass that asked it.
	Verdict Verdict `json:"verdict,omitempty"`
	Reason  string  `json:"reason,omitempty"`
	Message string  `json:"message,omitempty"`
}

// pulled is the result of the first half of a pass: resolve, learn, verify, fetch, stage.
type pulled struct {
	offer    offer
	aside    outcome        // of learn: why no trust document was taken, if no release depends on it
	recalled bool           // of verify: the refusal is remembered
	target   *state.Release // of verify: the release to have on disk; nil if none was accepted
	taken    bool           // of verify: the target was accepted in this pass
	staged   bool           // of stage: the target's tree is whole and on disk
	// answers are those of the registries that were asked, where there are several.
	answers []registries.Answer
}

// applied is what apply has done.
type applied struct {
	rollout  *assignments.Rollout // how all assignments stand; nil where that is not known
	changes  engines.Changes
	switched bool // another release than before is running
	dropped  bool // the store has artifacts that no engine needs any more
	// attempted is true where engines were to change something; see noteAttempt.
	attempted bool
}

// after returns a combined with the earlier changes of the same pass, but without the earlier calls of engines: assignments
// that have drifted since may be applied again.
func (a applied) after(b applied) applied {
	a.switched, a.attempted, a.changes.Began = a.switched || b.switched, a.attempted || b.attempted, a.changes.Began || b.changes.Began
	a.dropped = a.dropped || b.dropped
	return a
}

// observed is the state of the cluster at the end of a pass, and the changes of the pass.
type observed struct {
	applied
	assessed bool // the probation of the running release has changed
}

// pass is one pass: its scope, and the state that earlier passes have saved. Its steps return their results.
type pass struct {
	*Agent
	scope
	earlier
}

func newPass(a *Agent, s scope) *pass {
	return &pass{Agent: a, scope: s}
}

// puller is the first half of the pass.
func (p *pass) puller() puller { return puller{p.Agent, p.scope, &p.earlier} }

// self is the agent as the cluster's memory knows it.
func (p *pass) self() self { return self{stream: p.stream(), uid: p.uid(), anonymous: p.anonymous} }

// makePass runs one pass and returns its outcome.
func (a *Agent) makePass(ctx context.Context, s scope) (out outcome) {
	a.busy.Lock()
	defer a.busy.Unlock()
	if s.asker != nil && s.asker.Err() != nil {
		return outcome{Verdict: Interrupted, Err: context.Cause(s.asker)}
	}
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
	if err := errors.Join(p.recall(ctx), p.relearn(ctx)); err != nil {
		return outcomeOf(ctx, err)
	}
	if err := errors.Join(p.introduce(), p.voidHold(), p.breakLoop(ctx), p.noteEnd()); err != nil {
		return outcomeOf(ctx, err)
	}
	got, verdict := p.puller().pull(ctx)
	g := p.guard(got)
	var seen observed
	if verdict.Verdict != Interrupted {
		var kept outcome
		if seen, kept = p.keep(ctx, got, g); kept.Verdict != Done {
			verdict = kept
		}
	}
	p.complete(ctx, got, verdict)
	verdict.moved, verdict.frozen = seen.switched || seen.changes.Began, g.Found()
	return p.conclude(ctx, got, seen, g, verdict)
}

// keep brings the cluster to the release on disk, and then to the last good release if the running one is given up. It
// runs whatever the result of pull, because an agent that is offline or is offered bad releases keeps the last good one.
func (p *pass) keep(ctx context.Context, got pulled, g *freeze.Guard) (seen observed, out outcome) {
	err := g.Begin(ctx)
	if err != nil {
		return seen, outcomeOf(ctx, err)
	}
	if seen, err = p.applyAndObserve(ctx, got, g, applied{}); err != nil {
		return seen, outcomeOf(ctx, err)
	}
	gaveUp, assessed, err := p.assess(ctx, seen.rollout, g)
	if seen.assessed = assessed; err != nil || !gaveUp {
		return seen, outcomeOf(ctx, err)
	}
	got.staged = false // the last good release is to run, not the staged one
	seen, err = p.applyAndObserve(ctx, got, g, seen.applied)
	return seen, outcomeOf(ctx, err)
}

// applyAndObserve runs the steps apply and observe, after the earlier changes in the same pass.
func (p *pass) applyAndObserve(ctx context.Context, got pulled, g *freeze.Guard, before applied) (observed, error) {
	p.enter("apply")
	did, err := p.apply(ctx, got, g)
	if did = did.after(before); err != nil {
		return observed{applied: did}, err
	}
	p.enter("observe")
	return p.observe(ctx, got, did, g)
}

// remember reads the state that earlier passes have saved.
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
		known, err1 = enroll.LoadCluster(tx)
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
		return errors.Join(enroll.SaveCluster(tx, p.cluster), state.Save(tx, state.Meta, state.KeyWriter, p.opts.Version))
	})
}

// begin records the step that is about to begin, for the start after a crash.
func (a *Agent) begin(tx *bbolt.Tx, step string, d digest.Digest) error {
	return state.Save(tx, state.Meta, keyJournal, journal{Step: step, Digest: d, At: state.Stamp(a.opts.Now())})
}
