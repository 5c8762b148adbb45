package relational

import (
	"context"
	"database/sql"

	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/timeline"
)

// The reports beside a place.
const (
	after  = `SELECT incarnation, seq, id, occurred_at, received_at, via FROM report WHERE cluster_id = $1 AND (incarnation, seq) > ($2, $3) ORDER BY incarnation, seq LIMIT 1`
	before = `SELECT incarnation, seq, id, occurred_at, received_at, via FROM report WHERE cluster_id = $1 AND (incarnation, seq) < ($2, $3) ORDER BY incarnation DESC, seq DESC LIMIT 1`
)

// reportBeside returns the stored report after or before a place.
func reportBeside(ctx context.Context, db querier, cluster int64, o store.Order, query string) (p store.Proof, err error) {
	var id []byte
	var occurred, received int64
	err = db.row(ctx, query, cluster, o.Incarnation, o.Seq).Scan(&p.At.Incarnation, &p.At.Seq, &id, &occurred, &received, &p.Via)
	p.Report, p.OccurredAt, p.ReceivedAt = reportID(id), store.Moment(occurred), store.Moment(received)
	return p, err
}

// valuesBefore returns the values as of the stored report before o. One index lookup finds each: every
// assignment that the cluster ever had keeps a row in deployment.
func valuesBefore(ctx context.Context, db querier, cluster int64, o store.Order) (map[string]timeline.Value, error) {
	values := map[string]timeline.Value{}
	err := each(ctx, db, `SELECT d.assignment, t.state, t.reason, t.version, t.config, t.content, t.revision, t.site_values, t.failures, t.since, coalesce(a.content, '')
		FROM deployment d
		JOIN transition t ON t.deployment_id = d.id AND (t.incarnation, t.seq) = (SELECT x.incarnation, x.seq FROM transition x
			WHERE x.deployment_id = d.id AND (x.incarnation, x.seq) < ($2, $3) ORDER BY x.incarnation DESC, x.seq DESC LIMIT 1)
		LEFT JOIN about a ON a.id = t.about_id
		WHERE d.cluster_id = $1`, []any{cluster, o.Incarnation, o.Seq}, func(rows *sql.Rows) error {
		var name string
		var v timeline.Value
		if err := scanValue(rows, &v, &name); err != nil {
			return err
		}
		values[name] = v
		return nil
	})
	return values, err
}

// scanValue scans the columns of a value after others.
func scanValue(rows *sql.Rows, v *timeline.Value, others ...any) error {
	return rows.Scan(append(others, &v.State, &v.Reason, &v.Version, &v.Config, &v.Content, &v.Revision, &v.SiteValues, &v.Failures, &v.Since, &v.About)...)
}

// History implements store.Store.
func (d *DB) History(ctx context.Context, uid string) (all []store.Transition, err error) {
	err = each(ctx, d.read, `SELECT d.assignment, t.incarnation, t.seq, t.state, t.reason, t.failures
		FROM cluster c JOIN deployment d ON d.cluster_id = c.id JOIN transition t ON t.deployment_id = d.id
		WHERE c.uid = $1 ORDER BY d.assignment, t.incarnation, t.seq`, []any{uid}, func(rows *sql.Rows) error {
		var t store.Transition
		if err := rows.Scan(&t.Assignment, &t.At.Incarnation, &t.At.Seq, &t.State, &t.Reason, &t.Failures); err != nil {
			return err
		}
		all = append(all, t)
		return nil
	})
	return all, d.classify(err)
}
