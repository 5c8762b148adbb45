package relational

import (
	"bytes"
	"compress/gzip"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// releaseHead is what is kept of a release beside its contents, as JSON.
type releaseHead struct {
	Release bundle.Release `json:"release"`
	Message string         `json:"message,omitempty"`
	KeyIDs  []string       `json:"keyIDs,omitempty"`
}

// releaseContents is the part of a release that is large, as compressed JSON.
type releaseContents struct {
	Assignments []bundle.Assignment `json:"assignments,omitempty"`
	Artifacts   []bundle.Artifact   `json:"artifacts,omitempty"`
}

// recordBody is what is kept of an environment record, as JSON.
type recordBody struct {
	Record bundle.EnvironmentRecord `json:"record"`
	KeyIDs []string                 `json:"keyIDs,omitempty"`
}

// AddReleases implements store.Published.
func (d *DB) AddReleases(ctx context.Context, all []store.PublishedRelease) (added int, err error) {
	type row struct{ head, contents []byte }
	rows := make([]row, len(all))
	for i, r := range all {
		var errHead, errContents error
		rows[i].head, errHead = json.Marshal(releaseHead{r.Release, r.Message, r.KeyIDs})
		rows[i].contents, errContents = pack(releaseContents{r.Assignments, r.Artifacts})
		if err := errors.Join(errHead, errContents); err != nil {
			return 0, fmt.Errorf("release %s: %w", r.Digest, err)
		}
	}
	now := store.Millis(d.now())
	err = d.Do(ctx, func(ctx context.Context, db *Conn) error {
		added = 0
		for i, r := range all {
			n, err := db.Exec(ctx, `INSERT INTO published_release (digest, platform, environment, type, epoch, sequence, issued_at, seen_at, head, contents)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (digest) DO NOTHING`,
				string(r.Digest), r.Platform, r.Environment, r.ClusterType, r.Epoch, r.Sequence, store.Millis(r.IssuedAt), store.Millis(r.SeenAt), rows[i].head, rows[i].contents)
			if err != nil {
				return fmt.Errorf("store release %s: %w", r.Digest, err)
			}
			if n == 0 {
				continue
			}
			added++
			if err := announce(ctx, db, now, store.FeedEntry{Kind: store.FeedPublished, Platform: r.Platform, Environment: r.Environment, Digest: r.Digest}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return added, nil
}

// AddRecord implements store.Published.
func (d *DB) AddRecord(ctx context.Context, r store.PublishedRecord) (added bool, err error) {
	body, err := json.Marshal(recordBody{r.EnvironmentRecord, r.KeyIDs})
	if err != nil {
		return false, fmt.Errorf("record %s: %w", r.Digest, err)
	}
	now := store.Millis(d.now())
	err = d.Do(ctx, func(ctx context.Context, db *Conn) error {
		n, err := db.Exec(ctx, `INSERT INTO published_record (digest, platform, environment, epoch, sequence, issued_at, seen_at, body)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (digest) DO NOTHING`,
			string(r.Digest), r.Platform, r.Environment, r.Epoch, r.Sequence, store.Millis(r.IssuedAt), store.Millis(r.SeenAt), body)
		if err != nil {
			return fmt.Errorf("store record %s: %w", r.Digest, err)
		}
		if added = n > 0; !added {
			return nil
		}
		return announce(ctx, db, now, store.FeedEntry{Kind: store.FeedPublished, Platform: r.Platform, Environment: r.Environment, Digest: r.Digest})
	})
	return added && err == nil, err
}

// Release implements store.Published.
func (d *DB) Release(ctx context.Context, id digest.Digest) (store.PublishedRelease, error) {
	var seen int64
	var head, contents []byte
	err := d.read.row(ctx, `SELECT seen_at, head, contents FROM published_release WHERE digest = $1`, string(id)).Scan(&seen, &head, &contents)
	if errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf("%s: %w", id, store.ErrUnknownRelease)
	}
	if err != nil {
		return store.PublishedRelease{}, d.classify(err)
	}
	r, err := publishedRelease(id, seen, head)
	if err != nil {
		return r, err
	}
	var c releaseContents
	if err := unpack(contents, &c); err != nil {
		return r, fmt.Errorf("contents of release %s: %w: %v", id, store.ErrCorrupt, err)
	}
	r.Assignments, r.Artifacts = c.Assignments, c.Artifacts
	return r, nil
}

// Releases implements store.Published.
func (d *DB) Releases(ctx context.Context, use func(store.PublishedRelease) error) error {
	err := each(ctx, d.read, `SELECT digest, seen_at, head FROM published_release ORDER BY platform, environment, type, epoch, sequence, issued_at, digest`, nil, func(rows *sql.Rows) error {
		var id string
		var seen int64
		var head []byte
		if err := rows.Scan(&id, &seen, &head); err != nil {
			return err
		}
		r, err := publishedRelease(digest.Digest(id), seen, head)
		if err != nil {
			return err
		}
		return use(r)
	})
	return d.classify(err)
}

// Records implements store.Published.
func (d *DB) Records(ctx context.Context, use func(store.PublishedRecord) error) error {
	err := each(ctx, d.read, `SELECT digest, seen_at, body FROM published_record ORDER BY platform, environment, epoch, sequence, issued_at, digest`, nil, func(rows *sql.Rows) error {
		var id string
		var seen int64
		var data []byte
		if err := rows.Scan(&id, &seen, &data); err != nil {
			return err
		}
		var body recordBody
		if err := json.Unmarshal(data, &body); err != nil {
			return fmt.Errorf("record %s: %w: %v", id, store.ErrCorrupt, err)
		}
		return use(store.PublishedRecord{Digest: digest.Digest(id), EnvironmentRecord: body.Record, KeyIDs: body.KeyIDs, SeenAt: store.Moment(seen)})
	})
	return d.classify(err)
}

// publishedRelease returns a release without its contents.
func publishedRelease(id digest.Digest, seen int64, head []byte) (store.PublishedRelease, error) {
	var h releaseHead
	if err := json.Unmarshal(head, &h); err != nil {
		return store.PublishedRelease{}, fmt.Errorf("release %s: %w: %v", id, store.ErrCorrupt, err)
	}
	return store.PublishedRelease{Digest: id, Release: h.Release, Message: h.Message, KeyIDs: h.KeyIDs, SeenAt: store.Moment(seen)}, nil
}

// pack returns v as compressed JSON.
func pack(v any) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	err := errors.Join(json.NewEncoder(z).Encode(v), z.Close())
	return b.Bytes(), err
}

func unpack(data []byte, v any) error {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	return json.NewDecoder(z).Decode(v)
}
