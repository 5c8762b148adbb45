package relational

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/timeline"
)

// trimRows bounds the rows that one transaction of Trim removes, so that reports wait for milliseconds only.
const trimRows = 500

// Trim implements store.Evidence.
func (d *DB) Trim(ctx context.Context, envelopes, history time.Time) (done store.Trimmed, err error) {
	if history.After(envelopes) { // an envelope is found by the number of its report
		history = envelopes
	}
	if done.Envelopes, err = d.trimEnvelopes(ctx, store.Millis(envelopes)); err != nil {
		return done, err
	}
	if cut := store.Millis(history); cut > 0 {
		done.Transitions, err = d.trimHistory(ctx, cut)
	}
	return done, err
}

// trimEnvelopes removes the envelopes of batches that came before a time, but for those whose acknowledgement is owed.
func (d *DB) trimEnvelopes(ctx context.Context, cut int64) (removed int64, err error) {
	var at, position int64 = -1, 0
	for {
		var positions []int64
		err := d.Do(ctx, func(ctx context.Context, db *Conn) error {
			positions = nil
			nextAt, nextPosition := at, position
			err := each(ctx, db, `SELECT f.at, f.position FROM feed f WHERE f.body IS NOT NULL AND f.at < $1 AND (f.at, f.position) > ($2, $3) ORDER BY f.at, f.position LIMIT $4`,
				[]any{cut, at, position, int64(trimRows)}, func(rows *sql.Rows) error {
					err := rows.Scan(&nextAt, &nextPosition)
					positions = append(positions, nextPosition)
					return err
				})
			if err != nil {
				return err
			}
			var n int64
			for _, p := range positions {
				var reports int64
				if err := db.row(ctx, `SELECT count(*) FROM feed f JOIN report r ON r.cluster_id = f.cluster_id AND r.position = f.position AND r.part >= 0
						AND (r.incarnation, r.seq) >= (f.first_incarnation, f.first_seq) AND (r.incarnation, r.seq) <= (f.last_incarnation, f.last_seq)
					WHERE f.position = $1`, p).Scan(&reports); err != nil {
					return err
				}
				gone, err := db.Exec(ctx, `UPDATE feed SET body = NULL WHERE position = $1 AND NOT EXISTS
					(SELECT 1 FROM report r WHERE r.ack_owed = 1 AND r.cluster_id = feed.cluster_id AND r.position = feed.position)`, p)
				if err != nil {
					return err
				}
				n += gone * reports
			}
			at, position = nextAt, nextPosition
			removed += n
			return nil
		})
		if err != nil || len(positions) < trimRows {
			return removed, err
		}
	}
}

// trimHistory removes what came before the last report of each cluster whose time is before cut, but for the values as of that
// report; and the entries of the feed from before cut whose envelopes are gone.
func (d *DB) trimHistory(ctx context.Context, cut int64) (removed int64, err error) {
	// First, so that nobody takes what is being removed for all.
	err = d.Do(ctx, func(ctx context.Context, db *Conn) error { return raise(ctx, db, historyHorizon, cut) })
	if err != nil {
		return 0, err
	}
	var last int64
	for {
		var ids []int64
		err := each(ctx, d.read, `SELECT id FROM cluster WHERE id > $1 ORDER BY id LIMIT $2`, []any{last, int64(page)}, func(rows *sql.Rows) error {
			ids = append(ids, 0)
			return rows.Scan(&ids[len(ids)-1])
		})
		if err != nil {
			return removed, d.classify(err)
		}
		for some := range slices.Chunk(ids, trimClusters) {
			n, err := d.trimSome(ctx, some, cut)
			if removed += n; err != nil {
				return removed, err
			}
			last = some[len(some)-1]
		}
		if len(ids) < page {
			return removed, d.trimFeed(ctx, cut)
		}
	}
}

// trimClusters is the number of clusters that are trimmed at once, mostly in one transaction.
const trimClusters = 16

func (d *DB) trimSome(ctx context.Context, ids []int64, cut int64) (removed int64, err error) {
	var wg sync.WaitGroup
	counts, errs := make([]int64, len(ids)), make([]error, len(ids))
	for i, id := range ids {
		wg.Go(func() { counts[i], errs[i] = d.trimCluster(ctx, id, cut) })
	}
	wg.Wait()
	for _, n := range counts {
		removed += n
	}
	return removed, errors.Join(errs...)
}

// trimCluster removes the history of a cluster up to the last report whose time is before cut.
func (d *DB) trimCluster(ctx context.Context, id, cut int64) (removed int64, err error) {
	var to store.Order
	// In order, since times may fall: what is kept is what ScanAt finds from cut on.
	err = d.read.row(ctx, `SELECT incarnation, seq FROM report WHERE cluster_id = $1 AND time < $2 ORDER BY incarnation DESC, seq DESC LIMIT 1`, id, cut).Scan(&to.Incarnation, &to.Seq)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, d.classify(err)
	}
	for {
		var transitions, reports int64
		err := d.Do(ctx, func(ctx context.Context, db *Conn) (err error) {
			transitions, err = db.Exec(ctx, `DELETE FROM transition WHERE (deployment_id, incarnation, seq) IN (SELECT t.deployment_id, t.incarnation, t.seq
				FROM deployment p CROSS JOIN transition t WHERE p.cluster_id = $1 AND t.deployment_id = p.id AND (t.incarnation, t.seq) <
					(SELECT x.incarnation, x.seq FROM transition x WHERE x.deployment_id = p.id AND (x.incarnation, x.seq) <= ($2, $3) ORDER BY x.incarnation DESC, x.seq DESC LIMIT 1)
				LIMIT $4)`, id, to.Incarnation, to.Seq, int64(trimRows))
			if err != nil {
				return err
			}
			reports, err = db.Exec(ctx, `DELETE FROM report WHERE cluster_id = $1 AND (incarnation, seq) IN (SELECT incarnation, seq FROM report r
				WHERE r.cluster_id = $1 AND (r.incarnation, r.seq) < ($2, $3) AND r.ack_owed = 0 LIMIT $4)`, id, to.Incarnation, to.Seq, int64(trimRows))
			if err != nil || transitions+reports == 0 {
				return err
			}
			_, err = db.Exec(ctx, `UPDATE cluster SET kept_incarnation = $2, kept_seq = $3 WHERE id = $1 AND (kept_incarnation, kept_seq) < ($2, $3)`, id, to.Incarnation, to.Seq)
			return err
		})
		removed += transitions
		if err != nil || transitions < trimRows && reports < trimRows {
			return removed, err
		}
	}
}

