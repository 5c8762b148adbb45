package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/probation"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// Errors of RollBack that callers branch on.
var (
	// ErrNotAccepted means that no such release was accepted here.
	ErrNotAccepted = errors.New("was not accepted here")
	// ErrNewest means that it is the newest release, to which Resume leads.
	ErrNewest = errors.New("is the newest that was accepted")
	// ErrNotAllowed means that the release may not run any more.
	ErrNotAllowed = errors.New("may not run here")
	// ErrAmbiguous means that several releases are called so.
	ErrAmbiguous = errors.New("write more digits of the digest")
)

// hold is a person's wish that an earlier release run.
type hold struct {
	To *state.Release `json:"to"`
	// Above is the place of the newest release that was left, and Left the contents that were: what has a
	// higher place and another content ends the hold.
	Above  bundle.Order    `json:"above"`
	Left   []digest.Digest `json:"left"`
	By     string          `json:"by,omitempty"`
	Reason string          `json:"reason,omitempty"`
	At     time.Time       `json:"at"`
}

// endedBy reports whether the hold ends once r was accepted. It goes on if r has the content that was rolled back, as
// after a renewal or a release for one more ring.
func (h *hold) endedBy(r *state.Release) bool {
	return r.Order().Compare(h.Above) > 0 && !slices.Contains(h.Left, r.Release.Content.DiffID)
}

// HeldStatus is a person's rollback, until Resume, or until a newer release with other content than the one rolled
// back.
type HeldStatus struct {
	To     ReleaseStatus `json:"to"`
	By     string        `json:"by,omitempty"`
	Reason string        `json:"reason,omitempty"`
	At     time.Time     `json:"at"`
}

func (h *hold) status(now time.Time) *HeldStatus {
	if h == nil {
		return nil
	}
	return &HeldStatus{*releaseStatus(h.To, now), h.By, h.Reason, h.At}
}

// message returns a text about the rollback: whether the release runs already, or else why not, and its author, time and
// reason.
func (h *hold) message(running *state.Release, c contact) string {
	s := fmt.Sprintf("release %s runs", h.To.Name())
	if running.Digest() != h.To.Digest() {
		s = fmt.Sprintf("release %s still runs", running.Name())
		if c.Reason != "" {
			s += fmt.Sprintf(" (%s: %s)", c.Reason, c.Message)
		}
		s += fmt.Sprintf("; release %s is to run", h.To.Name())
	}
	if h.By != "" {
		s += ", as " + h.By + " decided at "
	} else {
		s += ", as was decided at "
	}
	s += h.At.Format(time.RFC3339)
	if h.Reason != "" {
		s += ": " + h.Reason
	}
	return bundle.Clip(s)
}

