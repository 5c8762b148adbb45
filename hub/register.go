package hub

import (
	"cmp"
	"context"
	"crypto/ed25519"
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
)

// AddCluster registers a cluster and its key, and says whether that changed anything: registering the
// same again does not. Of a registered one, a platform or an interval that c leaves open stays as it is,
// and a platform that was open becomes c's. The error wraps ErrInvalid, or ErrExists where uid, name or
// key belong to another registration, or other values are registered; ReplaceCluster changes them.
func (h *Hub) AddCluster(ctx context.Context, c Cluster) (changed bool, err error) {
	return h.register(ctx, c, false)
}

// ReplaceCluster registers a cluster as AddCluster does, in the place of what is registered under its
// uid: former keys are revoked, history stays.
func (h *Hub) ReplaceCluster(ctx context.Context, c Cluster) (changed bool, err error) {
	return h.register(ctx, c, true)
}

func (h *Hub) register(ctx context.Context, c Cluster, replace bool) (changed bool, err error) {
	if err := c.check(); err != nil {
		return false, err
	}
	kid, err := bundle.KeyID(c.Key)
	if err != nil {
		return false, err
	}
	now := millis(h.now())
	err = h.writer.do(ctx, func(ctx context.Context, db *conn) error {
		if err := checkFree(ctx, db, c, kid); err != nil {
			return err
		}
		have, err := registrations(ctx, db, clusterByUID, c.UID)
		if err != nil {
			return err
		}
		if len(have) > 0 {
			r := have[0]
			// A Cluster object of a roster names no platform, and the request of the same agent does.
			c.Platform, c.ExpectedInterval = cmp.Or(c.Platform, r.Platform), cmp.Or(c.ExpectedInterval, r.ExpectedInterval)
			other := r.differs(c, kid)
			switch {
			case len(other) == 0 && r.Platform == c.Platform:
				return nil
			case len(other) > 0 && !replace:
				return fmt.Errorf("cluster uid %s: %w as %s, with another %s", c.UID, ErrExists, r.Name, strings.Join(other, ", "))
			}
		}
		c.ExpectedInterval = cmp.Or(c.ExpectedInterval, DefaultExpectedInterval)
		changed = true
		return writeRegistration(ctx, db, c, kid, now)
	})
	return changed && err == nil, err
}

// RemoveCluster ends the registration of the cluster of this name or uid and returns it. Its keys are
// revoked and it is no longer shown; its history stays, and the hub speaks of it as of one that it has never
// known. The error wraps ErrUnknownCluster.
func (h *Hub) RemoveCluster(ctx context.Context, nameOrUID string) (Registration, error) {
	var r Registration
	now := millis(h.now())
	err := h.writer.do(ctx, func(ctx context.Context, db *conn) (err error) {
		if r, err = findRegistration(ctx, db, nameOrUID); err != nil {
			return err
		}
		return endRegistration(ctx, db, r.UID, now)
	})
	if err != nil {
		return Registration{}, err
	}
	return r, nil
}

// Registrations returns all registered clusters by name.
func (h *Hub) Registrations(ctx context.Context) ([]Registration, error) {
	rs, err := registrations(ctx, h.read, allClusters)
	return rs, classify(err)
}

// Registration returns the registered cluster of this name or uid; a name is preferred. The error wraps
// ErrUnknownCluster.
func (h *Hub) Registration(ctx context.Context, nameOrUID string) (Registration, error) {
	r, err := findRegistration(ctx, h.read, nameOrUID)
	return r, classify(err)
}

