package sqlite

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
	n, err := in.db.exec(ctx, `INSERT INTO instance (cluster_id, incarnation, instance, first_seq, last_seq) VALUES (?1, ?2, ?3, ?4, ?4)
		ON CONFLICT DO NOTHING`, in.cluster.id, a.Incarnation, a.Instance, a.Seq)
	if err != nil {
		return err
	}
	if n == 1 {
		_, err = in.db.exec(ctx, `DELETE FROM instance WHERE cluster_id = ?1 AND (incarnation, instance) NOT IN
			(SELECT incarnation, instance FROM instance WHERE cluster_id = ?1 ORDER BY incarnation DESC, last_seq DESC LIMIT ?2)`, in.cluster.id, timeline.MaxProcesses)
	} else {
		_, err = in.db.exec(ctx, `UPDATE instance SET first_seq = min(first_seq, ?4), last_seq = max(last_seq, ?4)
			WHERE cluster_id = ?1 AND incarnation = ?2 AND instance = ?3`, in.cluster.id, a.Incarnation, a.Instance, a.Seq)
	}
	if err != nil {
		return err
	}
	var first, last int64
	err = in.db.QueryRowContext(ctx, `SELECT o.first_seq, o.last_seq FROM instance m
		JOIN instance o ON o.cluster_id = m.cluster_id AND o.incarnation = m.incarnation AND o.instance <> m.instance
		WHERE m.cluster_id = ? AND m.incarnation = ? AND m.instance = ? AND o.first_seq < m.last_seq AND m.first_seq < o.last_seq LIMIT 1`,
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
	n, err := in.db.exec(ctx, `UPDATE cluster SET shared_since = ?, shared_how = ? WHERE id = ? AND shared_since IS NULL`, store.Millis(in.now), how, in.cluster.id)
	if err == nil && n == 1 {
		in.done.SharedNow = true
	}
	return err
}

// forgetShared ends the suspicion that two agents share the cluster's identity. The reports that are stored, and those
// up to upTo, which may still come, do not raise it again.
func forgetShared(ctx context.Context, db *conn, cluster int64, upTo store.Order) error {
	var newest store.Order
	if err := db.QueryRowContext(ctx, `SELECT incarnation, seq FROM cluster WHERE id = ?`, cluster).Scan(&newest.Incarnation, &newest.Seq); err != nil {
		return err
	}
	if newest.Compare(upTo) < 0 {
		newest = upTo
	}
	if _, err := db.exec(ctx, `UPDATE cluster SET shared_since = NULL, shared_how = '', conflicts = 0, cleared_incarnation = ?, cleared_seq = ? WHERE id = ?`,
		newest.Incarnation, newest.Seq, cluster); err != nil {
		return err
	}
	_, err := db.exec(ctx, `DELETE FROM instance WHERE cluster_id = ?`, cluster)
	return err
}

// Unshare implements store.Store.
func (d *DB) Unshare(ctx context.Context, nameOrUID string) (store.Registration, error) {
	var r store.Registration
	err := d.writer.do(ctx, func(ctx context.Context, db *conn) (err error) {
		if r, err = findRegistration(ctx, db, nameOrUID); err != nil {
			return err
		}
		var id int64
		if err := db.QueryRowContext(ctx, `SELECT id FROM cluster WHERE uid = ?`, r.UID).Scan(&id); err != nil {
			return err
		}
		return forgetShared(ctx, db, id, store.Order{})
	})
	return r, err
}
