package relational

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/timeline"
)

// Clusters implements store.Store.
func (d *DB) Clusters(ctx context.Context, f store.Filter) (store.ClusterList, error) {
	if err := f.Check(); err != nil {
		return store.ClusterList{}, err
	}
	q := d.selection(f, "c.state")
	if f.Workload != "" {
		q.and("EXISTS (SELECT 1 FROM deployment d WHERE d.cluster_id = c.id AND d.listed = 1 AND d.workload = " + q.arg(f.Workload) + ")")
	}
	if f.After != "" {
		q.and("c.name > " + q.arg(f.After))
	}
	end := q.end("c.name", f.Limit)
	rows, err := d.read.query(ctx, `SELECT c.uid, c.name, c.platform, c.type, c.environment, c.ring, c.labels,
			`+stateNow("c.state")+`, c.state, c.reason, c.message, c.state_since,
			coalesce(a.content, ''), c.incarnation, c.seq, coalesce(c.last_seen, 0), c.conflicts, coalesce(c.shared_since, 0), c.shared_how
		FROM cluster c LEFT JOIN about a ON a.id = c.about_id`+end, q.args...)
	if err != nil {
		return store.ClusterList{}, d.classify(err)
	}
	defer rows.Close()
	list := store.ClusterList{Clusters: []store.ClusterStatus{}}
	for rows.Next() {
		c, err := scanCluster(rows)
		if err != nil {
			return store.ClusterList{}, err
		}
		list.Clusters = append(list.Clusters, c)
	}
	if f.Limit > 0 && len(list.Clusters) > f.Limit {
		list.Clusters = list.Clusters[:f.Limit]
		list.Next = list.Clusters[f.Limit-1].Name
	}
	return list, d.classify(rows.Err())
}

func scanCluster(rows *sql.Rows) (store.ClusterStatus, error) {
	var c store.ClusterStatus
	var about timeline.About
	var since, seen, shared int64
	var labels, content string
	err := rows.Scan(&c.UID, &c.Name, &c.Platform, &c.Type, &c.Environment, &c.Ring, &labels,
		&c.State, &c.Was, &c.Reason, &c.Message, &since,
		&content, &c.Incarnation, &c.Seq, &seen, &c.Conflicts, &shared, &c.SharedHow)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal([]byte(labels), &c.Labels); err != nil {
		return c, fmt.Errorf("labels of cluster %s: %w: %v", c.Name, store.ErrCorrupt, err)
	}
	if content != "" {
		if err := parseAbout(content, &about); err != nil {
			return c, fmt.Errorf("cluster %s: %w", c.Name, err)
		}
		c.Desired, c.Observed, c.AgentVersion = about.Desired, about.Observed, about.AgentVersion
		c.Compare(about.Claims)
	}
	if c.State != store.Stale {
		c.Was = ""
	}
	c.Since, c.LastSeen, c.SharedSince = store.Moment(since), store.Moment(seen), store.Moment(shared)
	return c, nil
}

// Deployments implements store.Store.
func (d *DB) Deployments(ctx context.Context, f store.Filter) (store.DeploymentList, error) {
	if err := f.Check(); err != nil {
		return store.DeploymentList{}, err
	}
	q := d.selection(f, "d.state")
	q.and("d.listed = 1")
	if f.Workload != "" {
		q.and("d.workload = " + q.arg(f.Workload))
	}
	if f.After != "" {
		cluster, assignment, _ := strings.Cut(f.After, "/")
		q.and("(c.name, d.assignment) > (" + q.arg(cluster) + ", " + q.arg(assignment) + ")")
	}
	end := q.end("c.name, d.assignment", f.Limit)
	rows, err := d.read.query(ctx, `SELECT c.name, c.uid, c.environment, c.type, d.assignment, d.workspace, d.workload, d.target, d.adapter,
			`+stateNow("d.state")+`, d.state, d.reason, d.message, CASE WHEN d.since > c.received_at AND c.received_at > 0 THEN c.received_at ELSE d.since END, d.version, d.config, d.content, d.revision, d.failures, d.floating, c.observed_digest
		FROM cluster c JOIN deployment d ON d.cluster_id = c.id`+end, q.args...)
	if err != nil {
		return store.DeploymentList{}, d.classify(err)
	}
	defer rows.Close()
	list := store.DeploymentList{Deployments: []store.DeploymentStatus{}}
	for rows.Next() {
		var r store.DeploymentStatus
		var since int64
		if err := rows.Scan(&r.Cluster, &r.ClusterUID, &r.Environment, &r.Type, &r.Assignment, &r.Workspace, &r.Workload, &r.Target, &r.Adapter,
			&r.State, &r.Was, &r.Reason, &r.Message, &since, &r.Version, &r.ConfigDigest, &r.Content, &r.Revision, &r.Failures, &r.Floating, &r.Release); err != nil {
			return store.DeploymentList{}, err
		}
		if r.Since = store.Moment(since); r.State != store.Stale {
			r.Was = ""
		}
		list.Deployments = append(list.Deployments, r)
	}
	if f.Limit > 0 && len(list.Deployments) > f.Limit {
		list.Deployments = list.Deployments[:f.Limit]
		last := list.Deployments[f.Limit-1]
		list.Next = last.Cluster + "/" + last.Assignment
	}
	return list, d.classify(rows.Err())
}

// stateNow returns the SQL for the state, at the time that is the first argument, of cluster c, or of a row of it with the
// given state.
func stateNow(state string) string {
	return `CASE WHEN c.last_seen IS NULL THEN 'unreported' WHEN c.last_seen < $1 - 3 * c.expected THEN 'stale' ELSE ` + state + ` END`
}

// selection is the WHERE clause of a query in the making, with its arguments.
type selection struct {
	conditions []string
	args       []any
}

// selection begins a query with the conditions that clusters and deployments have in common; state is the row's own.
func (d *DB) selection(f store.Filter, state string) *selection {
	q := &selection{args: []any{store.Millis(d.now())}}
	q.and("c.removed_at IS NULL")
	if f.Environment != "" {
		q.and("c.environment = " + q.arg(f.Environment))
	}
	if f.Type != "" {
		q.and("c.type = " + q.arg(f.Type))
	}
	if f.State != "" {
		q.and(stateNow(state) + " = " + q.arg(string(f.State)))
	}
	return q
}

// arg adds an argument, and returns its parameter.
func (q *selection) arg(v any) string {
	q.args = append(q.args, v)
	return "$" + strconv.Itoa(len(q.args))
}

func (q *selection) and(condition string) { q.conditions = append(q.conditions, condition) }

// end returns the clause, the order, and a limit of one row more than wanted, which tells whether there
// are more.
func (q *selection) end(order string, limit int) string {
	s := " WHERE " + strings.Join(q.conditions, " AND ") + " ORDER BY " + order
	if limit > 0 {
		s += " LIMIT " + q.arg(int64(limit)+1)
	}
	return s
}
