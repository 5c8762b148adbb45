package hub

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
)

// DeploymentList is a list of deployments by cluster and assignment.
type DeploymentList struct {
	Deployments []DeploymentStatus `json:"deployments"`
	// Next is set where Filter.Limit has cut the list.
	Next string `json:"next,omitempty"`
}

// DeploymentStatus is an assignment on a cluster as of that cluster's newest report.
type DeploymentStatus struct {
	Cluster     string       `json:"cluster"`
	ClusterUID  string       `json:"clusterUID"`
	Environment string       `json:"environment"`
	Type        string       `json:"type"`
	Assignment  string       `json:"assignment"`
	Workspace   string       `json:"workspace,omitempty"`
	Workload    string       `json:"workload"`
	Target      string       `json:"target"`
	Adapter     string       `json:"adapter,omitempty"`
	State       bundle.State `json:"state"`
	// Was is the last reported state on a stale cluster.
	Was          bundle.State  `json:"was,omitempty"`
	Reason       string        `json:"reason,omitempty"`
	Message      string        `json:"message,omitempty"`
	Since        time.Time     `json:"since,omitzero"`
	Version      string        `json:"version,omitempty"`
	ConfigDigest digest.Digest `json:"configDigest,omitempty"`
	Content      digest.Digest `json:"content,omitempty"`
	Revision     string        `json:"revision,omitempty"`
	Floating     bool          `json:"floating,omitempty"`
	// Failures is how often the assignment has begun to fail, by its agent's count: bundle.Item.
	Failures int64 `json:"failures,omitempty"`
	// Release is the digest of the release that the cluster runs.
	Release digest.Digest `json:"release,omitempty"`
}

// Deployments returns the assignments on registered clusters that f chooses. The error wraps ErrInvalid
// where f is not acceptable.
func (h *Hub) Deployments(ctx context.Context, f Filter) (DeploymentList, error) {
	if err := f.check(); err != nil {
		return DeploymentList{}, err
	}
	q := h.selection(f, "d.state")
	q.and("d.listed = 1")
	if f.Workload != "" {
		q.and("d.workload = :workload", sql.Named("workload", f.Workload))
	}
	if f.After != "" {
		cluster, assignment, _ := strings.Cut(f.After, "/")
		q.and("(c.name, d.assignment) > (:cluster, :assignment)", sql.Named("cluster", cluster), sql.Named("assignment", assignment))
	}
	rows, err := h.read.QueryContext(ctx, `SELECT c.name, c.uid, c.environment, c.type, d.assignment, d.workspace, d.workload, d.target, d.adapter,
			`+stateNow("d.state")+`, d.state, d.reason, d.message, d.since, d.version, d.config, d.content, d.revision, d.failures, d.floating, c.observed_digest
		FROM cluster c JOIN deployment d ON d.cluster_id = c.id`+q.end("c.name, d.assignment", f.Limit), q.args...)
	if err != nil {
		return DeploymentList{}, classify(err)
	}
	defer rows.Close()
	list := DeploymentList{Deployments: []DeploymentStatus{}}
	for rows.Next() {
		var d DeploymentStatus
		var since int64
		if err := rows.Scan(&d.Cluster, &d.ClusterUID, &d.Environment, &d.Type, &d.Assignment, &d.Workspace, &d.Workload, &d.Target, &d.Adapter,
			&d.State, &d.Was, &d.Reason, &d.Message, &since, &d.Version, &d.ConfigDigest, &d.Content, &d.Revision, &d.Failures, &d.Floating, &d.Release); err != nil {
			return DeploymentList{}, err
		}
		if d.Since = moment(since); d.State != Stale {
			d.Was = ""
		}
		list.Deployments = append(list.Deployments, d)
	}
	if f.Limit > 0 && len(list.Deployments) > f.Limit {
		list.Deployments = list.Deployments[:f.Limit]
		last := list.Deployments[f.Limit-1]
		list.Next = last.Cluster + "/" + last.Assignment
	}
	return list, classify(rows.Err())
}
