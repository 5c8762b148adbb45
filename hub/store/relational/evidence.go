package relational

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/hub/store"
)

// storedColumns are those of scanStored, of report r whose batch is f.
const storedColumns = `r.incarnation, r.seq, r.id, r.kind, r.occurred_at, r.received_at, r.via, r.kid, r.ack_owed, r.part`

// scanStored scans a report, before others, and returns its part of the batch's envelopes.
func scanStored(rows *sql.Rows, s *store.StoredReport, others ...any) (part int, err error) {
	var id []byte
	var occurred, received int64
	err = rows.Scan(append([]any{&s.At.Incarnation, &s.At.Seq, &id, &s.Kind, &occurred, &received, &s.Via, &s.KeyID, &s.Owed, &part}, others...)...)
	s.ID, s.OccurredAt, s.ReceivedAt = reportID(id), store.Moment(occurred), store.Moment(received)
	return part, err
}

// ReportList implements store.Evidence.
func (d *DB) ReportList(ctx context.Context, f store.ReportFilter) (list store.ReportList, err error) {
	limit := cmp.Or(f.Limit, store.DefaultLimit)
	before := f.Before
	if before == (store.Order{}) {
		before = store.Order{Incarnation: 1<<63 - 1, Seq: 1<<63 - 1}
	}
	err = each(ctx, d.read, `SELECT `+storedColumns+`, CASE WHEN f.body IS NULL THEN 0 ELSE 1 END
		FROM cluster c JOIN report r ON r.cluster_id = c.id LEFT JOIN feed f ON f.position = r.position
		WHERE c.uid = $1 AND (r.incarnation, r.seq) < ($2, $3) ORDER BY r.incarnation DESC, r.seq DESC LIMIT $4`,
		[]any{f.UID, before.Incarnation, before.Seq, int64(limit) + 1}, func(rows *sql.Rows) error {
			var s store.StoredReport
			var kept bool
			part, err := scanStored(rows, &s, &kept)
			s.Kept = kept && part >= 0
			list.Reports = append(list.Reports, s)
			return err
		})
	if list.More = len(list.Reports) > limit; list.More {
		list.Reports = list.Reports[:limit]
	}
	return list, d.classify(err)
}

// Envelope implements store.Evidence.
func (d *DB) Envelope(ctx context.Context, uid string, at store.Order) ([]byte, error) {
	var part int
	var body []byte
	err := d.read.row(ctx, `SELECT r.part, f.body FROM cluster c JOIN report r ON r.cluster_id = c.id LEFT JOIN feed f ON f.position = r.position
		WHERE c.uid = $1 AND r.incarnation = $2 AND r.seq = $3`, uid, at.Incarnation, at.Seq).Scan(&part, &body)
	what := fmt.Sprintf("report %d of incarnation %d of cluster %q", at.Seq, at.Incarnation, uid)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, fmt.Errorf("%s: %w", what, store.ErrUnknownReport)
	case err != nil:
		return nil, d.classify(err)
	case part < 0 || body == nil:
		return nil, fmt.Errorf("%s: %w", what, store.ErrForgotten)
	}
	all, err := unpackEnvelopes(body)
	if err == nil && part >= len(all) {
		err = fmt.Errorf("%w: it is number %d of %d", store.ErrCorrupt, part+1, len(all))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return all[part], nil
}

// Place implements store.Evidence.
func (d *DB) Place(ctx context.Context, uid string, id digest.Digest) (at store.Order, err error) {
	raw, err := rawID(id)
	if err == nil {
		err = d.read.row(ctx, `SELECT r.incarnation, r.seq FROM cluster c JOIN report r ON r.cluster_id = c.id WHERE c.uid = $1 AND r.id = $2`, uid, raw).Scan(&at.Incarnation, &at.Seq)
	}
	if errors.Is(err, sql.ErrNoRows) || errors.Is(err, store.ErrInvalid) {
		return store.Order{}, fmt.Errorf("report %s of cluster %q: %w", store.Clip(string(id)), uid, store.ErrUnknownReport)
	}
	return at, d.classify(err)
}

// batch is an entry of the feed with envelopes.
type batch struct {
	position    store.Position
	cluster     int64
	uid         string
	first, last store.Order
	body        []byte
}

// batchPage bounds the batches that are in memory at once.
const batchPage = 8

// Envelopes implements store.Evidence.
func (d *DB) Envelopes(ctx context.Context, after store.Position, uid string, each func(store.StoredEnvelope) error) error {
	for {
		all, err := d.batches(ctx, after, uid)
		if err != nil {
			return d.classify(err)
		}
		for _, b := range all {
			if err := d.batchEnvelopes(ctx, b, each); err != nil {
				return err
			}
			after = b.position
		}
		if len(all) < batchPage {
			return nil
		}
	}
}

func (d *DB) batches(ctx context.Context, after store.Position, uid string) (all []batch, err error) {
	query, args := `SELECT f.position, c.id, c.uid, f.first_incarnation, f.first_seq, f.last_incarnation, f.last_seq, f.body
		FROM feed f JOIN cluster c ON c.id = f.cluster_id WHERE f.position > $1 AND f.body IS NOT NULL ORDER BY f.position LIMIT $2`, []any{int64(after), int64(batchPage)}
	if uid != "" {
		query, args = `SELECT f.position, c.id, c.uid, f.first_incarnation, f.first_seq, f.last_incarnation, f.last_seq, f.body
			FROM cluster c CROSS JOIN feed f WHERE c.uid = $3 AND f.body IS NOT NULL AND f.position IN
				(SELECT r.position FROM report r WHERE r.cluster_id = c.id AND r.position > $1) ORDER BY f.position LIMIT $2`, append(args, uid)
	}
	err = each(ctx, d.read, query, args, func(rows *sql.Rows) error {
		var b batch
		err := rows.Scan(&b.position, &b.cluster, &b.uid, &b.first.Incarnation, &b.first.Seq, &b.last.Incarnation, &b.last.Seq, &b.body)
		all = append(all, b)
		return err
	})
	return all, err
}

func (d *DB) batchEnvelopes(ctx context.Context, b batch, call func(store.StoredEnvelope) error) error {
	var reports []store.StoredEnvelope
	var parts []int
	err := each(ctx, d.read, `SELECT `+storedColumns+` FROM report r WHERE r.cluster_id = $1 AND (r.incarnation, r.seq) >= ($2, $3) AND (r.incarnation, r.seq) <= ($4, $5)
			AND r.position = $6 AND r.part >= 0 ORDER BY r.part`,
		[]any{b.cluster, b.first.Incarnation, b.first.Seq, b.last.Incarnation, b.last.Seq, int64(b.position)}, func(rows *sql.Rows) error {
			e := store.StoredEnvelope{Position: b.position, UID: b.uid}
			part, err := scanStored(rows, &e.StoredReport)
			e.Kept = true
			reports, parts = append(reports, e), append(parts, part)
			return err
		})
	if err != nil {
		return d.classify(err)
	}
	envelopes, err := unpackEnvelopes(b.body)
	if err != nil {
		return fmt.Errorf("position %d of the feed: %w", b.position, err)
	}
	for i, e := range reports {
		if parts[i] >= len(envelopes) {
			return fmt.Errorf("position %d of the feed: %w: there is no envelope %d", b.position, store.ErrCorrupt, parts[i])
		}
		e.Envelope = envelopes[parts[i]]
		if err := call(e); err != nil {
			return err
		}
	}
	return nil
}
