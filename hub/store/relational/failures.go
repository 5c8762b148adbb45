package relational

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/hub/store"
)

// Failures implements store.Past.
func (d *DB) Failures(ctx context.Context, from time.Time, s store.Scope, each func(store.Failures) error) (since time.Time, err error) {
	db, err := d.read.begin(ctx)
	if err != nil {
		return since, d.classify(err)
	}
	defer db.end()
	kept, err := horizon(ctx, db, historyHorizon)
	if err != nil {
		return since, d.classify(err)
	}
	first := max(kept, store.Millis(from))
	var q selection
	q.and("t.state = 'failed' AND t.time >= " + q.arg(first)) // as the index transition_failed has it
	q.and("d.id = t.deployment_id AND d.assignment <> '' AND c.id = d.cluster_id AND c.removed_at IS NULL")
	placed(s, "c", &q)
	var last store.Failures
	err = byUIDs(s, q, func(q selection) error {
		return eachFailure(ctx, db, q, func(f store.Failures) error {
			switch {
			case f.Count == 0:
				return nil
			case f.UID == last.UID && f.Workspace == last.Workspace:
				last.Count += f.Count
				return nil
			case last.Count > 0:
				if err := each(last); err != nil {
					return err
				}
			}
			last = f
			return nil
		})
	})
	if err == nil && last.Count > 0 {
		err = each(last)
	}
	return store.Moment(first), d.classify(err)
}

// eachFailure calls found with the failures of each chosen row of the history, by cluster and workspace.
func eachFailure(ctx context.Context, db querier, q selection, found func(store.Failures) error) error {
	// The count before is negative, and one less, if the assignment was not failed then.
	return each(ctx, db, `SELECT c.uid, d.workspace, t.failures,
			(SELECT CASE p.state WHEN 'failed' THEN p.failures ELSE -1 - p.failures END FROM transition p
				WHERE p.deployment_id = t.deployment_id AND (p.incarnation, p.seq) < (t.incarnation, t.seq) ORDER BY p.incarnation DESC, p.seq DESC LIMIT 1)
		FROM transition t CROSS JOIN deployment d CROSS JOIN cluster c
		WHERE `+strings.Join(q.conditions, " AND ")+` ORDER BY c.uid, d.workspace`, q.args, func(rows *sql.Rows) error {
		var f store.Failures
		var now int64
		var before sql.NullInt64
		if err := rows.Scan(&f.UID, &f.Workspace, &now, &before); err != nil {
			return err
		}
		f.Count = failuresBetween(before, now)
		return found(f)
	})
}

// failuresBetween returns how often an assignment that is failed now has begun to fail since the row before, whose count is as
// in eachFailure.
func failuresBetween(before sql.NullInt64, now int64) int64 {
	switch {
	case !before.Valid:
		return max(now, 1)
	case before.Int64 >= 0:
		if now < before.Int64 { // the agent has lost its count
			return max(now, 1)
		}
		return now - before.Int64
	}
	had := -1 - before.Int64
	if now < had {
		return max(now, 1)
	}
	return max(now-had, 1) // it is failed, whatever the agent counts
}
