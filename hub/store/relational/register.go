package relational

import (
	"cmp"
	"context"
	"crypto"
	"crypto/x509"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// AddCluster implements store.Store.
func (d *DB) AddCluster(ctx context.Context, c store.Cluster) (changed bool, err error) {
	return d.register(ctx, c, false)
}

// ReplaceCluster implements store.Store.
func (d *DB) ReplaceCluster(ctx context.Context, c store.Cluster) (changed bool, err error) {
	return d.register(ctx, c, true)
}

func (d *DB) register(ctx context.Context, c store.Cluster, replace bool) (changed bool, err error) {
	if err := c.Check(); err != nil {
		return false, err
	}
	kid := ""
	if c.Reporting != store.NotReporting {
		if kid, err = bundle.KeyID(c.Key); err != nil {
			return false, err
		}
	}
	now := d.now()
	err = d.Do(ctx, func(ctx context.Context, db *Conn) error {
		if err := checkFree(ctx, db, c, kid); err != nil {
			return err
		}
		have, err := registrations(ctx, db, clusterByUID, c.UID)
		if err != nil {
			return err
		}
		if len(have) > 0 {
			if c, changed, err = have[0].Merge(c, kid, replace); err != nil || !changed {
				return err
			}
		}
		changed = true
		if err := writeRegistration(ctx, db, c, kid, now); err != nil {
			return err
		}
		return endEphemeral(ctx, db, c.UID)
	})
	return changed && err == nil, err
}

// RemoveCluster implements store.Store.
func (d *DB) RemoveCluster(ctx context.Context, nameOrUID string) (store.Registration, error) {
	var r store.Registration
	now := d.now()
	err := d.Do(ctx, func(ctx context.Context, db *Conn) (err error) {
		if r, err = findRegistration(ctx, db, nameOrUID); err != nil {
			return err
		}
		if err := endRegistration(ctx, db, r.UID, now, nil); err != nil {
			return err
		}
		return endEphemeral(ctx, db, r.UID)
	})
	if err != nil {
		return store.Registration{}, err
	}
	return r, nil
}

// RetireCluster implements store.Store.
func (d *DB) RetireCluster(ctx context.Context, nameOrUID, reason string) (store.Registration, error) {
	reason = store.Plain(store.Clip(reason))
	var r store.Registration
	now := d.now()
	err := d.Do(ctx, func(ctx context.Context, db *Conn) (err error) {
		if r, err = findRegistration(ctx, db, nameOrUID); err != nil || r.RetiredAt != nil {
			return err
		}
		if err := endRegistration(ctx, db, r.UID, now, &reason); err != nil {
			return err
		}
		return endEphemeral(ctx, db, r.UID)
	})
	return r, err
}

// endRegistration revokes all keys of a cluster, which is not listed any more. It is retired if there is a reason.
func endRegistration(ctx context.Context, db *Conn, uid string, now time.Time, reason *string) error {
	var id int64
	if err := db.row(ctx, `SELECT id FROM cluster WHERE uid = $1`, uid).Scan(&id); err != nil {
		return err
	}
	at := store.Millis(now)
	_, err := db.Exec(ctx, `UPDATE cluster_key SET revoked_at = coalesce(revoked_at, $1), until_incarnation = NULL, until_seq = NULL WHERE cluster_id = $2`, at, id)
	if err != nil {
		return err
	}
	var retired sql.NullInt64
	var why string
	if reason != nil {
		retired, why = sql.NullInt64{Int64: at, Valid: true}, *reason
	}
	if _, err := db.Exec(ctx, `UPDATE cluster SET removed_at = $1, retired_at = $2, retired_reason = $3 WHERE id = $4`, at, retired, why, id); err != nil {
		return err
	}
	if err := writeIdentity(ctx, db, id, nil, at); err != nil {
		return err
	}
	return touch(ctx, db, now, id)
}

// Registrations implements store.Store.
func (d *DB) Registrations(ctx context.Context) ([]store.Registration, error) {
	all, err := registrations(ctx, d.read, allClusters)
	return all, d.classify(err)
}

// RetiredClusters implements store.Store.
func (d *DB) RetiredClusters(ctx context.Context) ([]store.Registration, error) {
	all, err := registrations(ctx, d.read, allRetired)
	return all, d.classify(err)
}

// Registration implements store.Store.
func (d *DB) Registration(ctx context.Context, nameOrUID string) (store.Registration, error) {
	r, err := findRegistration(ctx, d.read, nameOrUID)
	return r, d.classify(err)
}

// Registered implements store.Store.
func (d *DB) Registered(ctx context.Context, uid string) (store.Registration, error) {
	found, err := registrations(ctx, d.read, clusterByUID, uid)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("cluster %q: %w", uid, store.ErrUnknownCluster)
	}
	if err != nil {
		return store.Registration{}, d.classify(err)
	}
	return found[0], nil
}

