package relational

import (
	"context"
	"database/sql"
	"errors"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/timeline"
)

// noteInstance notes which process of an agent has made a report, and finds two that take turns.
func (in *intake) noteInstance(ctx context.Context, a bundle.ReportAgent) error {
	if a.Instance == "" || in.cluster.clears(store.OrderOf(a)) {
		return nil // of an older agent, or from before the suspicion was cleared
	}
	n, err := in.db.Exec(ctx, `INSERT INTO instance (cluster_id, incarnation, instance, first_seq, last_seq) VALUES ($1, $2, $3, $4, $4)
		ON CONFLICT DO NOTHING`, in.cluster.id, a.Incarnation, a.Instance, a.Seq)
	if err != nil {
		return err
	}
	if n == 1 {
		_, err = in.db.Exec(ctx, `DELETE FROM instance WHERE cluster_id = $1 AND (incarnation, instance) NOT IN
			(SELECT incarnation, instance FROM instance WHERE cluster_id = $1 ORDER BY incarnation DESC, last_seq DESC LIMIT $2)`, in.cluster.id, timeline.MaxProcesses)
	} else {
		_, err = in.db.Exec(ctx, `UPDATE instance SET first_seq = CASE WHEN first_seq > $4 THEN $4 ELSE first_seq END,
			last_seq = CASE WHEN last_seq < $4 THEN $4 ELSE last_seq END
			WHERE cluster_id = $1 AND incarnation = $2 AND instance = $3`, in.cluster.id, a.Incarnation, a.Instance, a.Seq)
	}
	if err != nil {
		return err
	}
	var first, last int64
	err = in.db.row(ctx, `SELECT o.first_seq, o.last_seq FROM instance m
		JOIN instance o ON o.cluster_id = m.cluster_id AND o.incarnation = m.incarnation AND o.instance <> m.instance
		WHERE m.cluster_id = $1 AND m.incarnation = $2 AND m.instance = $3 AND o.first_seq < m.last_seq AND m.first_seq < o.last_seq LIMIT 1`,
		in.cluster.id, a.Incarnation, a.Instance).Scan(&first, &last)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	return in.share(ctx, timeline.TakeTurns(a.Seq, first, last))
}

// conflict notes that another report with the number of this one is stored.
func (in *intake) conflict(ctx context.Context, a bundle.ReportAgent) error {
	if in.cluster.clears(store.OrderOf(a)) {
		return nil
	}
	in.cluster.conflicts++
	return in.share(ctx, timeline.SameNumber(store.OrderOf(a)))
}

// clears reports whether a report at o raises no suspicion, because a person or a new key has ended it since.
func (p *clusterRow) clears(o store.Order) bool { return o.Compare(p.cleared) <= 0 }

// share notes that two agents share the cluster's identity, and how that shows.
func (in *intake) share(ctx context.Context, how string) error {
	if in.cluster.sharedHow == "" {
		in.cluster.sharedHow = how
	}
	n, err := in.db.Exec(ctx, `UPDATE cluster SET shared_since = $1, shared_how = $2 WHERE id = $3 AND shared_since IS NULL`, store.Millis(in.now), how, in.cluster.id)
	if err == nil && n == 1 {
		in.done.SharedNow = true
	}
	return err
}

// forgetShared ends the suspicion that two agents share the cluster's identity. The reports that are stored, and those
// up to upTo, which may still come, do not raise it again.
func forgetShared(ctx context.Context, db *Conn, cluster int64, upTo store.Order) error {
	var newest store.Order
	if err := db.row(ctx, `SELECT incarnation, seq FROM cluster WHERE id = $1`, cluster).Scan(&newest.Incarnation, &newest.Seq); err != nil {
		return err
	}
	if newest.Compare(upTo) < 0 {
		newest = upTo
	}
	if _, err := db.Exec(ctx, `UPDATE cluster SET shared_since = NULL, shared_how = '', conflicts = 0, cleared_incarnation = $1, cleared_seq = $2 WHERE id = $3`,
		newest.Incarnation, newest.Seq, cluster); err != nil {
		return err
	}
	_, err := db.Exec(ctx, `DELETE FROM instance WHERE cluster_id = $1`, cluster)
	return err
}

// Unshare implements store.Store.
func (d *DB) Unshare(ctx context.Context, nameOrUID string) (store.Registration, error) {
	var r store.Registration
	err := d.Do(ctx, func(ctx context.Context, db *Conn) (err error) {
		if r, err = findRegistration(ctx, db, nameOrUID); err != nil {
			return err
		}
		var id int64
		if err := db.row(ctx, `SELECT id FROM cluster WHERE uid = $1`, r.UID).Scan(&id); err != nil {
			return err
		}
		return forgetShared(ctx, db, id, store.Order{})
	})
	return r, err
}
