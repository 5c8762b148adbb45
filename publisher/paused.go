package publisher

import (
	"context"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/state"
)

// stillUndone returns what the last record lists as undone, and nobody has let be released again.
func (p *publication) stillUndone(last state.Record) []bundle.Undone {
	if last.Verified == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(last.Verified.Record.Undone), func(u bundle.Undone) bool { return !u.At.After(p.opts.Again) })
}

// undone returns what plans would bring back although it was undone; nil if there is nothing.
func (p *publication) undone(plans []*plan, last state.Record) *bundle.Undone {
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
func (p *publication) runPaused(ctx context.Context, plans []*plan, record state.Record) (Published, error) {
	waiting, err := p.PendingRecord(ctx, record)
	if err != nil {
		return p.nothingDone(), err
	}
	again := *p
	if v := record.Verified; v != nil {
		again.commits = commits{v.Record.BaseCommit, v.Record.EnvironmentCommit, v.Record.BaseID}
	}
	p = &again
	done := p.nothingDone()
	var kept []*plan
	for _, pl := range plans {
		if pl.refused == "" && pl.Verified != nil && record.Has(pl.Name) {
			kept = append(kept, pl.keep())
		}
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
	done.RenewAt = p.renewal().next(kept)
	err = p.writeAll(ctx, kept, record, record.Verified.Record, nil, &done)
	written := done.ClusterTypes
	done.ClusterTypes = []PublishedType{}
	for _, pl := range plans {
		row := pl.row
		row.Result = releases.OutcomeSkipped
		if n := slices.IndexFunc(written, func(w PublishedType) bool { return w.ClusterType == pl.Name }); n >= 0 {
			row = written[n]
		}
		done.ClusterTypes = append(done.ClusterTypes, row)
	}
	return done, err
}

// keep plans what the rings of a cluster type have already.
func (pl *plan) keep() *plan {
	// The ring to publish to is none of those that are there: no release takes the place of another.
	kept := &plan{asked: pl.asked, found: found{Type: pl.Type, aim: state.Rings{{}}}, row: pl.standingRow(pl.Name, pl.row.Assignments)}
	kept.left, kept.row.Failures, kept.row.Waiting, kept.row.Dropped, kept.row.FailedSites = false, pl.row.Failures, pl.row.Waiting, pl.row.Dropped, pl.row.FailedSites
	return kept
}

// wouldChange reports whether pl would release other content than there is.
func (pl *plan) wouldChange() bool {
	if pl.row.Result == releases.OutcomeFailed {
		return false // it would release nothing
	}
	return slices.ContainsFunc(pl.aim, func(l *state.Ring) bool { return !pl.isOf(l.Release) })
}