// checkFree returns an error wrapping ErrExists if name or key belong to a cluster of another uid.
func checkFree(ctx context.Context, db querier, c store.Cluster, kid string) error {
	var other string
	err := db.row(ctx, `SELECT uid FROM cluster WHERE name = $1 AND uid <> $2 AND removed_at IS NULL`, c.Name, c.UID).Scan(&other)
	if err == nil {
		return fmt.Errorf("cluster name %s: %w, for uid %s", c.Name, store.ErrExists, other)
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	err = db.row(ctx, `SELECT c.name FROM cluster_key k JOIN cluster c ON c.id = k.cluster_id
		WHERE k.kid = $1 AND k.revoked_at IS NULL AND c.uid <> $2`, kid, c.UID).Scan(&other)
	if err == nil {
		return fmt.Errorf("key %s: %w, for cluster %s: each agent needs a key of its own", kid, store.ErrExists, other)
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	return nil
}

// writeRegistration writes a registration, with the key of id kid, or without one if that is empty. It changes nothing that was
// reported.
func writeRegistration(ctx context.Context, db *Conn, c store.Cluster, kid string, now time.Time) error {
	c.ExpectedInterval = cmp.Or(c.ExpectedInterval, store.DefaultExpectedInterval)
	labels, err := json.Marshal(c.Labels)
	if err != nil {
		return err
	}
	var id int64
	err = db.row(ctx, `INSERT INTO cluster (uid, name, platform, type, environment, ring, labels, expected, added_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
		ON CONFLICT (uid) DO UPDATE SET name = excluded.name, platform = excluded.platform, type = excluded.type,
			environment = excluded.environment, ring = excluded.ring, labels = excluded.labels, expected = excluded.expected,
			added_at = CASE WHEN cluster.removed_at IS NULL THEN cluster.added_at ELSE excluded.added_at END,
			removed_at = NULL, retired_at = NULL, retired_reason = ''
		RETURNING id`,
		c.UID, c.Name, c.Platform, c.Type, c.Environment, c.Ring, string(labels), c.ExpectedInterval.Milliseconds(), store.Millis(now)).Scan(&id)
	if err != nil {
		return err
	}
	if _, err := db.Exec(ctx, `UPDATE cluster_key SET revoked_at = coalesce(revoked_at, $1), until_incarnation = NULL, until_seq = NULL WHERE cluster_id = $2 AND kid <> $3`, store.Millis(now), id, kid); err != nil {
		return err
	}
	if kid != "" {
		if err := writeKey(ctx, db, id, kid, c.Key); err != nil {
			return err
		}
	}
	if err := writeIdentity(ctx, db, id, &c, store.Millis(now)); err != nil {
		return err
	}
	if err := forgetShared(ctx, db, id, store.Order{}); err != nil {
		return err
	}
	return touch(ctx, db, now, id)
}

// writeKey puts a key in force.
func writeKey(ctx context.Context, db *Conn, id int64, kid string, key crypto.PublicKey) error {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return err
	}
	_, err = db.Exec(ctx, `INSERT INTO cluster_key (cluster_id, kid, public_key) VALUES ($1, $2, $3)
		ON CONFLICT (cluster_id, kid) DO UPDATE SET revoked_at = NULL, until_incarnation = NULL, until_seq = NULL`, id, kid, der)
	return err
}

// writeIdentity adds to the history that from now on a cluster is registered as c, or no more if c is nil.
func writeIdentity(ctx context.Context, db *Conn, id int64, c *store.Cluster, now int64) error {
	// A clock that was set back does not make anything end before its beginning.
	for _, end := range []string{
		`UPDATE identity SET until = CASE WHEN since > $1 THEN since ELSE $1 END WHERE cluster_id = $2 AND until IS NULL`,
		`UPDATE label SET until = CASE WHEN since > $1 THEN since ELSE $1 END WHERE cluster_id = $2 AND until IS NULL`,
	} {
		if _, err := db.Exec(ctx, end, now, id); err != nil {
			return err
		}
	}
	if c == nil {
		return nil
	}
	var last int64
	if err := db.row(ctx, `SELECT coalesce(max(until), 0) FROM identity WHERE cluster_id = $1`, id).Scan(&last); err != nil {
		return err
	}
	since := max(now, last)
	_, err := db.Exec(ctx, `INSERT INTO identity (cluster_id, since, until, name, platform, type, environment, ring, expected) VALUES ($1, $2, NULL, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (cluster_id, since) DO UPDATE SET until = NULL, name = excluded.name, platform = excluded.platform, type = excluded.type,
			environment = excluded.environment, ring = excluded.ring, expected = excluded.expected`,
		id, since, c.Name, c.Platform, c.Type, c.Environment, c.Ring, c.ExpectedInterval.Milliseconds())
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(c.Labels)) {
		_, err := db.Exec(ctx, `INSERT INTO label (cluster_id, key, since, until, value) VALUES ($1, $2, $3, NULL, $4)
			ON CONFLICT (cluster_id, key, since) DO UPDATE SET until = NULL, value = excluded.value`, id, key, since, c.Labels[key])
		if err != nil {
			return err
		}
	}
	return nil
}

