package facts

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// Question gathers the facts. Its Check is nil. For errors see Judge.
func (f *Facts) Question(ctx context.Context, ask Ask) (gate.Question, error) {
	q := gate.Question{
		Policy: ask.Policy, Gate: ask.Policy.Gate, Ring: ask.Ring, Commit: ask.Commit, Automatic: ask.Automatic, Now: f.Now().UTC(),
		Stays: map[string][]gate.Stay{}, Cohort: gate.Cohort{From: f.from(), Source: f.source(), AsOf: f.Now().UTC()},
	}
	below := ask.Policy.Below()
	switch {
	case ask.Ring != "" && ask.Policy.RingBefore(ask.Ring) == "":
		return q, fmt.Errorf("ring %q of environment %s: %w", ask.Ring, ask.Policy.Environment, ErrNoRing)
	case ask.Ring != "":
		q.Gate, below = ask.Policy.RingGate, ask.Policy.Environment
	case below == "":
		return f.first(ctx, q)
	}
	history, err := f.History(ctx, below)
	if err != nil {
		return q, err
	}
	if err := f.Signers.Check(cmp.Or(f.Platform, history.Platform), q.Now); err != nil && history.Platform != "" {
		return q, err
	}
	if ask.Ring != "" {
		err = history.ring(ctx, ask, &q)
	} else {
		err = history.promotion(ctx, ask, &q)
	}
	if err != nil {
		return q, err
	}
	if err := f.clusters(ctx, history, &q); err != nil {
		return q, err
	}
	q.Undone, q.Decisions, err = f.undoneAndDecided(ctx, ask.Policy, cmp.Or(f.Platform, history.Platform))
	return q, err
}

// promotion sets the commit, the candidate and the stays of a promotion.
func (h *History) promotion(ctx context.Context, ask Ask, q *gate.Question) error {
	record, err := h.Find(ask.Commit, ask.BaseID)
	if err != nil || record == nil {
		return err
	}
	if q.Candidate, err = h.Candidate(ctx, record, !q.Gate.AllowFloating); err != nil {
		return err
	}
	q.Commit = record.BaseCommit
	if q.Gate.Soak <= 0 {
		return nil
	}
	q.Stays[h.Environment] = h.Stays(record.BaseCommit, record.BaseID)
	for _, environment := range q.Gate.SoakIn {
		if environment == h.Environment {
			continue
		}
		other, err := h.place.history(ctx, environment)
		if err != nil {
			return err
		}
		q.Stays[environment] = other.Stays(record.BaseCommit, record.BaseID)
	}
	return nil
}

// ring sets the commit, the candidate and the stays of a ring.
func (h *History) ring(ctx context.Context, ask Ask, q *gate.Question) (err error) {
	record, before := h.Newest(), ask.Policy.RingBefore(ask.Ring)
	if record == nil {
		return nil
	}
	candidate := ask.Candidate
	if candidate == nil {
		if candidate, err = h.RingCandidate(ctx, record, before, ask.Ring); err != nil {
			return err
		}
	}
	behind := candidate != nil
	if !behind { // the ring has what the one before it has
		if candidate, _ = h.Candidate(ctx, record, false); candidate == nil {
			return nil
		}
	} else if !q.Gate.AllowFloating {
		if err := h.AddMoving(ctx, record, before, candidate); err != nil {
			return err
		}
	}
	q.Candidate = candidate
	if behind {
		if q.UndoneWorkloads, err = h.undone(ctx, before, ask.Ring); err != nil {
			return err
		}
	}
	if full := candidate.BaseCommit; ask.Commit == "" || len(ask.Commit) >= minCommit && strings.HasPrefix(full, ask.Commit) {
		q.Commit = full
	}
	if q.Gate.Soak > 0 {
		q.Stays[ask.Policy.Environment], err = h.RingStays(ctx, before, candidate)
	}
	return err
}

// undone returns the marks of workloads that the newest record would have a ring get from the one before it although they were taken back.
func (h *History) undone(ctx context.Context, before, ring string) (all []ledger.Undone, err error) {
	at, err := h.place.Environment(h.Environment)
	if err != nil {
		return nil, err
	}
	l, err := at.Ledger(ctx, &h.Records[len(h.Records)-1])
	if err != nil || l == nil {
		return nil, h.place.facts.lost(h.Environment, err)
	}
	for _, u := range l.Rejected(ring, time.Time{}) {
		if w := l.Find(u.Key); w != nil {
			if r, stay := w.In(before); r != nil && r.Revision == u.Revision && stay.Record.Compare(u.Record) <= 0 {
				all = append(all, u)
			}
		}
	}
	return all, nil
}

// clusters counts the cohort, and the required clusters.
func (f *Facts) clusters(ctx context.Context, h *History, q *gate.Question) error {
	if q.Candidate == nil || q.Candidate.BaseCommit == "" {
		return nil
	}
	c := fleet.RolloutQuery{RegisteredBefore: q.Candidate.IssuedAt}
	if q.Ring != "" {
		// A cluster that joins in the middle of a rollout belongs to its ring as if it had been there.
		c.RegisteredBefore, c.Rings = time.Time{}, ringsBefore(q.Policy, q.Ring)
	}
	count, err := f.counter(ctx, h, q.Gate)
	if err != nil {
		return err
	}
	all, err := count(ctx, q.Candidate.BaseCommit, q.Candidate.IssuedAt, c)
	q.Cohort, q.Required = all.Cohort, all.Required
	return err
}

func ringsBefore(p promotion.Policy, ring string) (all []string) {
	for _, name := range p.Rings {
		if name == ring {
			break
		}
		all = append(all, name)
	}
	return all
}

// Candidate returns what a decision about an environment or a ring is about, as Judge sees it; nil if nothing is published.
func (f *Facts) Candidate(ctx context.Context, ask Ask) (*gate.Candidate, error) {
	bare := *f
	bare.Hub, bare.Clusters, bare.Reports, bare.Decisions = nil, nil, nil, nil
	ask.Policy.Gate.Soak, ask.Policy.RingGate.Soak, ask.Policy.Gate.AllowFloating, ask.Policy.RingGate.AllowFloating = 0, 0, true, true
	q, err := bare.Question(ctx, ask)
	return q.Candidate, err
}
