package relational

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/timeline"
)

// clusterRow is a registered cluster with its rows, while reports are added to it.
type clusterRow struct {
	id           int64
	change       store.Position
	registration store.Registration
	timeline.Present
	proof   store.Proof
	agentID int64 // of the deployment that is the agent as a whole
	aboutID int64 // of Agent.About; zero without one
	fell    bool  // the times of reports have fallen, from one to the next
	cleared store.Order
	spent   spent
	kept    store.Order // retention has removed the reports before it
	// processes of the agent, newest first, once they are loaded.
	processes       []process
	processesLoaded bool
}

// loadCluster reads the registered cluster of this uid. The error wraps store.ErrUnknownCluster.
func (d *DB) loadCluster(ctx context.Context, db *Conn, uid string) (*clusterRow, error) {
	var id, change int64
	var kept store.Order
	err := db.row(ctx, `SELECT id, change, kept_incarnation, kept_seq FROM cluster WHERE uid = $1 AND removed_at IS NULL`, uid).Scan(&id, &change, &kept.Incarnation, &kept.Seq)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("cluster %q: %w", uid, store.ErrUnknownCluster)
	}
	if err != nil {
		return nil, err
	}
	if c := d.recent.take(id); c != nil && c.change == store.Position(change) && change > 0 {
		c.kept = kept // Trim changes it alone
		return c, nil
	}
	c, err := readCluster(ctx, db, id)
	if err == nil {
		for _, t := range c.Deployments {
			d.texts.deployment(t)
		}
	}
	return c, err
}

// readCluster reads a cluster with its deployments.
func readCluster(ctx context.Context, db querier, id int64) (*clusterRow, error) {
	c := &clusterRow{id: id}
	found, err := registrations(ctx, db, clusterByID, id)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("cluster row %d: %w", id, store.ErrCorrupt)
	}
	c.registration, c.Order = found[0], found[0].Newest
	var seen, about sql.NullInt64
	var occurred, received int64
	var content sql.NullString
	var report []byte
	err = db.row(ctx, `SELECT c.change, c.state, c.reason, c.message, c.state_since, c.observed_digest, c.last_seen, c.about_id, a.content,
			c.report_id, c.occurred_at, c.received_at, c.via, c.fell, c.cleared_incarnation, c.cleared_seq, c.kept_incarnation, c.kept_seq, c.spent_reports, c.spent_bytes
		FROM cluster c LEFT JOIN about a ON a.id = c.about_id WHERE c.id = $1`, id).Scan(
		&c.change, &c.Agent.State, &c.Agent.Reason, &c.Message, &c.Since, &c.Agent.Content, &seen, &about, &content,
		&report, &occurred, &received, &c.proof.Via, &c.fell, &c.cleared.Incarnation, &c.cleared.Seq, &c.kept.Incarnation, &c.kept.Seq, &c.spent.reports, &c.spent.bytes)
	if err != nil {
		return nil, err
	}
	c.LastSeen, c.EverReported = seen.Int64, seen.Valid
	c.aboutID, c.Agent.About = about.Int64, content.String
	if err := parseAbout(content.String, &c.About); err != nil {
		return nil, fmt.Errorf("cluster %s: %w", c.registration.Name, err)
	}
	c.proof.Report, c.proof.At = reportID(report), c.Order
	c.proof.OccurredAt, c.proof.ReceivedAt = store.Moment(occurred), store.Moment(received)
	return c, c.loadDeployments(ctx, db)
}

func parseAbout(content string, a *timeline.About) error {
	if content == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(content), a); err != nil {
		return fmt.Errorf("%w: report data about the agent: %v", store.ErrCorrupt, err)
	}
	return nil
}

func (c *clusterRow) loadDeployments(ctx context.Context, db querier) error {
	err := each(ctx, db, `SELECT id, assignment, workspace, application, workload, target, adapter, state, reason, message, since,
			version, config, content, revision, site_values, failures, floating, listed FROM deployment WHERE cluster_id = $1`, []any{c.id}, func(rows *sql.Rows) error {
		var t timeline.Deployment
		if err := rows.Scan(&t.ID, &t.Assignment, &t.Workspace, &t.Application, &t.Workload, &t.Target, &t.Adapter, &t.State, &t.Reason, &t.Message, &t.Since,
			&t.Version, &t.Config, &t.Content, &t.Revision, &t.SiteValues, &t.Failures, &t.Floating, &t.Listed); err != nil {
			return err
		}
		if t.Assignment == timeline.WholeAgent {
			c.agentID = t.ID
		} else {
			c.Deployments = append(c.Deployments, &t)
		}
		return nil
	})
	slices.SortFunc(c.Deployments, func(x, y *timeline.Deployment) int { return strings.Compare(x.Assignment, y.Assignment) })
	return err
}

