package garbage

import (
	"context"
	"errors"
	"slices"

	"github.com/opencontainers/go-digest"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
)

// decidedRecords is of how many records of an environment the decisions are kept.
const decidedRecords = 100

// addDecisions turns into garbage decisions about commits that the environment below has not had lately, and what is no decision
// under the tag of one. Pauses and their ends stay, and what a newer version has written.
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
	commits, err := s.commitsOf(ctx, d.From)
	return d, slices.Contains(commits, d.BaseCommit), err
}

// commitsOf returns the base commits of the newest records of an environment, which are there before anything is deleted.
func (s *sorting) commitsOf(ctx context.Context, environment string) ([]string, error) {
	if commits, known := s.commits[environment]; known {
		return commits, nil
	}
	if oci.CheckName(environment) != nil {
		return nil, nil
	}
	at, err := s.place.Environment(environment)
	if err != nil {
		return nil, err
	}
	all, err := at.Repo.Tags(ctx)
	if err != nil {
		return nil, err
	}
	found, err := at.ReadAll(ctx, published.Tags{All: all}.Newest(published.Own, decidedRecords))
	if err != nil {
		return nil, err
	}
	commits := []string{}
	for _, f := range found {
		if f.Value != nil {
			commits = append(commits, f.Value.Record.BaseCommit)
		}
	}
	s.commits[environment] = commits
	return commits, nil
}
