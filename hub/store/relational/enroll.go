package relational

import (
	"context"
	"crypto"
	"crypto/x509"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// AddToken implements store.Store.
func (d *DB) AddToken(ctx context.Context, id string, key crypto.PublicKey, s store.TokenScope) error {
	s.Uses = max(s.Uses, 1)
	now := d.now()
	if err := s.Check(now); err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return err
	}
	labels, err := json.Marshal(s.Labels)
	if err != nil {
		return err
	}
	return d.Do(ctx, func(ctx context.Context, db *Conn) error {
		_, err := db.Exec(ctx, `INSERT INTO token (id, public_key, type, environment, ring, labels, uses, created_at, expires_at, ephemeral)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
			id, der, s.Type, s.Environment, s.Ring, string(labels), s.Uses, store.Millis(now), store.Millis(s.ExpiresAt), s.EphemeralSeconds*1000)
		return err
	})
}

// Tokens implements store.Store.
func (d *DB) Tokens(ctx context.Context) ([]store.Token, error) {
	found, err := d.tokens(ctx, d.read, `TRUE ORDER BY t.created_at DESC, t.id`)
	all := make([]store.Token, 0, len(found))
	for _, t := range found {
		all = append(all, t.Token)
	}
	return all, d.classify(err)
}

// RevokeToken implements store.Store.
func (d *DB) RevokeToken(ctx context.Context, id string) error {
	now := store.Millis(d.now())
	return d.Do(ctx, func(ctx context.Context, db *Conn) error {
		n, err := db.Exec(ctx, `UPDATE token SET revoked_at = coalesce(revoked_at, $1) WHERE id = $2`, now, id)
		if err == nil && n == 0 {
			err = fmt.Errorf("token %q: %w", id, store.ErrUnknownToken)
		}
		return err
	})
}

// tokenRow is a token with the key that proves it.
type tokenRow struct {
	store.Token
	key crypto.PublicKey
}

func (d *DB) tokens(ctx context.Context, db querier, where string, args ...any) ([]tokenRow, error) {
	var all []tokenRow
	err := each(ctx, db, `SELECT t.id, t.public_key, t.type, t.environment, t.ring, t.labels, t.uses, t.created_at, t.expires_at, t.revoked_at, t.ephemeral, t.waits,
			(SELECT count(*) FROM token_use u WHERE u.token_id = t.id)
		FROM token t WHERE `+where, args, func(rows *sql.Rows) error {
		var t tokenRow
		var der []byte
		var labels string
		var created, expires, ephemeral, waits int64
		var revoked sql.NullInt64
		var used int
		if err := rows.Scan(&t.ID, &der, &t.Type, &t.Environment, &t.Ring, &labels, &t.Uses, &created, &expires, &revoked, &ephemeral, &waits, &used); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(labels), &t.Labels); err != nil {
			return fmt.Errorf("labels of token %s: %w: %v", t.ID, store.ErrCorrupt, err)
		}
		var err error
		if t.key, err = bundle.ParsePublicKey(der); err != nil {
			return fmt.Errorf("token %s: %w: %v", t.ID, store.ErrCorrupt, err)
		}
		t.EphemeralSeconds = ephemeral / 1000
		t.CreatedAt, t.ExpiresAt, t.Left = store.Moment(created), store.Moment(expires), max(0, t.Uses-used)
		t.State = t.StateOf(t.Left, revoked.Valid, waits == 1, d.now())
		all = append(all, t)
		return nil
	})
	return all, err
}

// Enroll implements store.Store.
func (d *DB) Enroll(ctx context.Context, c store.Cluster, token string, decide func(store.Standing) (store.Grant, error)) error {
	if err := c.Check(); err != nil {
		return err
	}
	kid, err := bundle.KeyID(c.Key)
	if err != nil {
		return err
	}
	return d.Do(ctx, func(ctx context.Context, db *Conn) error {
		s, err := d.standing(ctx, db, c, kid, token)
		if err != nil {
			return err
		}
		grant, err := decide(s)
		if err != nil {
			return err
		}
		now := d.now()
		if grant.Register != nil {
			if err := writeRegistration(ctx, db, *grant.Register, kid, now); err != nil {
				return err
			}
			if s.Token != nil && s.Token.EphemeralSeconds > 0 {
				if err := beginEphemeral(ctx, db, grant.Register.UID, s.Token, now); err != nil {
					return err
				}
			}
		}
		if grant.Use {
			_, err = db.Exec(ctx, `INSERT INTO token_use (token_id, kid, uid, used_at) VALUES ($1, $2, $3, $4)`, token, kid, c.UID, store.Millis(now))
		}
		return err
	})
}

// standing reads the facts of which Enroll's caller decides.
func (d *DB) standing(ctx context.Context, db querier, c store.Cluster, kid, token string) (s store.Standing, err error) {
	found, err := d.tokens(ctx, db, `t.id = $1`, token)
	if err != nil || len(found) == 0 {
		return s, err
	}
	s.Token, s.TokenKey = &found[0].Token, found[0].key
	if err := db.row(ctx, `SELECT EXISTS (SELECT 1 FROM token_use WHERE token_id = $1 AND kid = $2),
			EXISTS (SELECT 1 FROM cluster_key k JOIN cluster c ON c.id = k.cluster_id
				WHERE k.kid = $2 AND c.uid = $3 AND k.revoked_at IS NULL AND c.removed_at IS NULL)`, token, kid, c.UID).Scan(&s.Used, &s.InForce); err != nil {
		return s, err
	}
	if s.Retired, err = retirement(ctx, db, c.UID, kid); err != nil {
		return s, err
	}
	if t := s.Token; s.Retired != nil && t.EphemeralSeconds > 0 && t.State != store.TokenRevoked && t.State != store.TokenWaits && d.now().Before(t.ExpiresAt) {
		if s.Returns, err = returns(ctx, db, c.UID, kid, token); err != nil {
			return s, err
		}
	}
	if s.Taken = checkFree(ctx, db, c, kid); s.Taken != nil && !errors.Is(s.Taken, store.ErrExists) {
		return s, s.Taken
	}
	have, err := registrations(ctx, db, clusterByUID, c.UID)
	if err == nil && len(have) > 0 {
		s.Registered = &have[0]
	}
	return s, err
}

// retirement returns how the cluster of the uid, or of the key, was retired; nil if it was not.
func retirement(ctx context.Context, db querier, uid, kid string) (*store.RetiredError, error) {
	var r store.RetiredError
	var at int64
	err := db.row(ctx, `SELECT c.uid, c.retired_at, c.retired_reason FROM cluster c
		WHERE c.retired_at IS NOT NULL AND (c.uid = $1 OR EXISTS (SELECT 1 FROM cluster_key k WHERE k.cluster_id = c.id AND k.kid = $2))
		LIMIT 1`, uid, kid).Scan(&r.UID, &at, &r.Reason)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	r.At = store.Moment(at)
	return &r, err
}

// Rotate implements store.Store.
func (d *DB) Rotate(ctx context.Context, r store.Rotation, decide func(store.Keys, error) (bool, error)) error {
	kid, err := bundle.KeyID(r.Key)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(r.Key)
	if err != nil {
		return err
	}
	return d.Do(ctx, func(ctx context.Context, db *Conn) error {
		cluster, keys, err := keysOf(ctx, db, r.UID)
		if err != nil {
			return err
		}
		taken := checkFree(ctx, db, store.Cluster{Identity: store.Identity{UID: r.UID}}, kid)
		if taken != nil && !errors.Is(taken, store.ErrExists) {
			return taken
		}
		if change, err := decide(keys, taken); err != nil || !change {
			return err
		}
		if _, err := db.Exec(ctx, `UPDATE cluster_key SET revoked_at = $1, until_incarnation = $2, until_seq = $3 WHERE cluster_id = $4 AND kid = $5`,
			store.Millis(d.now()), r.Until.Incarnation, r.Until.Seq, cluster, r.Previous); err != nil {
			return err
		}
		if _, err := db.Exec(ctx, `INSERT INTO cluster_key (cluster_id, kid, public_key) VALUES ($1, $2, $3)`, cluster, kid, der); err != nil {
			return fmt.Errorf("keep key %s: %w", kid, err)
		}
		if err := forgetShared(ctx, db, cluster, r.Until); err != nil {
			return err
		}
		return touch(ctx, db, d.now(), cluster)
	})
}

// Keys implements store.Store.
func (d *DB) Keys(ctx context.Context, uid string) (store.Keys, error) {
	_, k, err := keysOf(ctx, d.read, uid)
	return k, d.classify(err)
}

// keysOf also returns the cluster's row.
func keysOf(ctx context.Context, db querier, uid string) (cluster int64, k store.Keys, err error) {
	k = store.Keys{Current: map[string]crypto.PublicKey{}, Previous: map[string]store.PreviousKey{}}
	err = each(ctx, db, `SELECT c.id, c.removed_at, c.retired_at, c.retired_reason, k.kid, k.public_key, k.revoked_at, k.until_incarnation, k.until_seq
		FROM cluster c LEFT JOIN cluster_key k ON k.cluster_id = c.id AND (k.revoked_at IS NULL OR k.until_seq IS NOT NULL)
		WHERE c.uid = $1`, []any{uid}, func(rows *sql.Rows) error {
		var removed, retired, revoked, incarnation, seq sql.NullInt64
		var reason string
		var kid *string
		var der []byte
		if err := rows.Scan(&cluster, &removed, &retired, &reason, &kid, &der, &revoked, &incarnation, &seq); err != nil {
			return err
		}
		switch {
		case retired.Valid:
			return &store.RetiredError{UID: uid, Reason: reason, At: store.Moment(retired.Int64)}
		case removed.Valid:
			return fmt.Errorf("cluster %q: %w", uid, store.ErrUnknownCluster)
		case kid == nil:
			return nil
		}
		key, err := bundle.ParsePublicKey(der)
		if err != nil {
			return fmt.Errorf("key %s: %w: %v", *kid, store.ErrCorrupt, err)
		}
		if revoked.Valid {
			k.Previous[*kid] = store.PreviousKey{Key: key, Until: store.Order{Incarnation: incarnation.Int64, Seq: seq.Int64}}
		} else {
			k.Current[*kid] = key
		}
		return nil
	})
	if err != nil {
		return 0, k, err
	}
	if cluster == 0 {
		return 0, k, fmt.Errorf("cluster %q: %w", uid, store.ErrUnknownCluster)
	}
	return cluster, k, nil
}
