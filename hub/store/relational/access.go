package relational

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/hub/store"
)

// AddAccess implements store.Access.
func (d *DB) AddAccess(ctx context.Context, t store.AccessToken) error {
	scope, err := json.Marshal(t.AccessScope)
	if err != nil {
		return err
	}
	now := store.Millis(d.now())
	return d.Do(ctx, func(ctx context.Context, db *Conn) error {
		var other string
		err := db.row(ctx, `SELECT id FROM access_token WHERE id = $1 OR ($4 = '' AND subject = '' AND name = $2 AND revoked_at = 0 AND (expires_at = 0 OR expires_at > $3)) LIMIT 1`,
			t.ID, t.Name, now, t.Subject).Scan(&other)
		switch {
		case err == nil:
			return fmt.Errorf("access token of %s: %w, with the id %s", t.Name, store.ErrExists, other)
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
		if _, err := db.Exec(ctx, `INSERT INTO access_token (id, hash, name, role, scope, created_at, expires_at, revoked_at, used_at, subject) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
			t.ID, t.Hash, t.Name, t.Role, string(scope), store.Millis(t.CreatedAt), store.Millis(t.ExpiresAt), store.Millis(t.RevokedAt), store.Millis(t.UsedAt), t.Subject); err != nil {
			return err
		}
		if _, err := db.Exec(ctx, `DELETE FROM access_token WHERE subject <> '' AND expires_at < $1`, now-sessionsKept); err != nil {
			return err
		}
		return announce(ctx, db, now, store.FeedEntry{Kind: store.FeedAccess})
	})
}

// sessionsKept is how long an expired session is listed, in milliseconds. The audit log keeps its beginning and its end.
const sessionsKept = 7 * 24 * 60 * 60 * 1000

// RenewAccess implements store.Access.
func (d *DB) RenewAccess(ctx context.Context, t store.AccessToken) error {
	scope, err := json.Marshal(t.AccessScope)
	if err != nil {
		return err
	}
	return d.Do(ctx, func(ctx context.Context, db *Conn) error {
		n, err := db.Exec(ctx, `UPDATE access_token SET role = $1, scope = $2, expires_at = $3 WHERE id = $4 AND subject <> '' AND revoked_at = 0`, t.Role, string(scope), store.Millis(t.ExpiresAt), t.ID)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("session %q: %w", t.ID, store.ErrUnknownAccess)
		}
		return announce(ctx, db, store.Millis(d.now()), store.FeedEntry{Kind: store.FeedAccess})
	})
}

// AccessToken implements store.Access.
func (d *DB) AccessToken(ctx context.Context, id string) (store.AccessToken, error) {
	t, err := accessToken(ctx, d.read, `id = $1`, id)
	return t, d.classify(err)
}

// AccessTokens implements store.Access.
func (d *DB) AccessTokens(ctx context.Context) ([]store.AccessToken, error) {
	all, err := accessTokens(ctx, d.read, `TRUE ORDER BY created_at DESC, id`)
	return all, d.classify(err)
}

// RevokeAccess implements store.Access. An id is preferred to a name, and a token in force to one that was revoked.
func (d *DB) RevokeAccess(ctx context.Context, idOrName string) (t store.AccessToken, err error) {
	now := store.Millis(d.now())
	err = d.Do(ctx, func(ctx context.Context, db *Conn) (err error) {
		t, err = accessToken(ctx, db, `id = $1 OR (name = $1 AND subject = '') ORDER BY (id = $1) DESC, (revoked_at = 0) DESC, created_at DESC, id LIMIT 1`, idOrName)
		if err != nil || !t.RevokedAt.IsZero() {
			return err
		}
		t.RevokedAt = store.Moment(now)
		if _, err := db.Exec(ctx, `UPDATE access_token SET revoked_at = $1 WHERE id = $2`, now, t.ID); err != nil {
			return err
		}
		return announce(ctx, db, now, store.FeedEntry{Kind: store.FeedAccess})
	})
	if err != nil {
		return store.AccessToken{}, err
	}
	return t, nil
}

// UseAccess implements store.Access.
func (d *DB) UseAccess(ctx context.Context, id string, at time.Time, every time.Duration) error {
	return d.Do(ctx, func(ctx context.Context, db *Conn) error {
		_, err := db.Exec(ctx, `UPDATE access_token SET used_at = $1 WHERE id = $2 AND used_at <= $3`, store.Millis(at), id, store.Millis(at.Add(-every)))
		return err
	})
}

func accessToken(ctx context.Context, db querier, where, idOrName string) (store.AccessToken, error) {
	found, err := accessTokens(ctx, db, where, idOrName)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%q: %w", idOrName, store.ErrUnknownAccess)
	}
	if err != nil {
		return store.AccessToken{}, err
	}
	return found[0], nil
}

func accessTokens(ctx context.Context, db querier, where string, args ...any) ([]store.AccessToken, error) {
	all := []store.AccessToken{}
	err := each(ctx, db, `SELECT id, hash, name, role, scope, created_at, expires_at, revoked_at, used_at, waits, subject FROM access_token WHERE `+where, args, func(rows *sql.Rows) error {
		var t store.AccessToken
		var scope string
		var created, expires, revoked, used, waits int64
		if err := rows.Scan(&t.ID, &t.Hash, &t.Name, &t.Role, &scope, &created, &expires, &revoked, &used, &waits, &t.Subject); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(scope), &t.AccessScope); err != nil {
			return fmt.Errorf("scope of access token %s: %w: %v", t.ID, store.ErrCorrupt, err)
		}
		t.CreatedAt, t.ExpiresAt, t.RevokedAt, t.UsedAt = store.Moment(created), store.Moment(expires), store.Moment(revoked), store.Moment(used)
		t.Waits = waits == 1
		all = append(all, t)
		return nil
	})
	return all, err
}

// HoldTokens implements store.Access.
func (d *DB) HoldTokens(ctx context.Context) (int, error) { return d.setWaits(ctx, 1) }

// AcceptTokens implements store.Access.
func (d *DB) AcceptTokens(ctx context.Context) (int, error) { return d.setWaits(ctx, 0) }

// setWaits makes the tokens wait that do not, or ends that.
func (d *DB) setWaits(ctx context.Context, waits int64) (n int, err error) {
	now := store.Millis(d.now())
	err = d.Do(ctx, func(ctx context.Context, db *Conn) error {
		n = 0
		for _, change := range []string{
			`UPDATE access_token SET waits = $1 WHERE waits <> $1 AND revoked_at = 0 AND (expires_at = 0 OR expires_at > $2)`,
			`UPDATE token SET waits = $1 WHERE waits <> $1 AND revoked_at IS NULL AND expires_at > $2`,
		} {
			changed, err := db.Exec(ctx, change, waits, now)
			if err != nil {
				return err
			}
			n += int(changed)
		}
		return announce(ctx, db, now, store.FeedEntry{Kind: store.FeedAccess})
	})
	return n, err
}

// Audit implements store.Access.
func (d *DB) Audit(ctx context.Context, e store.AuditEntry) error {
	return d.Do(ctx, func(ctx context.Context, db *Conn) error { return writeAudit(ctx, db, e) })
}

// writeAudit appends an entry to the chain. No other process writes meanwhile.
func writeAudit(ctx context.Context, db *Conn, e store.AuditEntry) error {
	position, previous, err := auditHead(ctx, db)
	if err != nil {
		return err
	}
	e.Position, e.At = position+1, store.Moment(store.Millis(e.At)) // as it is read
	if e.Digest, err = e.Chained(previous); err != nil {
		return err
	}
	if _, err := db.Exec(ctx, `INSERT INTO audit (position, digest, at, actor, action, object, reason, detail, environment, workspace) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
		e.Position, string(e.Digest), store.Millis(e.At), e.Actor, e.Action, e.Object, e.Reason, e.Detail, e.Environment, e.Workspace); err != nil {
		return err
	}
	_, err = db.Exec(ctx, `INSERT INTO audit_head (id, position, digest) VALUES (1, $1, $2) ON CONFLICT (id) DO UPDATE SET position = excluded.position, digest = excluded.digest`,
		e.Position, string(e.Digest))
	return err
}

func auditHead(ctx context.Context, db querier) (position int64, d digest.Digest, err error) {
	err = db.row(ctx, `SELECT position, digest FROM audit_head WHERE id = 1`).Scan(&position, &d)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, "", nil
	}
	return position, d, err
}

// AuditHead implements store.Access.
func (d *DB) AuditHead(ctx context.Context) (int64, digest.Digest, error) {
	position, head, err := auditHead(ctx, d.read)
	return position, head, d.classify(err)
}

// AuditLog implements store.Access.
func (d *DB) AuditLog(ctx context.Context, after int64, limit int) ([]store.AuditEntry, error) {
	all := []store.AuditEntry{}
	err := each(ctx, d.read, `SELECT position, digest, at, actor, action, object, reason, detail, environment, workspace FROM audit
		WHERE position > $1 ORDER BY position LIMIT $2`, []any{after, limit}, func(rows *sql.Rows) error {
		var e store.AuditEntry
		var at int64
		if err := rows.Scan(&e.Position, &e.Digest, &at, &e.Actor, &e.Action, &e.Object, &e.Reason, &e.Detail, &e.Environment, &e.Workspace); err != nil {
			return err
		}
		e.At = store.Moment(at)
		all = append(all, e)
		return nil
	})
	return all, d.classify(err)
}

// PinKey implements store.Access.
func (d *DB) PinKey(ctx context.Context, keyID string) error {
	// A database that may not be written, and has its key already, can be read.
	pinned, err := pinnedKey(ctx, d.read)
	if err == nil && pinned == "" {
		err = d.Do(ctx, func(ctx context.Context, db *Conn) (err error) {
			if _, err := db.Exec(ctx, `INSERT INTO owner (id, kid) VALUES (1, $1) ON CONFLICT (id) DO NOTHING`, keyID); err != nil {
				return err
			}
			pinned, err = pinnedKey(ctx, db)
			return err
		})
	}
	if err != nil {
		return d.classify(err)
	}
	if pinned != keyID {
		return fmt.Errorf("the database %w: %s, and this one is %s", store.ErrOtherKey, pinned, keyID)
	}
	return nil
}

// PinnedKey implements store.Access.
func (d *DB) PinnedKey(ctx context.Context) (string, error) {
	kid, err := pinnedKey(ctx, d.read)
	return kid, d.classify(err)
}

// pinnedKey returns the key of the hub that the database belongs to; empty if it belongs to none.
func pinnedKey(ctx context.Context, db querier) (kid string, err error) {
	err = db.row(ctx, `SELECT kid FROM owner WHERE id = 1`).Scan(&kid)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return kid, err
}