// insertDeployments gives deployments without a row one, as they are.
func (c *clusterRow) insertDeployments(ctx context.Context, db *Conn, all []*timeline.Deployment) error {
	fresh := map[string]*timeline.Deployment{}
	if c.agentID == 0 {
		all = append([]*timeline.Deployment{{Assignment: timeline.WholeAgent}}, all...)
	}
	var values []any
	for _, t := range all {
		if t.ID == 0 {
			fresh[t.Assignment] = t
			values = append(values, c.id, t.Assignment, t.Workspace, t.Application, t.Workload, t.Target, t.Adapter, t.State, t.Reason, t.Message, t.Since,
				t.Version, t.Config, t.Content, t.Revision, t.SiteValues, t.Failures, bit(t.Floating), bit(t.Listed))
		}
	}
	err := db.insert(ctx, insertion{
		into:    `deployment (cluster_id, assignment, workspace, application, workload, target, adapter, state, reason, message, since, version, config, content, revision, site_values, failures, floating, listed)`,
		columns: 19, end: `RETURNING id, assignment`,
	}, values, func(rows *sql.Rows) error {
		var id int64
		var name string
		if err := rows.Scan(&id, &name); err != nil {
			return err
		}
		fresh[name].ID = id
		return nil
	})
	if t := fresh[timeline.WholeAgent]; t != nil {
		c.agentID = t.ID
	}
	return err
}

// updateDeployment writes the present of a deployment.
func updateDeployment(ctx context.Context, db *Conn, t *timeline.Deployment) error {
	err := db.Later(ctx, `UPDATE deployment SET workspace = $2, application = $3, workload = $4, target = $5, adapter = $6, state = $7, reason = $8, message = $9, since = $10,
			version = $11, config = $12, content = $13, revision = $14, site_values = $15, failures = $16, floating = $17, listed = $18 WHERE id = $1`,
		t.ID, t.Workspace, t.Application, t.Workload, t.Target, t.Adapter, t.State, t.Reason, t.Message, t.Since,
		t.Version, t.Config, t.Content, t.Revision, t.SiteValues, t.Failures, bit(t.Floating), bit(t.Listed))
	return err
}

// keepAbout returns the row of what a report says of its agent.
func (c *clusterRow) keepAbout(ctx context.Context, db *Conn, content string) (id int64, err error) {
	err = db.row(ctx, `SELECT id FROM about WHERE cluster_id = $1 AND content = $2`, c.id, content).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		err = db.row(ctx, `INSERT INTO about (cluster_id, content) VALUES ($1, $2) RETURNING id`, c.id, content).Scan(&id)
	}
	return id, err
}

// save writes the cluster's row.
func (c *clusterRow) save(ctx context.Context, db *Conn) error {
	r := &c.registration
	var shared sql.NullInt64
	if r.SharedSince != nil {
		shared = sql.NullInt64{Int64: store.Millis(*r.SharedSince), Valid: true}
	}
	err := db.Later(ctx, `UPDATE cluster SET change = $2, incarnation = $3, seq = $4, state = $5, reason = $6, message = $7, state_since = $8, observed_digest = $9,
			last_seen = $10, about_id = $11, report_id = $12, occurred_at = $13, received_at = $14, via = $15, fell = $16,
			conflicts = $17, shared_since = $18, shared_how = $19, spent_reports = $20, spent_bytes = $21
		WHERE id = $1`,
		c.id, int64(c.change), c.Incarnation, c.Seq, c.Agent.State, c.Agent.Reason, c.Message, c.Since, c.Agent.Content,
		sql.NullInt64{Int64: c.LastSeen, Valid: c.EverReported}, sql.NullInt64{Int64: c.aboutID, Valid: c.aboutID != 0},
		idBytes(c.proof.Report), store.Millis(c.proof.OccurredAt), store.Millis(c.proof.ReceivedAt), string(c.proof.Via), bit(c.fell),
		int64(r.Conflicts), shared, r.SharedHow, c.spent.reports, c.spent.bytes)
	return err
}

// state returns the cluster as a store shows it.
func (c *clusterRow) state() *store.ClusterState {
	s := &store.ClusterState{Registration: c.registration, Change: c.change}
	s.Registration.Newest = c.Order
	c.Fill(s, c.proof)
	s.Deployments = c.Listed(c.proof)
	return s
}
