package hub

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/wherry-dev/wherry/bundle/hubapi"
)

// RetireCluster ends the registration of the cluster of this name or uid because it does not exist any more, and
// returns it: it is expected no longer, its key is refused for good with the reason, its name is free, and its
// history stays. Retiring it again changes nothing. The error wraps ErrUnknownCluster.
func (h *Hub) RetireCluster(ctx context.Context, nameOrUID, reason string) (Registration, error) {
	reason = plain(clip(reason))
	var r Registration
	now := millis(h.now())
	err := h.writer.do(ctx, func(ctx context.Context, db *conn) (err error) {
		if r, err = findRegistration(ctx, db, nameOrUID); err != nil || r.RetiredAt != nil {
			return err
		}
		if err := endRegistration(ctx, db, r.UID, now); err != nil {
			return err
		}
		_, err = db.exec(ctx, `UPDATE cluster SET retired_at = ?, retired_reason = ? WHERE uid = ?`, now, reason, r.UID)
		return err
	})
	return r, err
}

// RetiredClusters returns the clusters that were retired, by name, of which there may be several of one.
func (h *Hub) RetiredClusters(ctx context.Context) ([]Registration, error) {
	rs, err := registrations(ctx, h.read, allRetired)
	return rs, classify(err)
}

// endRegistration revokes all keys of a cluster and has it shown no more.
func endRegistration(ctx context.Context, db *conn, uid string, now int64) error {
	_, err := db.exec(ctx, `UPDATE cluster_key SET revoked_at = coalesce(revoked_at, ?), until_incarnation = NULL, until_seq = NULL
		WHERE cluster_id = (SELECT id FROM cluster WHERE uid = ?)`, now, uid)
	if err != nil {
		return err
	}
	_, err = db.exec(ctx, `UPDATE cluster SET removed_at = ?, retired_at = NULL, retired_reason = '' WHERE uid = ?`, now, uid)
	return err
}

// checkNotRetired returns a refusal where the uid, or the key, is that of a cluster that was retired: only a
// person brings it back.
func checkNotRetired(ctx context.Context, db querier, uid, kid string) error {
	var name, reason string
	var at int64
	err := db.QueryRowContext(ctx, `SELECT c.uid, c.retired_at, c.retired_reason FROM cluster c
		WHERE c.retired_at IS NOT NULL AND (c.uid = ?1 OR EXISTS (SELECT 1 FROM cluster_key k WHERE k.cluster_id = c.id AND k.kid = ?2))
		LIMIT 1`, uid, kid).Scan(&name, &at, &reason)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	return refuse(hubapi.CodeRetired, "%v; %s", &retiredError{name, reason, moment(at)}, fmt.Sprintf("%q brings it back", "wherry hub clusters add"))
}