// The conditions by which registrations are read. A name is preferred to a uid.
const (
	allClusters     = `c.removed_at IS NULL ORDER BY c.name`
	allRetired      = `c.retired_at IS NOT NULL ORDER BY c.name, c.id`
	clusterByID     = `c.id = $1`
	clusterByUID    = `c.removed_at IS NULL AND c.uid = $1`
	clusterByEither = `(c.removed_at IS NULL OR c.retired_at IS NOT NULL) AND (c.name = $1 OR c.uid = $1) ORDER BY (c.removed_at IS NULL) DESC, (c.name = $1) DESC, c.id DESC LIMIT 1`
)

func registrations(ctx context.Context, db querier, where string, args ...any) ([]store.Registration, error) {
	all := []store.Registration{}
	err := each(ctx, db, `SELECT `+registrationColumns+` FROM cluster c WHERE `+where, args, func(rows *sql.Rows) error {
		var r store.Registration
		if err := scanRegistration(rows, &r); err != nil {
			return err
		}
		all = append(all, r)
		return nil
	})
	return all, err
}

func findRegistration(ctx context.Context, db querier, nameOrUID string) (store.Registration, error) {
	found, err := registrations(ctx, db, clusterByEither, nameOrUID)
	if err != nil {
		return store.Registration{}, err
	}
	if len(found) == 0 {
		return store.Registration{}, fmt.Errorf("cluster %q: %w", nameOrUID, store.ErrUnknownCluster)
	}
	return found[0], nil
}

// registrationColumns are those of scanRegistration, of cluster c.
const registrationColumns = `c.uid, c.name, c.platform, c.type, c.environment, c.ring, c.labels, c.expected, c.added_at, c.conflicts, c.incarnation, c.seq,
	c.retired_at, c.retired_reason, c.shared_since, c.shared_how,
	coalesce((SELECT string_agg(k.kid, ' ') FROM cluster_key k WHERE k.cluster_id = c.id AND k.revoked_at IS NULL), '')`

// scanRegistration scans a registration after others.
func scanRegistration(rows *sql.Rows, r *store.Registration, others ...any) error {
	var labels, kids string
	var expected, added int64
	var retired, shared sql.NullInt64
	err := rows.Scan(append(others, &r.UID, &r.Name, &r.Platform, &r.Type, &r.Environment, &r.Ring, &labels, &expected, &added, &r.Conflicts, &r.Newest.Incarnation, &r.Newest.Seq,
		&retired, &r.RetiredReason, &shared, &r.SharedHow, &kids)...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(labels), &r.Labels); err != nil {
		return fmt.Errorf("labels of cluster %s: %w: %v", r.Name, store.ErrCorrupt, err)
	}
	r.ExpectedInterval = time.Duration(expected) * time.Millisecond
	r.ExpectedSeconds, r.AddedAt, r.KeyIDs = expected/1000, store.Moment(added), strings.Fields(kids)
	r.RetiredAt, r.SharedSince = momentOf(retired), momentOf(shared)
	if len(r.KeyIDs) == 0 && r.RetiredAt == nil {
		r.Reporting = store.NotReporting
	}
	slices.Sort(r.KeyIDs)
	return nil
}

// momentOf is store.Moment for a column that may be NULL.
func momentOf(ms sql.NullInt64) *time.Time {
	if !ms.Valid {
		return nil
	}
	t := store.Moment(ms.Int64)
	return &t
}
