package relational

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/hub/store"
)

// PutPromotion implements store.Promotions.
func (d *DB) PutPromotion(ctx context.Context, p store.Promotion, content digest.Digest) (posted store.PostedPromotion, err error) {
	body, err := json.Marshal(p)
	if err != nil {
		return posted, err
	}
	err = d.Do(ctx, func(ctx context.Context, db *Conn) error {
		posted = store.PostedPromotion{}
		var judged int64
		var before string
		err := db.row(ctx, `SELECT judged_at, content FROM promotion WHERE platform = $1`, p.Platform).Scan(&judged, &before)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if before != "" && judged >= store.Millis(p.JudgedAt) {
			return nil
		}
		if _, err := db.Exec(ctx, `INSERT INTO promotion (platform, judged_at, content, body) VALUES ($1, $2, $3, $4)
			ON CONFLICT (platform) DO UPDATE SET judged_at = excluded.judged_at, content = excluded.content, body = excluded.body`,
			p.Platform, store.Millis(p.JudgedAt), string(content), body); err != nil {
			return err
		}
		posted = store.PostedPromotion{New: true, Changed: before != string(content)}
		e := store.FeedEntry{Kind: store.FeedLook, Platform: p.Platform, Digest: content}
		if posted.Changed {
			e.Kind = store.FeedPromotion
		}
		return announce(ctx, db, store.Millis(d.now()), e)
	})
	return posted, err
}

// Promotions implements store.Promotions.
func (d *DB) Promotions(ctx context.Context) (all []store.Promotion, err error) {
	err = each(ctx, d.read, `SELECT body FROM promotion ORDER BY platform`, nil, func(rows *sql.Rows) error {
		var body []byte
		if err := rows.Scan(&body); err != nil {
			return err
		}
		var p store.Promotion
		if err := json.Unmarshal(body, &p); err != nil {
			return err
		}
		all = append(all, p)
		return nil
	})
	return all, d.classify(err)
}
