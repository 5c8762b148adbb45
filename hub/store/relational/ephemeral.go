package relational

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/hub/store"
)

// beginEphemeral notes that a token has registered a cluster, which goes by itself once it is silent for that long.
func beginEphemeral(ctx context.Context, db *Conn, uid string, t *store.Token, now time.Time) error {
	_, err := db.Exec(ctx, `INSERT INTO ephemeral (cluster_id, token_id, lasts, since, silenced) SELECT id, $1, $2, $3, 0 FROM cluster WHERE uid = $4
		ON CONFLICT (cluster_id) DO UPDATE SET token_id = excluded.token_id, lasts = excluded.lasts, since = excluded.since, silenced = 0`,
		t.ID, t.EphemeralSeconds*1000, store.Millis(now), uid)
	return err
}

// endEphemeral notes that a person has decided about a cluster.
func endEphemeral(ctx context.Context, db *Conn, uid string) error {
	_, err := db.Exec(ctx, `DELETE FROM ephemeral WHERE cluster_id = (SELECT id FROM cluster WHERE uid = $1)`, uid)
	return err
}

// returns reports whether a token may bring a cluster back that was retired for its silence. A key of another cluster that
// was retired does not come back with it.
func returns(ctx context.Context, db querier, uid, kid, token string) (yes bool, err error) {
	err = db.row(ctx, `SELECT EXISTS (SELECT 1 FROM ephemeral e JOIN cluster c ON c.id = e.cluster_id
			WHERE c.uid = $1 AND c.retired_at IS NOT NULL AND e.token_id = $2 AND e.silenced = 1)
		AND NOT EXISTS (SELECT 1 FROM cluster_key k JOIN cluster c ON c.id = k.cluster_id WHERE k.kid = $3 AND c.uid <> $1 AND c.retired_at IS NOT NULL)`,
		uid, token, kid).Scan(&yes)
	return yes, err
}

// maxSilent bounds the clusters that one transaction retires.
const maxSilent = 100

// RetireSilent implements store.Store.
func (d *DB) RetireSilent(ctx context.Context) (all []store.Registration, err error) {
	for {
		due, err := d.silent(ctx, d.read) // most often there are none, and nothing is written
		if err != nil || len(due) == 0 {
			return all, d.classify(err)
		}
		var retired []store.Registration
		if err := d.Do(ctx, func(ctx context.Context, db *Conn) (err error) {
			retired, err = d.retireSilent(ctx, db)
			return err
		}); err != nil {
			return all, err
		}
		all = append(all, retired...)
		if len(due) < maxSilent {
			return all, nil
		}
	}
}

// silentCluster is a cluster that has been silent for too long.
type silentCluster struct {
	uid   string
	lasts int64
}

func (d *DB) silent(ctx context.Context, db querier) (all []silentCluster, err error) {
	err = each(ctx, db, `SELECT c.uid, e.lasts FROM ephemeral e JOIN cluster c ON c.id = e.cluster_id
		WHERE c.removed_at IS NULL AND CASE WHEN coalesce(c.last_seen, 0) > e.since THEN c.last_seen ELSE e.since END + e.lasts < $1 ORDER BY c.uid LIMIT $2`,
		[]any{store.Millis(d.now()), maxSilent}, func(rows *sql.Rows) error {
			var one silentCluster
			if err := rows.Scan(&one.uid, &one.lasts); err != nil {
				return err
			}
			all = append(all, one)
			return nil
		})
	return all, err
}

func (d *DB) retireSilent(ctx context.Context, db *Conn) (retired []store.Registration, err error) {
	due, err := d.silent(ctx, db)
	if err != nil {
		return nil, err
	}
	now := d.now()
	for _, one := range due {
		r, err := registrations(ctx, db, clusterByUID, one.uid)
		if err != nil || len(r) == 0 {
			return nil, err
		}
		lasts := duration.Value(time.Duration(one.lasts) * time.Millisecond)
		reason := "silent for more than " + lasts.String() + ", and registered with an ephemeral token"
		if err := endRegistration(ctx, db, one.uid, now, &reason); err != nil {
			return nil, err
		}
		if _, err := db.Exec(ctx, `UPDATE ephemeral SET silenced = 1 WHERE cluster_id = (SELECT id FROM cluster WHERE uid = $1)`, one.uid); err != nil {
			return nil, err
		}
		entry := store.AuditEntry{
			At: now, Actor: "hub", Action: "retire cluster", Object: fmt.Sprintf("%s (%s)", r[0].Name, r[0].UID), Reason: reason, Environment: r[0].Environment,
		}
		if err := writeAudit(ctx, db, entry); err != nil {
			return nil, err
		}
		retired = append(retired, r[0])
	}
	return retired, nil
}
