package relational

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// SigningKeys implements store.Evidence.
func (d *DB) SigningKeys(ctx context.Context, uid string) (all []store.SigningKey, err error) {
	known := false
	err = each(ctx, d.read, `SELECT k.kid, k.public_key, k.revoked_at, k.until_incarnation, k.until_seq
		FROM cluster c LEFT JOIN cluster_key k ON k.cluster_id = c.id WHERE c.uid = $1 ORDER BY k.kid`, []any{uid}, func(rows *sql.Rows) error {
		known = true
		var kid *string
		var der []byte
		var revoked, incarnation, seq sql.NullInt64
		if err := rows.Scan(&kid, &der, &revoked, &incarnation, &seq); err != nil {
			return err
		}
		if kid == nil {
			return nil
		}
		key, err := bundle.ParsePublicKey(der)
		if err != nil {
			return fmt.Errorf("key %s: %w: %v", *kid, store.ErrCorrupt, err)
		}
		all = append(all, store.SigningKey{
			ID: *kid, Key: key, Until: store.Order{Incarnation: incarnation.Int64, Seq: seq.Int64}, RevokedAt: store.Moment(revoked.Int64),
		})
		return nil
	})
	if err != nil {
		return nil, d.classify(err)
	}
	if !known {
		return nil, fmt.Errorf("cluster %q: %w", uid, store.ErrUnknownCluster)
	}
	return all, nil
}