// checkFree returns an error wrapping ErrExists if name or key belong to a cluster of another uid.
func checkFree(ctx context.Context, db querier, c Cluster, kid string) error {
	var other string
	err := db.QueryRowContext(ctx, `SELECT uid FROM cluster WHERE name = ? AND uid <> ? AND removed_at IS NULL`, c.Name, c.UID).Scan(&other)
	if err == nil {
		return fmt.Errorf("cluster name %s: %w, for uid %s", c.Name, ErrExists, other)
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	err = db.QueryRowContext(ctx, `SELECT c.name FROM cluster_key k JOIN cluster c ON c.id = k.cluster_id
		WHERE k.kid = ? AND k.revoked_at IS NULL AND c.uid <> ?`, kid, c.UID).Scan(&other)
	if err == nil {
		return fmt.Errorf("key %s: %w, for cluster %s: each agent needs a key of its own", kid, ErrExists, other)
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	return nil
}

// writeRegistration writes what is registered, and leaves what was reported as it is.
func writeRegistration(ctx context.Context, db *conn, c Cluster, kid string, now int64) error {
	labels, err := json.Marshal(c.Labels)
	if err != nil {
		return err
	}
	der, err := publicDER(c.Key)
	if err != nil {
		return err
	}
	var id int64
	err = db.QueryRowContext(ctx, `INSERT INTO cluster (uid, name, platform, type, environment, ring, labels, expected, added_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (uid) DO UPDATE SET name = excluded.name, platform = excluded.platform, type = excluded.type,
			environment = excluded.environment, ring = excluded.ring, labels = excluded.labels, expected = excluded.expected,
			removed_at = NULL, retired_at = NULL, retired_reason = ''
		RETURNING id`,
		c.UID, c.Name, c.Platform, c.Type, c.Environment, c.Ring, string(labels), c.ExpectedInterval.Milliseconds(), now).Scan(&id)
	if err != nil {
		return err
	}
	if _, err := db.exec(ctx, `UPDATE cluster_key SET revoked_at = coalesce(revoked_at, ?), until_incarnation = NULL, until_seq = NULL WHERE cluster_id = ? AND kid <> ?`, now, id, kid); err != nil {
		return err
	}
	if _, err = db.exec(ctx, `INSERT INTO cluster_key (cluster_id, kid, public_key) VALUES (?, ?, ?)
		ON CONFLICT (cluster_id, kid) DO UPDATE SET revoked_at = NULL, until_incarnation = NULL, until_seq = NULL`, id, kid, der); err != nil {
		return err
	}
	return forgetShared(ctx, db, id, order{})
}

// Which registrations to read. The one of a name comes before that of a uid spelt alike.
const (
	allClusters     = `c.removed_at IS NULL ORDER BY c.name`
	allRetired      = `c.retired_at IS NOT NULL ORDER BY c.name, c.id`
	clusterByUID    = `c.removed_at IS NULL AND c.uid = ?1`
	clusterByEither = `(c.removed_at IS NULL OR c.retired_at IS NOT NULL) AND (c.name = ?1 OR c.uid = ?1) ORDER BY c.removed_at IS NULL DESC, c.name = ?1 DESC, c.id DESC LIMIT 1`
)

func registrations(ctx context.Context, db querier, where string, args ...any) ([]Registration, error) {
	rows, err := db.QueryContext(ctx, `SELECT c.uid, c.name, c.platform, c.type, c.environment, c.ring, c.labels, c.expected, c.added_at, c.conflicts,
			c.retired_at, c.retired_reason, c.shared_since, c.shared_how,
			coalesce((SELECT group_concat(k.kid, ' ') FROM cluster_key k WHERE k.cluster_id = c.id AND k.revoked_at IS NULL), '')
		FROM cluster c WHERE `+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := []Registration{}
	for rows.Next() {
		var r Registration
		var labels, kids string
		var expected, added int64
		var retired, shared sql.NullInt64
		if err := rows.Scan(&r.UID, &r.Name, &r.Platform, &r.Type, &r.Environment, &r.Ring, &labels, &expected, &added, &r.Conflicts,
			&retired, &r.RetiredReason, &shared, &r.SharedHow, &kids); err != nil {
			return nil, err
		}
		if err := json.Unmarshal([]byte(labels), &r.Labels); err != nil {
			return nil, fmt.Errorf("labels of cluster %s: %w: %v", r.Name, ErrCorrupt, err)
		}
		r.ExpectedInterval = time.Duration(expected) * time.Millisecond
		r.ExpectedSeconds, r.AddedAt, r.KeyIDs = expected/1000, moment(added), strings.Fields(kids)
		r.RetiredAt, r.SharedSince = momentOf(retired), momentOf(shared)
		slices.Sort(r.KeyIDs)
		all = append(all, r)
	}
	return all, rows.Err()
}

func findRegistration(ctx context.Context, db querier, nameOrUID string) (Registration, error) {
	found, err := registrations(ctx, db, clusterByEither, nameOrUID)
	if err != nil {
		return Registration{}, err
	}
	if len(found) == 0 {
		return Registration{}, fmt.Errorf("cluster %q: %w", nameOrUID, ErrUnknownCluster)
	}
	return found[0], nil
}

func (r Registration) hasKey(kid string) bool { return slices.Contains(r.KeyIDs, kid) }

func publicDER(key ed25519.PublicKey) ([]byte, error) { return x509.MarshalPKIXPublicKey(key) }

// differs names what registering c with the key kid would change, other than a platform that was open.
func (r Registration) differs(c Cluster, kid string) (names []string) {
	for _, v := range []struct {
		name string
		same bool
	}{
		{"name", r.Name == c.Name},
		{"platform", r.Platform == c.Platform || r.Platform == ""},
		{"cluster type", r.Type == c.Type},
		{"environment", r.Environment == c.Environment},
		{"ring", r.Ring == c.Ring},
		{"expected interval", r.ExpectedInterval == c.ExpectedInterval},
		{"set of labels", maps.Equal(r.Labels, c.Labels)},
		{"key", slices.Equal(r.KeyIDs, []string{kid})},
	} {
		if !v.same {
			names = append(names, v.name)
		}
	}
	return names
}
