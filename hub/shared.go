package hub

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
)

// maxInstances bounds the processes of a cluster's agent that are remembered, newest first: a copy that was
// silent for as many restarts is found by its conflicts alone.
const maxInstances = 64

// noteInstance notes which process of an agent has made a report, and finds out whether two take turns.
// Processes of one agent follow one another, so that the numbers of their reports do not interleave, in
// whatever order the reports arrive.
func (in *intake) noteInstance(ctx context.Context, a bundle.ReportAgent) error {
	if a.Instance == "" || in.cluster.clears(order{a.Incarnation, a.Seq}) {
		return nil // an older agent's, or of before it was seen to
	}
	n, err := in.db.exec(ctx, `INSERT INTO instance (cluster_id, incarnation, instance, first_seq, last_seq) VALUES (?1, ?2, ?3, ?4, ?4)
		ON CONFLICT DO NOTHING`, in.cluster.id, a.Incarnation, a.Instance, a.Seq)
	if err != nil {
		return err
	}
	if n == 1 {
		_, err = in.db.exec(ctx, `DELETE FROM instance WHERE cluster_id = ?1 AND (incarnation, instance) NOT IN
			(SELECT incarnation, instance FROM instance WHERE cluster_id = ?1 ORDER BY incarnation DESC, last_seq DESC LIMIT ?2)`, in.cluster.id, maxInstances)
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
	return in.share(ctx, fmt.Sprintf("report %d came from another process than those around it, from %d to %d", a.Seq, first, last))
}

// conflict notes that another report with the number of this one is stored.
func (in *intake) conflict(ctx context.Context, a bundle.ReportAgent) error {
	if in.cluster.clears(order{a.Incarnation, a.Seq}) {
		return nil
	}
	in.cluster.conflicts++
	return in.share(ctx, fmt.Sprintf("there are two reports with incarnation %d and seq %d", a.Incarnation, a.Seq))
}

// clears reports whether what reports up to o showed has been seen to.
func (p *present) clears(o order) bool { return o.compare(p.cleared) <= 0 }

// share notes that two agents have the cluster's identity, and by what that shows.
func (in *intake) share(ctx context.Context, how string) error {
	if in.cluster.sharedHow == "" {
		in.cluster.sharedHow = how
	}
	n, err := in.db.exec(ctx, `UPDATE cluster SET shared_since = ?, shared_how = ? WHERE id = ? AND shared_since IS NULL`, millis(in.now), how, in.cluster.id)
	if err == nil && n == 1 {
		in.done.found = true
	}
	return err
}

// forgetShared ends the suspicion that two agents share the cluster's identity. What is known already, and the
// reports up to an order that may still come, raise it no more.
func forgetShared(ctx context.Context, db *conn, cluster int64, upTo order) error {
	var newest order
	if err := db.QueryRowContext(ctx, `SELECT incarnation, seq FROM cluster WHERE id = ?`, cluster).Scan(&newest.incarnation, &newest.seq); err != nil {
		return err
	}
	if newest.compare(upTo) < 0 {
		newest = upTo
	}
	if _, err := db.exec(ctx, `UPDATE cluster SET shared_since = NULL, shared_how = '', conflicts = 0, cleared_incarnation = ?, cleared_seq = ? WHERE id = ?`,
		newest.incarnation, newest.seq, cluster); err != nil {
		return err
	}
	_, err := db.exec(ctx, `DELETE FROM instance WHERE cluster_id = ?`, cluster)
	return err
}

// hint is what the agent is told of its identity; nil where nothing is wrong with it.
func (s stored) hint() *hubapi.IdentityHint {
	for _, r := range s.rejected {
		if r.Reason == hubapi.CodeKeyReplaced {
			return &hubapi.IdentityHint{Reason: r.Reason, Message: r.Message}
		}
	}
	if s.sharedHow == "" {
		return nil
	}
	return &hubapi.IdentityHint{Reason: hubapi.CodeSharedIdentity, Message: "a second agent has this one's key and uid, such as on a copy of its disk: " + s.sharedHow}
}

// Unshare ends the suspicion that two agents share the identity of the cluster of this name or uid, since a
// person has seen to it, and returns the cluster as it was. What shows it again brings it back. The error wraps
// ErrUnknownCluster.
func (h *Hub) Unshare(ctx context.Context, nameOrUID string) (Registration, error) {
	var r Registration
	err := h.writer.do(ctx, func(ctx context.Context, db *conn) (err error) {
		if r, err = findRegistration(ctx, db, nameOrUID); err != nil {
			return err
		}
		var id int64
		if err := db.QueryRowContext(ctx, `SELECT id FROM cluster WHERE uid = ?`, r.UID).Scan(&id); err != nil {
			return err
		}
		return forgetShared(ctx, db, id, order{})
	})
	return r, err
}