// Wish is what RollBack is asked for.
type Wish struct {
	// To names a release; see bundle.ParseReleaseQuery.
	To string `json:"to"`
	// By is the author of the rollback, and Reason the author's reason; both may be empty.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// RolledBack is what RollBack has written.
type RolledBack struct {
	Held HeldStatus `json:"held"`
	// Here is true if the files are on this machine. Otherwise the next pass that reaches the registry fetches them, or an import
	// of a medium that has the release brings them.
	Here bool `json:"here"`
}

// RollBack records that an earlier release is to run: one that was accepted here, in the epoch in force. The next
// pass runs it, and fetches its missing files. The rollback holds until Resume or a newer release with other
// content. It does not lower the highest accepted place. Errors wrap ErrNotAccepted, ErrNewest,
// ErrNotAllowed or ErrAmbiguous.
func (s *State) RollBack(w Wish, now time.Time) (RolledBack, error) {
	h := &hold{By: bundle.OneLine(w.By), Reason: bundle.OneLine(w.Reason), At: state.Stamp(now)}
	var refusal error
	err := s.db.Update(func(tx *bbolt.Tx) error {
		m, err := s.recall(tx)
		if err != nil {
			return err
		}
		if h.To, refusal = m.find(w.To, now); refusal != nil {
			return nil
		}
		newest := cmp.Or(m.accepted, m.running, h.To)
		h.Above = newest.Order()
		for _, r := range []*state.Release{m.accepted, m.running} {
			if r != nil && r.Release.Content.DiffID != h.To.Release.Content.DiffID {
				h.Left = append(h.Left, r.Release.Content.DiffID)
			}
		}
		return state.Save(tx, state.Meta, keyHeld, h)
	})
	if err = cmp.Or(err, refusal); err != nil {
		return RolledBack{}, err
	}
	return RolledBack{*h.status(now), content.New(s.db, content.Options{}).Has(h.To)}, nil
}

// RollBack is State.RollBack in an agent that may be running, which begins with it at once.
func (a *Agent) RollBack(w Wish) (RolledBack, error) {
	b, err := a.state.RollBack(w, a.opts.Now())
	if err == nil {
		a.opts.Log.Info("rollback asked for", "release", b.Held.To.Name(), "digest", b.Held.To.Digest, "sequence", b.Held.To.Sequence, "by", b.Held.By, "reason", b.Held.Reason)
		a.eager.Store(!b.Here)
		nudge(a.wake)
	}
	return b, err
}

// endHold ends a person's decision, but not together with a pause.
func endHold(tx *bbolt.Tx, r *Resumed, now time.Time) error {
	held, err := state.Load[*hold](tx, state.Meta, keyHeld)
	if err != nil || r.Pause != nil {
		r.StillHeld = held.status(now)
		return err
	}
	r.Held = held.status(now)
	return state.Drop(tx, state.Meta, keyHeld)
}

// noteAccepted remembers a release that was accepted, and ends a hold by it.
func noteAccepted(tx *bbolt.Tx, r *state.Release, quarantine probation.Quarantine) (ended bool, err error) {
	history, err1 := state.Load[[]*state.Release](tx, state.Meta, keyHistory)
	held, err2 := state.Load[*hold](tx, state.Meta, keyHeld) // it may be newer than the pass
	if err := errors.Join(err1, err2); err != nil {
		return false, err
	}
	history = append([]*state.Release{r}, history...)
	err = state.Save(tx, state.Meta, keyHistory, history[:min(len(history), maxHistory)])
	if held == nil || !held.endedBy(r) || quarantine.Of(r) != nil {
		return false, err
	}
	return true, errors.Join(err, state.Drop(tx, state.Meta, keyHeld))
}

// release is the one to run; nil without a hold.
func (h *hold) release() *state.Release {
	if h == nil {
		return nil
	}
	return h.To
}

// void reports whether a hold is no longer valid; see voidHold.
func (a *Agent) void(h *hold, running *state.Release) bool {
	return h.To.Release.Stream() != a.stream() || h.To.Digest() != running.Digest() && h.To.Release.Epoch != a.judge().Epoch
}

// goesBackTo returns the release that a person has gone back to; nil if there is none.
func (a *Agent) goesBackTo() (back *state.Release, err error) {
	err = a.state.db.View(func(tx *bbolt.Tx) error {
		h, err1 := state.Load[*hold](tx, state.Meta, keyHeld)
		running, err2 := state.Load[*state.Release](tx, state.Meta, keyRunning)
		if h != nil && !a.void(h, running) {
			back = h.To
		}
		return errors.Join(err1, err2)
	})
	if err != nil {
		err = state.Local("read state: %w", err)
	}
	return back, err
}

// voidHold ends a hold that is no longer valid: the agent was bound to another stream, or a new epoch has
// begun before the release came to run. A new epoch never stops a running release.
func (p *pass) voidHold() error {
	h := p.held
	if h == nil || !p.void(h, p.running) {
		return nil
	}
	p.opts.Log.Warn("rollback ends: its release may not run here any more", "release", h.To.Name(), "digest", h.To.Digest(), "epoch", h.To.Release.Epoch)
	p.held = nil
	return p.state.db.Update(func(tx *bbolt.Tx) error { return state.Drop(tx, state.Meta, keyHeld) })
}

// passesOver reports whether a release that is offered, and accepted, is not to run.
func (e *earlier) passesOver(r *state.Release) bool {
	return e.held != nil && e.held.To.Digest() != r.Digest() || e.quarantine.Of(r) != nil
}

// wanted is a release that is to run and is not the one offered: a person's, or the last good one. Nil where
// there is none.
func (e *earlier) wanted() *state.Release {
	switch {
	case e.held != nil:
		return e.held.To
	case e.quarantine.Of(e.running) != nil:
		return e.good
	}
	return nil
}

// bringBack fetches the wanted release by its digests if its files are missing, and returns got unchanged
// otherwise.
func (p puller) bringBack(ctx context.Context, got pulled) (pulled, outcome) {
	r := p.wanted()
	if r == nil && p.accepted != nil && p.passesOver(p.accepted) {
		r = p.running // which is no longer offered
	}
	places := p.others(offer{place: -1})[1:]
	if got.staged || len(places) == 0 || r == nil || p.content.Ready(ctx, r) {
		return got, done
	}
	var out outcome
	got.target = r
	got.staged, out = p.fetchAndStage(ctx, places, verified{release: r, taken: got.taken})
	return got, out
}

// next is the release that the items are to have: the one that a person wishes; else the one just staged, the
// newest accepted one whose tree can be had without asking anybody, the one that runs, or where that was given
// up, the one that was good before.
func (p *pass) next(ctx context.Context, got pulled) *state.Release {
	here := func(r *state.Release) bool {
		return r != nil && (got.staged && r.Digest() == got.target.Digest() || r.Digest() == p.running.Digest() || p.content.Ready(ctx, r))
	}
	if w := p.wanted(); p.held != nil {
		if here(w) {
			return w
		}
		return p.running
	}
	if got.staged && !p.passesOver(got.target) {
		return got.target
	}
	if a := p.accepted; p.own(a) && !p.isRefused(a) && !p.passesOver(a) && here(a) {
		return a // a crash came between its staging and now
	}
	if w := p.wanted(); w != nil {
		return w
	}
	return p.running
}
