package undo

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/state"
)

// takeBack lists in content what that takes back, and shows the plan.
func (s *search) takeBack(ctx context.Context, content *publisher.Content, done *Done) error {
	all, err := s.releases(ctx, content)
	if err != nil {
		return err
	}
	plan := &Plan{Left: done.Left, Previous: done.Previous, Changes: []Change{}}
	mark := bundle.Undone{Reason: s.Reason}
	if content.BaseCommit != s.now.BaseCommit {
		mark.BaseCommit = s.now.BaseCommit
	}
	taken, back := map[string]map[digest.Digest]bool{}, map[string]digest.Digest{}
	for _, name := range slices.Sorted(maps.Keys(content.Releases)) {
		for _, ring := range s.rings(name) {
			d, is := content.Releases[name][ring]
			if !is {
				continue
			}
			from, to := all[releaseOf(s.now, name, ring)], all[d]
			if to != nil && back[name] == "" { // that of the narrowest ring, where new content comes first
				back[name] = to.Release.Content.DiffID
			}
			if from == nil && to == nil || from != nil && to != nil && from.Release.SameContent(to.Release) {
				continue
			}
			plan.add(name, ring, from, to)
			if from != nil {
				if taken[name] == nil {
					taken[name] = map[digest.Digest]bool{}
				}
				taken[name][from.Release.Content.DiffID] = true
			}
		}
	}
	for name, contents := range taken {
		if mark.Contents == nil {
			mark.Contents = map[string][]digest.Digest{}
		}
		mark.Contents[name] = slices.Sorted(maps.Keys(contents))
	}
	content.Undone = slices.DeleteFunc(slices.Clone(s.now.Undone), func(u bundle.Undone) bool {
		return u.Is(content.BaseCommit, back) || mark.Is(u.BaseCommit, nil) // it is given back; or it is taken back once more
	})
	content.Undone = append(content.Undone, mark) // without a time; Reissue adds what was cut off before it was recorded
	if more := len(content.Undone) - bundle.MaxUndone; more > 0 {
		content.Undone = content.Undone[more:]
	}
	return s.show(plan)
}

// show tells the caller what would be done.
func (s *search) show(plan *Plan) error {
	if s.Show == nil {
		return nil
	}
	plan.Platform, plan.Environment = s.at.Platform, s.at.Environment
	return s.Show(plan)
}

// releases reads what rings have and what they are to have. A release that is lost is left out.
func (s *search) releases(ctx context.Context, content *publisher.Content) (map[digest.Digest]*bundle.Verified, error) {
	var mu sync.Mutex
	all := map[digest.Digest]*bundle.Verified{}
	g, reading := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for name, rings := range content.Releases {
		wanted := map[digest.Digest]bool{}
		for ring, d := range rings {
			wanted[d], wanted[releaseOf(s.now, name, ring)] = true, true
		}
		delete(wanted, "")
		for d := range wanted {
			g.Go(func() error {
				v, err := s.at.ReleaseOf(reading, name, d)
				if errors.As(err, new(*state.LostError)) {
					return nil
				}
				mu.Lock()
				defer mu.Unlock()
				all[d] = v
				return err
			})
		}
	}
	return all, g.Wait()
}

// add adds a ring of a cluster type; rings that change alike are one change.
func (p *Plan) add(name, ring string, from, to *bundle.Verified) {
	c := Change{ClusterType: name, Rings: []string{cmp.Or(ring, bundle.LatestTag)}}
	if from != nil {
		c.From, c.FromCommit = from.Name(), from.Release.BaseCommit
	}
	if to != nil {
		c.To, c.ToCommit = to.Name(), to.Release.BaseCommit
	}
	if n := len(p.Changes) - 1; n >= 0 && p.Changes[n].ClusterType == name && p.Changes[n].From == c.From && p.Changes[n].To == c.To {
		p.Changes[n].Rings = append(p.Changes[n].Rings, c.Rings...)
		return
	}
	p.Changes = append(p.Changes, c)
}
