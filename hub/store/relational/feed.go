package relational

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/wherry-dev/wherry/hub/store"
)

// feedRow is an entry of the feed that has no position yet.
type feedRow struct {
	kind                          store.FeedKind
	cluster                       int64 // zero for none
	platform, environment, digest string
	first, last                   store.Order
	body                          []byte
}

// writeFeed adds an entry to the feed, and returns its position.
func writeFeed(ctx context.Context, db *Conn, now time.Time, e feedRow) (position store.Position, err error) {
	err = db.row(ctx, `INSERT INTO feed (at, kind, cluster_id, platform, environment, digest, first_incarnation, first_seq, last_incarnation, last_seq, body)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) RETURNING position`,
		store.Millis(now), string(e.kind), sql.NullInt64{Int64: e.cluster, Valid: e.cluster != 0}, e.platform, e.environment, e.digest,
		e.first.Incarnation, e.first.Seq, e.last.Incarnation, e.last.Seq, e.body).Scan(&position)
	if err != nil {
		return 0, fmt.Errorf("feed: %w", err)
	}
	return position, nil
}

// announce adds an entry that is not about a cluster to the feed, in the transaction of the change.
func announce(ctx context.Context, db *Conn, now int64, e store.FeedEntry) error {
	_, err := writeFeed(ctx, db, store.Moment(now), feedRow{kind: e.Kind, platform: e.Platform, environment: e.Environment, digest: string(e.Digest)})
	return err
}

// touch announces that a cluster's registration has changed.
func touch(ctx context.Context, db *Conn, now time.Time, cluster int64) error {
	position, err := writeFeed(ctx, db, now, feedRow{kind: store.FeedCluster, cluster: cluster})
	if err != nil {
		return err
	}
	_, err = db.Exec(ctx, `UPDATE cluster SET change = $2 WHERE id = $1`, cluster, int64(position))
	return err
}

// horizon returns up to where retention has removed rows; zero if it has removed none.
func horizon(ctx context.Context, db querier, name string) (value int64, err error) {
	err = db.row(ctx, `SELECT value FROM horizon WHERE name = $1`, name).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return value, err
}

// The horizons.
const (
	feedHorizon    = "feed"    // the position of the last entry that was removed
	historyHorizon = "history" // the time before which ScanAt cannot tell
)

// End implements store.Feed.
func (d *DB) End(ctx context.Context) (end store.Position, err error) {
	err = d.read.row(ctx, `SELECT coalesce(max(position), 0) FROM feed`).Scan(&end)
	return end, d.classify(err)
}

// Entries implements store.Feed.
func (d *DB) Entries(ctx context.Context, after store.Position, limit int) (all []store.FeedEntry, err error) {
	err = each(ctx, d.read, `SELECT f.position, f.at, f.kind, coalesce(c.uid, ''), f.platform, f.environment, f.digest,
			f.first_incarnation, f.first_seq, f.last_incarnation, f.last_seq
		FROM feed f LEFT JOIN cluster c ON c.id = f.cluster_id WHERE f.position > $1 ORDER BY f.position LIMIT $2`, []any{int64(after), int64(limit)}, func(rows *sql.Rows) error {
		var e store.FeedEntry
		var at int64
		if err := rows.Scan(&e.Position, &at, &e.Kind, &e.UID, &e.Platform, &e.Environment, &e.Digest,
			&e.First.Incarnation, &e.First.Seq, &e.Last.Incarnation, &e.Last.Seq); err != nil {
			return err
		}
		e.At = store.Moment(at)
		all = append(all, e)
		return nil
	})
	if err != nil {
		return nil, d.classify(err)
	}
	// After the rows, so that none of them can have been removed unseen.
	removed, err := horizon(ctx, d.read, feedHorizon)
	if err != nil {
		return nil, d.classify(err)
	}
	if int64(after) < removed {
		return nil, fmt.Errorf("changes after position %d: %w", after, store.ErrForgotten)
	}
	return all, nil
}

// otherProcesses is how often the feed is looked at for what other processes have added.
const otherProcesses = 500 * time.Millisecond

// Await implements store.Feed.
func (d *DB) Await(ctx context.Context, after store.Position) error {
	for {
		woken := d.writer.woken()
		end, err := d.End(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil || end > after {
			return err
		}
		timer := time.NewTimer(otherProcesses)
		select {
		case <-woken:
		case <-timer.C:
		case <-d.writer.stopped:
			err = store.ErrClosed
		case <-ctx.Done():
			err = ctx.Err()
		}
		timer.Stop()
		if err != nil {
			return err
		}
	}
}