// trimFeed removes the entries from before a time that have no envelopes, but never the newest.
func (d *DB) trimFeed(ctx context.Context, cut int64) error {
	for {
		var n int64
		err := d.Do(ctx, func(ctx context.Context, db *Conn) error {
			var upTo int64
			// The first entry that stays ends it, so that those after a position are all there, or none.
			err := db.row(ctx, `SELECT coalesce(max(q.position), 0) FROM (SELECT f.position FROM feed f WHERE f.position <
				(SELECT min(k.position) FROM feed k WHERE k.at >= $1 OR k.body IS NOT NULL OR k.position = (SELECT max(m.position) FROM feed m)) ORDER BY f.position LIMIT $2) q`,
				cut, int64(trimRows)).Scan(&upTo)
			if err != nil || upTo == 0 {
				n = 0
				return err
			}
			if n, err = db.Exec(ctx, `DELETE FROM feed WHERE position <= $1`, upTo); err != nil {
				return err
			}
			return raise(ctx, db, feedHorizon, upTo)
		})
		if err != nil || n < trimRows {
			return err
		}
	}
}

// raise sets a horizon, unless it is further already.
func raise(ctx context.Context, db *Conn, name string, value int64) error {
	_, err := db.Exec(ctx, `INSERT INTO horizon (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE horizon.value < excluded.value`, name, value)
	return err
}

// Compare implements store.Evidence.
func (d *DB) Compare(ctx context.Context, call func(uid, assignment, difference string) error) error {
	var last int64
	for {
		var ids []int64
		err := each(ctx, d.read, `SELECT id FROM cluster WHERE id > $1 ORDER BY id LIMIT $2`, []any{last, int64(page)}, func(rows *sql.Rows) error {
			ids = append(ids, 0)
			return rows.Scan(&ids[len(ids)-1])
		})
		if err != nil {
			return d.classify(err)
		}
		if err := d.compareSome(ctx, ids, call); err != nil {
			return err
		}
		if len(ids) > 0 {
			last = ids[len(ids)-1]
		}
		if len(ids) < page {
			return nil
		}
	}
}

// difference is what Compare tells.
type difference struct{ uid, assignment, text string }

// compareSome compares clusters in one transaction, and tells of them after its end.
func (d *DB) compareSome(ctx context.Context, ids []int64, call func(uid, assignment, difference string) error) error {
	db, err := d.read.begin(ctx)
	if err != nil {
		return d.classify(err)
	}
	defer db.end()
	var found []difference
	for _, id := range ids {
		more, err := compareCluster(ctx, db, id)
		if err != nil {
			return d.classify(err)
		}
		found = append(found, more...)
	}
	db.end()
	for _, f := range found {
		if err := call(f.uid, f.assignment, f.text); err != nil {
			return err
		}
	}
	return nil
}

// compareCluster compares the present of a cluster with the last values of its history, and with its last report.
func compareCluster(ctx context.Context, db querier, id int64) (found []difference, err error) {
	c, err := readCluster(ctx, db, id)
	if err != nil {
		return nil, err
	}
	uid := c.registration.UID
	end := store.Order{Incarnation: 1<<63 - 1, Seq: 1<<63 - 1}
	newest, err := reportBeside(ctx, db, id, end, before)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	if newest.At != c.Order || newest.Report != c.proof.Report {
		found = append(found, difference{uid, timeline.WholeAgent, fmt.Sprintf("the present is of report %d of incarnation %d, and the last stored one is %d of %d",
			c.Seq, c.Incarnation, newest.At.Seq, newest.At.Incarnation)})
	}
	values, err := valuesBefore(ctx, db, id, end)
	if err != nil {
		return nil, err
	}
	check := func(assignment string, present timeline.Value) {
		past, known := values[assignment]
		if !known {
			past = timeline.Gone
		}
		if past.About == "" {
			past.About = present.About
		}
		if past != present {
			found = append(found, difference{uid, assignment, fmt.Sprintf("the present is %s, and the history says %s", describe(present), describe(past))})
		}
	}
	if c.Order != (store.Order{}) {
		check(timeline.WholeAgent, c.Agent)
	}
	for _, t := range c.Deployments {
		check(t.Assignment, t.Value)
	}
	return found, nil
}

// describe returns a value for people.
func describe(v timeline.Value) string {
	return fmt.Sprintf("%q (reason %q, version %q, configuration %q, content %q, revision %q, site values %q, %d failures, since %s)",
		v.State, v.Reason, v.Version, v.Config, v.Content, v.Revision, v.SiteValues, v.Failures, store.Moment(v.Since).Format(time.RFC3339))
}
