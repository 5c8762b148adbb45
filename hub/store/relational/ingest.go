package relational

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/timeline"
)

// Ingest implements store.Store.
func (d *DB) Ingest(ctx context.Context, b store.Batch) (store.Outcome, error) {
	// Oldest first, so that no report of a batch is late because of another.
	inOrder := make([]int, len(b.Reports))
	for i := range inOrder {
		inOrder[i] = i
	}
	slices.SortStableFunc(inOrder, func(i, j int) int {
		return store.OrderOf(b.Reports[i].Body.Agent).Compare(store.OrderOf(b.Reports[j].Body.Agent))
	})
	now := d.now()
	var done store.Outcome
	err := d.Do(ctx, func(ctx context.Context, db *Conn) error {
		in := &intake{db: db, via: b.Via, now: now}
		var err error
		if in.cluster, err = loadCluster(ctx, db, b.UID); err != nil {
			return err
		}
		for _, i := range inOrder {
			if err := in.add(ctx, i, b.Reports[i]); err != nil {
				return fmt.Errorf("store report %s: %w", b.Reports[i].ID, err)
			}
		}
		if err := in.cluster.save(ctx, db); err != nil {
			return fmt.Errorf("store cluster %s: %w", b.UID, err)
		}
		done = in.done
		done.SharedHow = in.cluster.sharedHow
		return nil
	})
	if err != nil {
		return store.Outcome{}, err
	}
	return done, nil
}

// intake adds reports of one cluster within one transaction.
type intake struct {
	db      *Conn
	cluster *clusterRow
	via     store.Via
	now     time.Time
	done    store.Outcome
}

// add stores one report: its number, the changes that it makes in the history, and, if it is the newest, the present.
func (in *intake) add(ctx context.Context, index int, r store.Report) error {
	fresh, err := in.record(ctx, index, r)
	if err != nil || !fresh {
		return err
	}
	in.cluster.See(r.Body, in.via, in.now)
	at := entry{Order: store.OrderOf(r.Body.Agent), occurred: store.Millis(r.Body.OccurredAt), received: store.Millis(in.now), report: string(r.ID)}
	if at.Compare(in.cluster.Order) < 0 {
		return in.addLate(ctx, at, timeline.Values(r.Body))
	}
	if err := in.cluster.loadDeployments(ctx, in.db); err != nil {
		return err
	}
	for _, c := range timeline.Diff(in.cluster.Values(), timeline.Values(r.Body)) {
		if err := writeTransition(ctx, in.db, in.cluster.id, c.Assignment, at, c.To); err != nil {
			return err
		}
	}
	changed, err := in.cluster.Advance(r.Body, in.now)
	if err != nil {
		return err
	}
	for _, name := range changed {
		if err := writeDeployment(ctx, in.db, in.cluster.id, name, in.cluster.Deployments[name]); err != nil {
			return err
		}
	}
	return nil
}

// addLate adds the history of a report that is older than the newest, and leaves the present alone. Package timeline
// explains why the next report gets rows too.
func (in *intake) addLate(ctx context.Context, at entry, after map[string]timeline.Value) error {
	next, err := reportAfter(ctx, in.db, in.cluster.id, at.Order)
	if err != nil {
		return err
	}
	before, err := valuesBefore(ctx, in.db, in.cluster.id, at.Order)
	if err != nil {
		return err
	}
	for _, c := range timeline.Diff(before, after) {
		if err := writeTransition(ctx, in.db, in.cluster.id, c.Assignment, at, c.To); err != nil {
			return err
		}
		if err := writeTransition(ctx, in.db, in.cluster.id, c.Assignment, next, c.From); err != nil {
			return err
		}
		if err := in.cluster.remember(ctx, in.db, c.Assignment); err != nil {
			return err
		}
	}
	return nil
}

