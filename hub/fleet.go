package hub

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle"
)

// ClusterList is a list of clusters by name.
type ClusterList struct {
	Clusters []ClusterStatus `json:"clusters"`
	// Next is set where Filter.Limit has cut the list.
	Next string `json:"next,omitempty"`
}

// ClusterStatus is a registered cluster as of its newest report.
type ClusterStatus struct {
	UID         string            `json:"uid"`
	Name        string            `json:"name"`
	Platform    string            `json:"platform,omitempty"`
	Type        string            `json:"type"`
	Environment string            `json:"environment"`
	Ring        string            `json:"ring,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	State       bundle.State      `json:"state"`
	// Was is the last reported state of a stale cluster.
	Was     bundle.State `json:"was,omitempty"`
	Reason  string       `json:"reason,omitempty"`
	Message string       `json:"message,omitempty"`
	Since   time.Time    `json:"since,omitzero"`
	// Desired is the newest release offered, Observed the one that runs.
	Desired      *bundle.ReportRelease `json:"desired,omitempty"`
	Observed     *bundle.ReportRelease `json:"observed,omitempty"`
	AgentVersion string                `json:"agentVersion,omitempty"`
	Incarnation  int64                 `json:"incarnation,omitempty"`
	Seq          int64                 `json:"seq,omitempty"`
	LastSeen     time.Time             `json:"lastSeen,omitzero"`
	// Mismatch says where the agent's own configuration differs from the registration.
	Mismatch string `json:"mismatch,omitempty"`
	// Conflicts counts reports refused because another with their number is stored: two agents share
	// this cluster's identity.
	Conflicts int `json:"conflicts,omitempty"`
	// SharedSince is when reports first showed that two agents share this identity, and SharedHow what showed
	// it; zero while none does.
	SharedSince time.Time `json:"sharedSince,omitzero"`
	SharedHow   string    `json:"sharedHow,omitempty"`
}

// Clusters returns the registered clusters that f chooses. The error wraps ErrInvalid where f is not
// acceptable.
func (h *Hub) Clusters(ctx context.Context, f Filter) (ClusterList, error) {
	if err := f.check(); err != nil {
		return ClusterList{}, err
	}
	q := h.selection(f, "c.state")
	if f.Workload != "" {
		q.and("EXISTS (SELECT 1 FROM deployment d WHERE d.cluster_id = c.id AND d.listed = 1 AND d.workload = :workload)",
			sql.Named("workload", f.Workload))
	}
	if f.After != "" {
		q.and("c.name > :after", sql.Named("after", f.After))
	}
	rows, err := h.read.QueryContext(ctx, `SELECT c.uid, c.name, c.platform, c.type, c.environment, c.ring, c.labels,
			`+stateNow("c.state")+`, c.state, c.reason, c.message, c.state_since,
			c.desired_digest, c.desired_epoch, c.desired_sequence, c.desired_number, c.observed_digest, c.observed_epoch, c.observed_sequence, c.observed_number, c.expired,
			c.agent_version, c.incarnation, c.seq, coalesce(c.last_seen, 0), c.claims, c.conflicts, coalesce(c.shared_since, 0), c.shared_how
		FROM cluster c`+q.end("c.name", f.Limit), q.args...)
	if err != nil {
		return ClusterList{}, classify(err)
	}
	defer rows.Close()
	list := ClusterList{Clusters: []ClusterStatus{}}
	for rows.Next() {
		c, err := scanCluster(rows)
		if err != nil {
			return ClusterList{}, err
		}
		list.Clusters = append(list.Clusters, c)
	}
	if f.Limit > 0 && len(list.Clusters) > f.Limit {
		list.Clusters = list.Clusters[:f.Limit]
		list.Next = list.Clusters[f.Limit-1].Name
	}
	return list, classify(rows.Err())
}

func scanCluster(rows *sql.Rows) (ClusterStatus, error) {
	var c ClusterStatus
	var desired, observed bundle.ReportRelease
	var since, seen, shared int64
	var labels, claims string
	err := rows.Scan(&c.UID, &c.Name, &c.Platform, &c.Type, &c.Environment, &c.Ring, &labels,
		&c.State, &c.Was, &c.Reason, &c.Message, &since,
		&desired.Digest, &desired.Epoch, &desired.Sequence, &desired.Number, &observed.Digest, &observed.Epoch, &observed.Sequence, &observed.Number, &observed.Expired,
		&c.AgentVersion, &c.Incarnation, &c.Seq, &seen, &claims, &c.Conflicts, &shared, &c.SharedHow)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal([]byte(labels), &c.Labels); err != nil {
		return c, fmt.Errorf("labels of cluster %s: %w: %v", c.Name, ErrCorrupt, err)
	}
	if claims != "" {
		var claimed bundle.ReportCluster
		if err := json.Unmarshal([]byte(claims), &claimed); err != nil {
			return c, fmt.Errorf("claims of cluster %s: %w: %v", c.Name, ErrCorrupt, err)
		}
		c.compare(claimed)
	}
	if c.State != Stale {
		c.Was = ""
	}
	c.Since, c.LastSeen, c.SharedSince = moment(since), moment(seen), moment(shared)
	if desired.Digest != "" {
		c.Desired = &desired
	}
	if observed.Digest != "" {
		c.Observed = &observed
	}
	return c, nil
}

// compare fills what was registered without from the agent's claims, and notes where they differ.
func (c *ClusterStatus) compare(claimed bundle.ReportCluster) {
	if c.Platform == "" {
		c.Platform = claimed.Platform
	}
	if c.Ring == "" {
		c.Ring = claimed.Ring
	}
	var differ []string
	for _, f := range []struct{ name, registered, claimed string }{
		{"platform", c.Platform, claimed.Platform},
		{"environment", c.Environment, claimed.Environment},
		{"type", c.Type, claimed.Type},
		{"ring", c.Ring, claimed.Ring},
	} {
		if f.registered != f.claimed {
			differ = append(differ, fmt.Sprintf("%s %q", f.name, f.claimed))
		}
	}
	if len(differ) > 0 {
		c.Mismatch = "agent says " + strings.Join(differ, ", ")
	}
}
