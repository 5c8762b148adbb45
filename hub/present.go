package hub

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/wherry-dev/wherry/bundle"
)

// present is the row of a cluster while reports are added to it. The rows of its deployments are read
// once, when a report is the newest.
type present struct {
	id int64
	order
	agent        value // state, reason and, as content, the running release
	message      string
	since        int64
	desired      bundle.ReportRelease
	observed     bundle.ReportRelease
	agentVersion string
	claims       string
	lastSeen     int64
	conflicts    int
	sharedHow    string // written where it is found, and not by save
	cleared      order  // up to where it has been seen to
	deployments  map[string]deployed
	everReported bool
}

// deployed is the row of one deployment.
type deployed struct {
	workspace, workload, target, adapter string
	value
	message          string
	since            int64
	floating, listed bool
}

// loadPresent reads the cluster of this uid. The error wraps ErrUnknownCluster.
func loadPresent(ctx context.Context, db querier, uid string) (*present, error) {
	p := &present{}
	var seen sql.NullInt64
	err := db.QueryRowContext(ctx, `SELECT id, incarnation, seq, state, reason, message, state_since,
			desired_digest, desired_epoch, desired_sequence, desired_number, observed_digest, observed_epoch, observed_sequence, observed_number, expired,
			agent_version, claims, last_seen, conflicts, shared_how, cleared_incarnation, cleared_seq
		FROM cluster WHERE uid = ? AND removed_at IS NULL`, uid).Scan(
		&p.id, &p.incarnation, &p.seq, &p.agent.state, &p.agent.reason, &p.message, &p.since,
		&p.desired.Digest, &p.desired.Epoch, &p.desired.Sequence, &p.desired.Number,
		&p.observed.Digest, &p.observed.Epoch, &p.observed.Sequence, &p.observed.Number, &p.observed.Expired,
		&p.agentVersion, &p.claims, &seen, &p.conflicts, &p.sharedHow, &p.cleared.incarnation, &p.cleared.seq)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("cluster %q: %w", uid, ErrUnknownCluster)
	}
	if err != nil {
		return nil, err
	}
	p.agent.content = string(p.observed.Digest)
	p.lastSeen, p.everReported = seen.Int64, seen.Valid
	return p, nil
}

// seen notes that the cluster is alive. A report that came by media, or by a registry, was written at the time that the
// agent says, and proves nothing later.
func (p *present) seen(r bundle.Report, via Via, now time.Time) {
	at := now
	if via != ViaHTTP && r.OccurredAt.Before(now) {
		at = r.OccurredAt
	}
	p.lastSeen, p.everReported = max(p.lastSeen, millis(at)), true
}

// values returns the values as of the newest report.
func (p *present) values(ctx context.Context, db querier) (map[string]value, error) {
	if p.deployments == nil {
		var err error
		if p.deployments, err = loadDeployments(ctx, db, p.id); err != nil {
			return nil, err
		}
	}
	values := make(map[string]value, len(p.deployments)+1)
	if p.order != (order{}) {
		values[wholeAgent] = p.agent
	}
	for name, d := range p.deployments {
		values[name] = d.value
	}
	return values, nil
}

func loadDeployments(ctx context.Context, db querier, cluster int64) (map[string]deployed, error) {
	rows, err := db.QueryContext(ctx, `SELECT assignment, workspace, workload, target, adapter, state, reason, message, since,
		version, config, content, revision, failures, floating, listed FROM deployment WHERE cluster_id = ?`, cluster)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[string]deployed{}
	for rows.Next() {
		var name string
		var d deployed
		if err := rows.Scan(&name, &d.workspace, &d.workload, &d.target, &d.adapter, &d.state, &d.reason, &d.message, &d.since,
			&d.version, &d.config, &d.content, &d.revision, &d.failures, &d.floating, &d.listed); err != nil {
			return nil, err
		}
		all[name] = d
	}
	return all, rows.Err()
}

