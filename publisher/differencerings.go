package publisher

import (
	"context"

	"github.com/wherry-dev/wherry/bundle"
)

// rings compares what pl would have with what each of its rings has.
func (c *comparison) rings(ctx context.Context, p *publication, pl *plan) (*TypeDifference, error) {
	issues, err := p.issues(ctx, pl)
	if err != nil {
		return nil, err
	}
	main, err := c.against(ctx, pl, pl.base().release)
	if err != nil {
		return nil, err
	}
	var rows []RingStanding
	for _, group := range pl.byRelease() {
		row, d, err := c.ring(ctx, pl, group, issues)
		if err != nil {
			return nil, err
		}
		if main.Result == StandingUnchanged && row.Result != StandingKept && d.Result != StandingUnchanged {
			main = d
		}
		main.Renewed = main.Renewed || row.Renewed != "" && main.Result == StandingUnchanged
		rows = append(rows, *row)
	}
	main.ByRing = rows
	return main.blocked(pl), nil
}

// byRelease groups the lanes of pl, those that are published to apart, by the release that they have.
func (pl *plan) byRelease() [][]*lane {
	var groups [][]*lane
	for n, l := range pl.lanes {
		if n > 0 {
			last := groups[len(groups)-1]
			if sameRelease(last[0].release, l.release) && pl.aimsAt(last[0]) == pl.aimsAt(l) {
				groups[len(groups)-1] = append(last, l)
				continue
			}
		}
		groups = append(groups, []*lane{l})
	}
	return groups
}

// ring compares with what a group of lanes has. The difference is nil where they have nothing and are to have nothing.
func (c *comparison) ring(ctx context.Context, pl *plan, group []*lane, issues []*issue) (*RingStanding, *TypeDifference, error) {
	has := (&issue{lanes: group}).published()
	row := &RingStanding{Rings: has.Rings, Latest: has.Latest, Result: StandingKept}
	var last *bundle.Verified
	if last = group[0].release; last != nil {
		row.OldSequence, row.OldNumber, row.OldDigest = last.Release.Sequence, last.Release.Number, last.Descriptor.Digest
	}
	apart := &comparison{Planned: c.Planned, explain: c.explain, done: &Difference{}} // renames are told once
	d, err := apart.against(ctx, pl, last)
	if err != nil {
		return nil, nil, err
	}
	n := d.Count()
	row.Added, row.Removed, row.Changed = n.Added, n.Removed, n.Changed
	if pl.aimsAt(group[0]) {
		row.Result = d.Result
	}
	for _, i := range issues {
		if i.from != nil && i.why != "" && i.covers(group[0]) {
			row.Renewed = i.why
		}
	}
	return row, d, nil
}
