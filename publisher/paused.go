package publisher

import (
	"context"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/standing"
)

// stillUndone returns what the last record lists as undone, and nobody has let be released again.
func (p *publication) stillUndone(last standing.Record) []bundle.Undone {
	if last.Verified == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(last.Verified.Record.Undone), func(u bundle.Undone) bool { return !u.At.After(p.opts.Again) })
}

// undone returns what plans would bring back although it was undone; nil if there is nothing.
func (p *publication) undone(plans []*plan, last standing.Record) *bundle.Undone {
	all := p.stillUndone(last)
	if len(all) == 0 {
		return nil
	}
	contents, changes := map[string]digest.Digest{}, slices.ContainsFunc(plans, (*plan).wouldChange)
	for _, pl := range plans {
		if changes && pl.tree != nil {
			contents[pl.Name] = pl.tree.Content.DiffID
		}
	}
	for _, u := range slices.Backward(all) {
		if u.Is(p.commits.base, contents) {
			return &u
		}
	}
	return nil
}

// runPaused renews what is there, and publishes nothing else: plans say what it would have been.
func (p *publication) runPaused(ctx context.Context, plans []*plan, record standing.Record) (Published, error) {
	waiting, err := p.PendingRecord(ctx, record)
	if err != nil {
		return p.nothingDone(), err
	}
	again := *p
	if v := record.Verified; v != nil {
		again.commits = commits{v.Record.BaseCommit, v.Record.EnvironmentCommit}
	}
	p = &again
	done := p.nothingDone()
	kept := make([]*plan, len(plans))
	for i, pl := range plans {
		kept[i] = pl.keep()
		if pl.wouldChange() {
			done.Refused = append(done.Refused, pl.Name)
		}
	}
	slices.Sort(done.Refused)
	if record.Verified == nil || waiting != nil {
		if waiting != nil {
			p.Warn("something waits for signatures, so that nothing is renewed: complete it with wherry sign")
		}
		done.ClusterTypes, done.Record = skipped(plans), publishedRecord(record, releases.OutcomeUnchanged)
		return done, nil
	}
	rows := make([]PublishedType, len(kept))
	err = p.each(len(kept), func(p *publication, i int) (err error) {
		if kept[i] == nil {
			rows[i] = plans[i].row
			rows[i].Result = releases.OutcomeSkipped
			return nil
		}
		rows[i], err = p.attempt(ctx, kept[i])
		return err
	})
	if err != nil {
		return done, err
	}
	next := record.Verified.Record
	next.IssuedAt, next.ClusterTypes, next.Rings = p.IssuedAt, maps.Clone(next.ClusterTypes), maps.Clone(next.Rings)
	for i, row := range rows {
		if kept[i] != nil && record.Has(row.ClusterType) {
			kept[i].recordIn(&next, row)
		}
		done.ClusterTypes = append(done.ClusterTypes, row)
	}
	done.RenewAt = p.renewal().next(slices.DeleteFunc(kept, func(pl *plan) bool { return pl == nil }))
	done.Record, err = p.publishRecord(ctx, record, next, done.Pending() > 0)
	return done, err
}

// keep plans what the rings of a cluster type have already; nil if nothing was ever published.
func (pl *plan) keep() *plan {
	if pl.refused != "" || pl.Verified == nil {
		return nil
	}
	// The lane to publish to is none of those that are there: no release takes the place of another.
	kept := &plan{asked: pl.asked, found: found{Type: pl.Type, aim: standing.Lanes{{}}}, row: pl.standingRow(pl.Name, pl.row.Assignments)}
	kept.left, kept.row.Failures, kept.row.Dropped, kept.row.FailedSites = false, pl.row.Failures, pl.row.Dropped, pl.row.FailedSites
	return kept
}

// wouldChange reports whether pl would release other content than there is.
func (pl *plan) wouldChange() bool {
	if pl.row.Result == releases.OutcomeFailed {
		return false // it would release nothing
	}
	return slices.ContainsFunc(pl.aim, func(l *standing.Lane) bool { return !pl.isOf(l.Release) })
}