// record writes the report's number and id, and reports whether it is new. Repeats and conflicts are not.
func (in *intake) record(ctx context.Context, index int, r store.Report) (fresh bool, err error) {
	owed := in.via == store.ViaMedia
	agent := r.Body.Agent
	n, err := in.db.Exec(ctx, `INSERT INTO report (id, cluster_id, incarnation, seq, kind, occurred_at, received_at, via, kid, ack_owed)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING`,
		string(r.ID), in.cluster.id, agent.Incarnation, agent.Seq, string(r.Body.Kind),
		store.Millis(r.Body.OccurredAt), store.Millis(in.now), string(in.via), r.KeyID, bit(owed))
	if err != nil {
		return false, err
	}
	if n == 1 {
		in.done.Accepted++
		in.done.Stored = append(in.done.Stored, r.ID)
		return true, in.noteInstance(ctx, agent)
	}
	var known bool
	if err := in.db.row(ctx, `SELECT EXISTS (SELECT 1 FROM report WHERE id = $1)`, string(r.ID)).Scan(&known); err != nil {
		return false, err
	}
	if !known {
		in.done.Conflicts = append(in.done.Conflicts, index)
		return false, in.conflict(ctx, agent)
	}
	in.done.Duplicates++
	in.done.Stored = append(in.done.Stored, r.ID)
	if owed { // it came again, so the former acknowledgement never arrived
		_, err = in.db.Exec(ctx, `UPDATE report SET ack_owed = 1 WHERE id = $1`, string(r.ID))
	}
	return false, err
}

// Has implements store.Store.
func (d *DB) Has(ctx context.Context, uid string, at store.Order) (known bool, err error) {
	err = d.read.row(ctx, `SELECT EXISTS (SELECT 1 FROM report r JOIN cluster c ON c.id = r.cluster_id
		WHERE c.uid = $1 AND r.incarnation = $2 AND r.seq = $3)`, uid, at.Incarnation, at.Seq).Scan(&known)
	return known, d.classify(err)
}

// From implements store.Store.
func (d *DB) From(ctx context.Context, uid string, at store.Order, limit int) (ids []digest.Digest, err error) {
	rows, err := d.read.query(ctx, `SELECT r.id FROM report r JOIN cluster c ON c.id = r.cluster_id
		WHERE c.uid = $1 AND (r.incarnation, r.seq) >= ($2, $3) ORDER BY r.incarnation, r.seq LIMIT $4`,
		uid, at.Incarnation, at.Seq, limit)
	if err != nil {
		return nil, d.classify(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, digest.Digest(id))
	}
	return ids, d.classify(rows.Err())
}

// Owed implements store.Store.
func (d *DB) Owed(ctx context.Context) (all []store.Owed, err error) {
	rows, err := d.read.query(ctx, `SELECT c.uid, r.id FROM report r JOIN cluster c ON c.id = r.cluster_id
		WHERE r.ack_owed = 1 ORDER BY c.name, c.id, r.incarnation, r.seq`)
	if err != nil {
		return nil, d.classify(err)
	}
	defer rows.Close()
	for rows.Next() {
		var uid, id string
		if err := rows.Scan(&uid, &id); err != nil {
			return nil, err
		}
		if len(all) == 0 || all[len(all)-1].UID != uid {
			all = append(all, store.Owed{UID: uid})
		}
		last := &all[len(all)-1]
		last.IDs = append(last.IDs, digest.Digest(id))
	}
	return all, d.classify(rows.Err())
}

// Settle implements store.Store.
func (d *DB) Settle(ctx context.Context, ids []digest.Digest) error {
	return d.Do(ctx, func(ctx context.Context, db *Conn) error {
		for _, id := range ids {
			if _, err := db.Exec(ctx, `UPDATE report SET ack_owed = 0 WHERE id = $1`, string(id)); err != nil {
				return err
			}
		}
		return nil
	})
}

// clusterRow is the row of a cluster while reports are added to it.
type clusterRow struct {
	id int64
	timeline.Present
	loaded    bool // its deployments
	conflicts int
	sharedHow string      // share writes it, and not save
	cleared   store.Order // reports up to here raise no suspicion
}

// loadCluster reads the registered cluster of this uid. The error wraps store.ErrUnknownCluster.
func loadCluster(ctx context.Context, db querier, uid string) (*clusterRow, error) {
	p := &clusterRow{}
	var seen sql.NullInt64
	err := db.row(ctx, `SELECT id, incarnation, seq, state, reason, message, state_since,
			desired_digest, desired_epoch, desired_sequence, desired_number, observed_digest, observed_epoch, observed_sequence, observed_number, expired,
			agent_version, claims, last_seen, conflicts, shared_how, cleared_incarnation, cleared_seq
		FROM cluster WHERE uid = $1 AND removed_at IS NULL`, uid).Scan(
		&p.id, &p.Incarnation, &p.Seq, &p.Agent.State, &p.Agent.Reason, &p.Message, &p.Since,
		&p.Desired.Digest, &p.Desired.Epoch, &p.Desired.Sequence, &p.Desired.Number,
		&p.Observed.Digest, &p.Observed.Epoch, &p.Observed.Sequence, &p.Observed.Number, &p.Observed.Expired,
		&p.AgentVersion, &p.Claims, &seen, &p.conflicts, &p.sharedHow, &p.cleared.Incarnation, &p.cleared.Seq)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("cluster %q: %w", uid, store.ErrUnknownCluster)
	}
	if err != nil {
		return nil, err
	}
	p.Agent.Content = string(p.Observed.Digest)
	p.LastSeen, p.EverReported = seen.Int64, seen.Valid
	return p, nil
}