// advance makes r the newest report: the present is what it says.
func (p *present) advance(ctx context.Context, db *conn, r bundle.Report, now time.Time) error {
	values := valuesOf(r)
	if string(r.State) != p.agent.state {
		p.since = min(millis(r.OccurredAt), millis(now))
	}
	p.order, p.agent, p.message, p.agentVersion = orderOf(r), values[wholeAgent], r.Message, r.Agent.Version
	p.desired, p.observed = releaseOf(r.Desired), releaseOf(r.Observed)
	claims, err := json.Marshal(r.Cluster)
	if err != nil {
		return err
	}
	p.claims = string(claims)
	listed := make(map[string]bool, len(r.Items))
	for _, it := range r.Items {
		listed[it.Assignment] = true
		d := deployed{
			workspace: it.Workspace, workload: it.Workload, target: it.Target, adapter: it.Adapter, value: values[it.Assignment],
			message: it.Message, since: min(millis(it.Since), millis(now)), floating: it.Floating, listed: true,
		}
		if err := p.write(ctx, db, it.Assignment, d); err != nil {
			return err
		}
	}
	for name, d := range p.deployments {
		if listed[name] || !d.listed {
			continue
		}
		d.listed, d.message, d.since = false, "", min(millis(r.OccurredAt), millis(now))
		if d.state != gone.state {
			d.value = gone
		}
		if err := p.write(ctx, db, name, d); err != nil {
			return err
		}
	}
	return nil
}

func releaseOf(r *bundle.ReportRelease) bundle.ReportRelease {
	if r == nil {
		return bundle.ReportRelease{}
	}
	return *r
}

// write puts one deployment into the database if it differs from what is there.
func (p *present) write(ctx context.Context, db *conn, name string, d deployed) error {
	if have, known := p.deployments[name]; known && have == d {
		return nil
	}
	p.deployments[name] = d
	_, err := db.exec(ctx, `INSERT INTO deployment (cluster_id, assignment, workspace, workload, target, adapter, state, reason, message, since,
			version, config, content, revision, failures, floating, listed)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (cluster_id, assignment) DO UPDATE SET workspace = excluded.workspace, workload = excluded.workload,
			target = excluded.target, adapter = excluded.adapter, state = excluded.state, reason = excluded.reason,
			message = excluded.message, since = excluded.since, version = excluded.version, config = excluded.config,
			content = excluded.content, revision = excluded.revision, failures = excluded.failures, floating = excluded.floating, listed = excluded.listed`,
		p.id, name, d.workspace, d.workload, d.target, d.adapter, d.state, d.reason, d.message, d.since,
		d.version, d.config, d.content, d.revision, d.failures, d.floating, d.listed)
	return err
}

// remember gives an assignment that only history knows a row that is not listed.
func (p *present) remember(ctx context.Context, db *conn, assignment string) error {
	if assignment == wholeAgent {
		return nil
	}
	_, err := db.exec(ctx, `INSERT INTO deployment (cluster_id, assignment, workspace, workload, target, adapter, state, reason, message, since,
			version, config, content, revision, floating, listed)
		VALUES (?, ?, '', '', '', '', ?, ?, '', 0, '', '', '', '', FALSE, FALSE)
		ON CONFLICT (cluster_id, assignment) DO NOTHING`, p.id, assignment, gone.state, gone.reason)
	p.deployments = nil
	return err
}

// save writes the cluster's row.
func (p *present) save(ctx context.Context, db *conn) error {
	_, err := db.exec(ctx, `UPDATE cluster SET incarnation = ?, seq = ?, state = ?, reason = ?, message = ?, state_since = ?,
			desired_digest = ?, desired_epoch = ?, desired_sequence = ?, desired_number = ?,
			observed_digest = ?, observed_epoch = ?, observed_sequence = ?, observed_number = ?, expired = ?,
			agent_version = ?, claims = ?, last_seen = ?, conflicts = ?
		WHERE id = ?`,
		p.incarnation, p.seq, p.agent.state, p.agent.reason, p.message, p.since,
		string(p.desired.Digest), p.desired.Epoch, p.desired.Sequence, p.desired.Number,
		string(p.observed.Digest), p.observed.Epoch, p.observed.Sequence, p.observed.Number, p.observed.Expired,
		p.agentVersion, p.claims, sql.NullInt64{Int64: p.lastSeen, Valid: p.everReported}, p.conflicts, p.id)
	return err
}
