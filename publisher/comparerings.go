package publisher

import (
	"context"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/diff"
	"github.com/wherry-dev/wherry/publisher/state"
)

// rings compares what a plan would have with what each of its rings has.
func (c comparing) rings(ctx context.Context, s *download) (*diff.TypeDifference, error) {
	pl := s.plan
	planned, err := s.ringReleases(ctx, pl)
	if err != nil {
		return nil, err
	}
	main, err := c.against(ctx, s, pl.base().Release)
	if err != nil {
		return nil, err
	}
	var rows []diff.RingDifference
	for _, group := range pl.byRelease() {
		row, d, err := c.ring(ctx, s, group, planned)
		if err != nil {
			return nil, err
		}
		if main.Result == diff.ResultUnchanged && row.Result != diff.ResultKept && d.Result != diff.ResultUnchanged {
			main = d
		}
		if row.Renewed != "" && main.Result == diff.ResultUnchanged {
			main.Renewed, main.Fetch = true, row.Fetch
		}
		rows = append(rows, *row)
	}
	if pl.hasRings() {
		main.ByRing = rows
	}
	return blocked(main, pl), nil
}

// byRelease groups the rings of pl by their release, and separates those to publish to.
func (pl *plan) byRelease() []state.Rings {
	var groups []state.Rings
	for n, l := range pl.Rings {
		if n > 0 {
			last := groups[len(groups)-1]
			if sameRelease(last[0].Release, l.Release) && pl.aimsAt(last[0]) == pl.aimsAt(l) {
				groups[len(groups)-1] = append(last, l)
				continue
			}
		}
		groups = append(groups, state.Rings{l})
	}
	return groups
}

// ring compares with the release of a group of rings. The difference is nil if they have no release and get none.
func (c comparing) ring(ctx context.Context, s *download, group state.Rings, planned []*ringRelease) (*diff.RingDifference, *diff.TypeDifference, error) {
	pl := s.plan
	has := (&ringRelease{rings: group}).published()
	row := &diff.RingDifference{Rings: has.Rings, Latest: has.Latest, Result: diff.ResultKept}
	var last *bundle.Verified
	if last = group[0].Release; last != nil {
		row.OldRelease = diff.OldReleaseOf(last)
	}
	d, err := comparing{c.Apart(), c.opts}.against(ctx, s, last) // renames are listed once
	if err != nil {
		return nil, nil, err
	}
	n := d.Count()
	row.Added, row.Removed, row.Changed = n.Added, n.Removed, n.Changed
	if pl.aimsAt(group[0]) {
		row.Result, row.Fetch = d.Result, d.Fetch
	}
	for _, i := range planned {
		if i.from != nil && i.why != "" && i.covers(group[0]) {
			row.Renewed = i.why
			if row.Fetch, err = s.again(ctx, last); err != nil {
				return nil, nil, err
			}
		}
	}
	return row, d, nil
}

// plannedType is what publishing would make of a cluster type.
func plannedType(pl *plan) diff.State {
	s := diff.StateOf(pl.ClusterTypeResult)
	if pl.tree != nil { // else something keeps it from being published
		s.Rendered = pl.rendered
		s.Sites = diff.Sites{Document: pl.sites.document, Rows: pl.sites.rows}
	}
	for _, f := range pl.row.FailedSites {
		s.FailedSites = append(s.FailedSites, diff.FailedSite{Cluster: f.Cluster, Error: f.Error, Stands: f.HeldFrom != nil})
	}
	s.Held = map[string]bool{}
	for _, w := range pl.row.Waiting {
		s.Held[w.Name] = true
	}
	if len(pl.row.Failures)+len(pl.row.Dropped) > 0 {
		s.Failed, s.Dropped = []diff.FailedDifference{}, map[string]string{}
		for _, f := range pl.row.Failures {
			s.Failed = append(s.Failed, diff.FailedDifference{Name: f.Name, Error: f.Error, Taken: f.Taken, Stands: f.HeldFrom != nil})
		}
		for _, f := range pl.row.Dropped {
			s.Dropped[f.Name] = f.Error
		}
	}
	return s
}