// loadDeployments reads the deployments, unless they are there. Only a report that is the newest needs them.
func (p *clusterRow) loadDeployments(ctx context.Context, db querier) error {
	if p.loaded {
		return nil
	}
	rows, err := db.query(ctx, `SELECT assignment, workspace, workload, target, adapter, state, reason, message, since,
		version, config, content, revision, failures, floating, listed FROM deployment WHERE cluster_id = $1`, p.id)
	if err != nil {
		return err
	}
	defer rows.Close()
	p.Deployments = map[string]timeline.Deployment{}
	for rows.Next() {
		var name string
		var d timeline.Deployment
		if err := rows.Scan(&name, &d.Workspace, &d.Workload, &d.Target, &d.Adapter, &d.State, &d.Reason, &d.Message, &d.Since,
			&d.Version, &d.Config, &d.Content, &d.Revision, &d.Failures, &d.Floating, &d.Listed); err != nil {
			return err
		}
		p.Deployments[name] = d
	}
	p.loaded = rows.Err() == nil
	return rows.Err()
}

func writeDeployment(ctx context.Context, db *Conn, cluster int64, name string, d timeline.Deployment) error {
	_, err := db.Exec(ctx, `INSERT INTO deployment (cluster_id, assignment, workspace, workload, target, adapter, state, reason, message, since,
			version, config, content, revision, failures, floating, listed)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
		ON CONFLICT (cluster_id, assignment) DO UPDATE SET workspace = excluded.workspace, workload = excluded.workload,
			target = excluded.target, adapter = excluded.adapter, state = excluded.state, reason = excluded.reason,
			message = excluded.message, since = excluded.since, version = excluded.version, config = excluded.config,
			content = excluded.content, revision = excluded.revision, failures = excluded.failures, floating = excluded.floating, listed = excluded.listed`,
		cluster, name, d.Workspace, d.Workload, d.Target, d.Adapter, d.State, d.Reason, d.Message, d.Since,
		d.Version, d.Config, d.Content, d.Revision, d.Failures, bit(d.Floating), bit(d.Listed))
	return err
}

// remember gives an assignment that only history knows a row that is not listed.
func (p *clusterRow) remember(ctx context.Context, db *Conn, assignment string) error {
	if assignment == timeline.WholeAgent {
		return nil
	}
	_, err := db.Exec(ctx, `INSERT INTO deployment (cluster_id, assignment, workspace, workload, target, adapter, state, reason, message, since,
			version, config, content, revision, floating, listed)
		VALUES ($1, $2, '', '', '', '', $3, $4, '', 0, '', '', '', '', 0, 0)
		ON CONFLICT (cluster_id, assignment) DO NOTHING`, p.id, assignment, timeline.Gone.State, timeline.Gone.Reason)
	p.loaded = false
	return err
}

// save writes the cluster's row.
func (p *clusterRow) save(ctx context.Context, db *Conn) error {
	_, err := db.Exec(ctx, `UPDATE cluster SET incarnation = $1, seq = $2, state = $3, reason = $4, message = $5, state_since = $6,
			desired_digest = $7, desired_epoch = $8, desired_sequence = $9, desired_number = $10,
			observed_digest = $11, observed_epoch = $12, observed_sequence = $13, observed_number = $14, expired = $15,
			agent_version = $16, claims = $17, last_seen = $18, conflicts = $19
		WHERE id = $20`,
		p.Incarnation, p.Seq, p.Agent.State, p.Agent.Reason, p.Message, p.Since,
		string(p.Desired.Digest), p.Desired.Epoch, p.Desired.Sequence, p.Desired.Number,
		string(p.Observed.Digest), p.Observed.Epoch, p.Observed.Sequence, p.Observed.Number, bit(p.Observed.Expired),
		p.AgentVersion, p.Claims, sql.NullInt64{Int64: p.LastSeen, Valid: p.EverReported}, p.conflicts, p.id)
	return err
}
