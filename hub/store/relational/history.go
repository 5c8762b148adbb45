package relational

import (
	"context"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/timeline"
)

// entry is the report that a transition belongs to.
type entry struct {
	store.Order
	occurred, received int64
	report             string
}

// writeTransition appends to the history. A row that this report has already stays: the report itself wrote it.
func writeTransition(ctx context.Context, db *Conn, cluster int64, assignment string, at entry, v timeline.Value) error {
	_, err := db.Exec(ctx, `INSERT INTO transition (cluster_id, assignment, incarnation, seq, state, reason, version, config, content, revision, failures, occurred_at, received_at, report_id)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
		ON CONFLICT (cluster_id, assignment, incarnation, seq) DO NOTHING`,
		cluster, assignment, at.Incarnation, at.Seq, v.State, v.Reason, v.Version, v.Config, v.Content, v.Revision, v.Failures,
		at.occurred, at.received, at.report)
	return err
}

// reportAfter returns the stored report that follows o.
func reportAfter(ctx context.Context, db querier, cluster int64, o store.Order) (entry, error) {
	var e entry
	err := db.row(ctx, `SELECT incarnation, seq, occurred_at, received_at, id FROM report
		WHERE cluster_id = $1 AND (incarnation, seq) > ($2, $3) ORDER BY incarnation, seq LIMIT 1`,
		cluster, o.Incarnation, o.Seq).Scan(&e.Incarnation, &e.Seq, &e.occurred, &e.received, &e.report)
	return e, err
}

// valuesBefore returns the values as of the stored report before o. One index lookup finds each: every
// assignment that the cluster ever had keeps a row in deployment.
func valuesBefore(ctx context.Context, db querier, cluster int64, o store.Order) (map[string]timeline.Value, error) {
	rows, err := db.query(ctx, `SELECT t.assignment, t.state, t.reason, t.version, t.config, t.content, t.revision, t.failures
		FROM (SELECT assignment FROM deployment WHERE cluster_id = $1 UNION ALL SELECT '') a
		JOIN transition t ON t.id = (SELECT id FROM transition
			WHERE cluster_id = $1 AND assignment = a.assignment AND (incarnation, seq) < ($2, $3)
			ORDER BY incarnation DESC, seq DESC LIMIT 1)`, cluster, o.Incarnation, o.Seq)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	values := map[string]timeline.Value{}
	for rows.Next() {
		var name string
		var v timeline.Value
		if err := rows.Scan(&name, &v.State, &v.Reason, &v.Version, &v.Config, &v.Content, &v.Revision, &v.Failures); err != nil {
			return nil, err
		}
		values[name] = v
	}
	return values, rows.Err()
}

// History implements store.Store.
func (d *DB) History(ctx context.Context, uid string) (all []store.Transition, err error) {
	rows, err := d.read.query(ctx, `SELECT t.assignment, t.incarnation, t.seq, t.state, t.reason, t.failures
		FROM transition t JOIN cluster c ON c.id = t.cluster_id WHERE c.uid = $1 ORDER BY t.assignment, t.incarnation, t.seq`, uid)
	if err != nil {
		return nil, d.classify(err)
	}
	defer rows.Close()
	for rows.Next() {
		var t store.Transition
		var state string
		if err := rows.Scan(&t.Assignment, &t.At.Incarnation, &t.At.Seq, &state, &t.Reason, &t.Failures); err != nil {
			return nil, err
		}
		t.State = bundle.State(state)
		all = append(all, t)
	}
	return all, d.classify(rows.Err())
}
