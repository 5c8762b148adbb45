package relational

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/hub/store"
)

// AddDecision implements store.Decisions.
func (d *DB) AddDecision(ctx context.Context, s store.StoredDecision) (added bool, err error) {
	own := int64(0)
	if s.Own {
		own = 1
	}
	err = d.Do(ctx, func(ctx context.Context, db *Conn) error {
		added = false
		var there, others int64
		if err := db.row(ctx, `SELECT COUNT(*) FROM decision WHERE digest = $1`, string(s.Digest)).Scan(&there); err != nil || there > 0 {
			return err
		}
		if err := db.row(ctx, `SELECT COUNT(*) FROM decision WHERE environment = $1 AND platform = $2 AND own = 0`, s.Environment, s.Platform).Scan(&others); err != nil {
			return err
		}
		if !s.Own && others >= store.MaxDecisions {
			return fmt.Errorf("decisions about environment %q: %w", store.Plain(store.Clip(s.Environment)), store.ErrFull)
		}
		n, err := db.Exec(ctx, `INSERT INTO decision (digest, platform, environment, issued_at, seen_at, own, envelope)
			VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (digest) DO NOTHING`,
			string(s.Digest), s.Platform, s.Environment, store.Millis(s.IssuedAt), store.Millis(s.SeenAt), own, s.Envelope)
		if err != nil || n == 0 {
			return err
		}
		added = true
		return announce(ctx, db, store.Millis(d.now()), store.FeedEntry{Kind: store.FeedDecision, Platform: s.Platform, Environment: s.Environment, Digest: s.Digest})
	})
	return added && err == nil, err
}

// Decisions implements store.Decisions.
func (d *DB) Decisions(ctx context.Context, environment string) ([]store.StoredDecision, error) {
	all := []store.StoredDecision{}
	err := each(ctx, d.read, `SELECT digest, platform, issued_at, seen_at, own, envelope FROM decision WHERE environment = $1
		ORDER BY issued_at DESC, digest`, []any{environment}, func(rows *sql.Rows) error {
		s := store.StoredDecision{Environment: environment}
		var id string
		var issued, seen, own int64
		if err := rows.Scan(&id, &s.Platform, &issued, &seen, &own, &s.Envelope); err != nil {
			return err
		}
		s.Digest, s.IssuedAt, s.SeenAt, s.Own = digest.Digest(id), store.Moment(issued), store.Moment(seen), own == 1
		all = append(all, s)
		return nil
	})
	return all, d.classify(err)
}
