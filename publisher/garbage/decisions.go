package garbage

import (
	"context"
	"errors"
	"slices"

	"github.com/opencontainers/go-digest"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
)

// decidedRecords is of how many records of an environment the decisions are kept.
const decidedRecords = 100

// addDecisions turns into garbage decisions about commits that the environment below has not had lately, about revisions of workloads that no
// newest ledger names, and what is no decision under the tag of one. Pauses and their ends stay, and what a newer version has written.
func (s *sorting) addDecisions(ctx context.Context) error {
	var garbage []Item
	for _, tag := range s.decided {
		d, keep, err := s.judgeDecision(ctx, tag)
		if err != nil {
			return err
		}
		if keep {
			if !s.needed[s.tagged[tag]] { // which its other tag may have said
				s.result.Kept++
			}
			s.needed[s.tagged[tag]] = true
			continue
		}
		garbage = append(garbage, Item{Kind: Decision, Tags: []string{tag}, Digest: s.tagged[tag], IssuedAt: d.IssuedAt, subject: s.tagged[tag]})
	}
	same := map[digest.Digest]int{}
	for _, g := range garbage {
		if s.needed[g.Digest] { // under another tag, too
			g.Digest = ""
		} else if i, ok := same[g.Digest]; ok { // under the tag that keeps it
			s.result.Garbage[i].Tags = append(s.result.Garbage[i].Tags, g.Tags...)
			continue
		} else {
			same[g.Digest] = len(s.result.Garbage)
		}
		s.result.Garbage = append(s.result.Garbage, g)
	}
	return nil
}

func (s *sorting) judgeDecision(ctx context.Context, tag string) (d bundle.Decision, keep bool, err error) {
	found, err := s.environment.Decision(ctx, tag)
	d = found.Decision
	var refusal *bundle.Refusal
	switch {
	case errors.As(err, &refusal):
		return d, refusal.Reason == bundle.UnsupportedSchema, nil
	case errors.Is(err, errdef.ErrNotFound):
		return d, false, nil
	case err != nil:
		return d, false, err
	case !found.BelongsTo(s.environment, tag):
		return d, false, nil
	case d.Action == bundle.Pause || d.Action == bundle.Resume, s.now.Sub(d.IssuedAt) < max(s.opts.KeepFor, grace):
		return d, true, nil
	}
	if d.IsContent() {
		keep, err = s.namesRevision(ctx, d)
		return d, keep, err
	}
	below, err := s.had(ctx, d.From)
	return d, slices.Contains(below.commits, d.BaseCommit), err
}

// namesRevision reports whether the newest ledger of the environment below, or of the one that is decided about, has the revision of a decision.
func (s *sorting) namesRevision(ctx context.Context, d bundle.Decision) (bool, error) {
	below, err := s.had(ctx, d.From)
	if err != nil {
		return false, err
	}
	own, err := s.had(ctx, d.Environment)
	if err != nil {
		return false, err
	}
	if below.lost || own.lost { // it may come back
		return true, nil
	}
	key := ledger.Key{Registration: d.Workload.Registration, Workload: d.Workload.Name}
	if d.Workload.Revision == "" {
		return below.ledger != nil && below.ledger.FindRemoved(key) != nil, nil
	}
	for _, l := range []*ledger.Ledger{below.ledger, own.ledger} {
		if l == nil {
			continue
		}
		if w := l.Find(key); w != nil && names(w, d.Workload.Revision) {
			return true, nil
		}
	}
	return false, nil
}

// names reports whether a ring has the revision, or something that was made of it, or a proof is about it.
func names(w *ledger.Workload, revision digest.Digest) bool {
	return slices.ContainsFunc(w.Proofs, func(p ledger.Proof) bool { return p.Revision == revision }) ||
		slices.ContainsFunc(w.Revisions, func(r ledger.Revision) bool {
			return r.Revision == revision || slices.ContainsFunc(r.In, func(in ledger.Stay) bool { return in.From.Revision == revision })
		})
}

// past is what an environment had: base commits, and the newest ledger, which may be lost.
type past struct {
	commits []string
	ledger  *ledger.Ledger
	lost    bool
}

// had returns what the newest records of an environment, which are there before anything is deleted, say that it had.
func (s *sorting) had(ctx context.Context, environment string) (was past, err error) {
	if was, known := s.past[environment]; known {
		return was, nil
	}
	if oci.CheckName(environment) != nil {
		return was, nil
	}
	at, err := s.place.Environment(environment)
	if err != nil {
		return was, err
	}
	all, err := at.Repo.Tags(ctx)
	if err != nil {
		return was, err
	}
	found, err := at.ReadAll(ctx, published.Tags{All: all}.Newest(published.Own, decidedRecords))
	if err != nil {
		return was, err
	}
	for _, f := range found {
		if f.Value == nil {
			continue
		}
		if len(was.commits) == 0 { // the newest
			was.ledger, err = at.Ledger(ctx, f.Value)
			if was.lost = err != nil; published.IgnoreRefused(err) != nil {
				return was, err
			}
		}
		was.commits = append(was.commits, f.Value.Record.BaseCommit)
	}
	if l := was.ledger; l != nil { // records for proofs alone leave fewer commits among the newest records
		for _, e := range l.Base.Earlier {
			was.commits = append(was.commits, e.Commit)
		}
	}
	s.past[environment] = was
	return was, nil
}
