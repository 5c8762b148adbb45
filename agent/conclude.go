package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/agent/registries"
	"github.com/wherry-dev/wherry/agent/retry"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// conclude turns the pass's outcome into state, retry and report. It is the only place that does.
func (p *pass) conclude(ctx context.Context, got pulled, seen observed, g *freeze.Guard, out outcome) outcome {
	now := p.opts.Now()
	p.enter("report")
	p.lived = p.lived || seen.attempted
	if out.Verdict == Interrupted { // the journal stays: the next start logs it
		if err := p.state.db.UpdateIf(func(tx *bbolt.Tx) (bool, error) { return p.noteProbation(tx, seen) }); err != nil {
			p.opts.Log.Error("pass not recorded", "err", err)
		}
		return out
	}
	if err := p.memory.entrust(ctx, g, p.self()); err != nil {
		return outcomeOf(ctx, err)
	}
	proved := false // the running release became the good one
	err := p.state.db.UpdateIf(func(tx *bbolt.Tx) (changed bool, err error) {
		refusal, err1 := p.noteRefusal(tx, got, out, now)
		contact, err2 := p.noteContact(tx, got.offer.answered, out, now)
		journal, err3 := endJournal(tx, out)
		var err4 error
		proved, err4 = p.noteGood(tx)
		frozen, err5 := noteFreeze(tx, p.opts.Log, p.frozenBefore, g.Found())
		probation, err6 := p.noteProbation(tx, seen)
		answers, err7 := noteRegistries(tx, p.opts.Log, p.registries, got.answers, len(p.opts.Further) > 0, now)
		return refusal || contact || journal || proved || frozen || probation || answers, errors.Join(err1, err2, err3, err4, err5, err6, err7)
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
	all, err := p.state.allRecords()
	if err == nil {
		err = p.values.Prune(all, p.engines.For)
	}
	if err := errors.Join(p.tidy(got.target, seen.switched || seen.dropped || got.taken || proved), err); err != nil {
		p.opts.Log.Warn("left-overs stay on the disk", "err", err)
	}
	return out
}

// noteRefusal keeps a refusal with the release it is about, and how often it was judged.
func (p *pass) noteRefusal(tx *bbolt.Tx, got pulled, out outcome, now time.Time) (bool, error) {
	var r *bundle.Refusal
	if out.Verdict != Refused || !errors.As(out.Err, &r) || got.recalled || out.Err == got.aside.Err {
		return false, nil
	}
	next := refusal{Digest: got.offer.manifest.Digest, Reason: r.Reason, Message: bundle.Clip(r.Message), At: state.Stamp(now), Trust: p.judgedBy()}
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
func (p *pass) noteContact(tx *bbolt.Tx, answered bool, out outcome, now time.Time) (bool, error) {
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
	if answered {
		p.lastContact.Store(&now)
		if now.Sub(old.Last).Abs() >= time.Hour || next.Verdict != old.Verdict {
			next.Last = state.Stamp(now)
		}
	}
	logContact(p.opts.Log, old, next)
	return next != old, state.Save(tx, state.Meta, keyContact, next)
}

// noteRegistries keeps how each of several registries has answered, and logs what has changed.
func noteRegistries(tx *bbolt.Tx, log *slog.Logger, known []registries.Status, answers []registries.Answer, several bool, now time.Time) (bool, error) {
	switch {
	case answers != nil:
	case !several && known != nil: // there were several
		return true, registries.Save(tx, nil)
	default:
		return false, nil
	}
	rows, changed := registries.Next(known, answers, now)
	if !changed {
		return false, nil
	}
	for i, row := range rows {
		var old registries.Status
		if i < len(known) && known[i].Registry == row.Registry {
			old = known[i]
		}
		switch {
		case row.Reason != "" && row.Reason != old.Reason:
			log.Warn("a registry is passed over", "registry", row.Registry, "reason", row.Reason, "message", row.Message)
		case row.Last && !old.Last:
			log.Info("a registry answers", "registry", row.Registry)
		}
	}
	return true, registries.Save(tx, rows)
}

// noteGood saves the running release as good once each of its assignments was compliant with its content there. Later
// failures do not count, nor do suspended assignments: if one of them stayed so for a year, a failing release would give
// way to a release from a year ago.
func (p *pass) noteGood(tx *bbolt.Tx) (bool, error) {
	if p.running == nil || p.good.Digest() == p.running.Digest() || p.quarantine.Of(p.running) != nil {
		return false, nil
	}
	all, err := p.state.records.All(tx)
	if err != nil || slices.ContainsFunc(all, func(r assignments.Record) bool { return !r.Proven(p.engines.For(r.Spec)) }) {
		return false, err
	}
	if p.good != nil && p.good.Release.Content.DiffID != p.running.Release.Content.DiffID {
		p.previous, err = p.good, state.Save(tx, state.Meta, keyPrevious, p.good)
	}
	p.good = p.running
	return true, errors.Join(err, state.Save(tx, state.Meta, keyGood, p.running))
}

// logContact logs once that bundles cannot be read, and once that they can again.
func logContact(log *slog.Logger, old, next contact) {
	bad := func(v Verdict) bool { return v == Unreachable || v == Broken }
	switch {
	case bad(next.Verdict) && (next.Verdict != old.Verdict || next.Reason != old.Reason):
		log.Warn("no newer release can be taken", "reason", next.Reason, "message", next.Message)
	case next.Verdict == Deferred && old.Verdict != Deferred:
		log.Info("a newer release waits", "reason", next.Reason, "message", next.Message)
	case bad(old.Verdict) && !bad(next.Verdict):
		log.Info("releases can be taken again")
	}
}

// endJournal deletes the record of the step in progress, unless this machine is at fault.
func endJournal(tx *bbolt.Tx, out outcome) (bool, error) {
	if tx.Bucket([]byte(state.Meta)).Get([]byte(keyJournal)) == nil || out.Verdict == Broken {
		return false, nil
	}
	return true, state.Drop(tx, state.Meta, keyJournal)
}

// tidy deletes what no release in use needs: where others are in use than before, and once in a process, for what a
// killed one has left.
func (p *pass) tidy(target *state.Release, others bool) error {
	settled, err := p.intake.Settle(p.accepted, p.running, p.held.release())
	if err != nil || p.tidied && !others && !settled && !p.media {
		return err
	}
	p.tidied = true
	return p.prune(target)
}

// noteFreeze saves the freeze of the pass, and logs its beginning and its end once.
func noteFreeze(tx *bbolt.Tx, log *slog.Logger, old, next *freeze.Freeze) (bool, error) {
	switch {
	case next.Shown() && (!old.Shown() || old.Reason != next.Reason):
		log.Info("the cluster must not be changed now", "reason", next.Reason, "message", next.Message)
	case old.Shown() && !next.Shown():
		log.Info("the cluster may be changed again", "was", old.Reason)
	}
	if next == nil && old == nil || next != nil && old != nil && *next == *old {
		return false, nil
	}
	return true, freeze.Save(tx, next)
}
