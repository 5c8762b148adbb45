package store

import (
	"fmt"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

// ClusterStatus is a registered cluster as of its newest report.
type ClusterStatus struct {
	Identity
	State bundle.State `json:"state"`
	// LastState is the last reported state of a stale cluster.
	LastState bundle.State `json:"lastState,omitempty"`
	Reason    string       `json:"reason,omitempty"`
	Message   string       `json:"message,omitempty"`
	Since     time.Time    `json:"since,omitzero"`
	// Offered is the newest release that the agent was offered, Observed the one that runs.
	Offered      *bundle.ReportRelease `json:"offered,omitempty"`
	Observed     *bundle.ReportRelease `json:"observed,omitempty"`
	AgentVersion string                `json:"agentVersion,omitempty"`
	Incarnation  int64                 `json:"incarnation,omitempty"`
	Seq          int64                 `json:"seq,omitempty"`
	LastSeen     time.Time             `json:"lastSeen,omitzero"`
	// Mismatch names the differences between the agent's own configuration and the registration.
	Mismatch string `json:"mismatch,omitempty"`
	// Conflicts counts reports refused because another with their number is stored: two agents share
	// this cluster's identity.
	Conflicts int `json:"conflicts,omitempty"`
	// SharedSince is the time at which reports first showed that two agents share this identity, zero while none do;
	// SharedHow is the evidence.
	SharedSince time.Time `json:"sharedSince,omitzero"`
	SharedHow   string    `json:"sharedHow,omitempty"`
}

// Compare fills platform and ring from the agent's claim, if they were not registered, and sets Mismatch to
// the differences.
func (c *ClusterStatus) Compare(claimed bundle.ReportCluster) {
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
	// LastState is the last reported state on a stale cluster.
	LastState    bundle.State  `json:"lastState,omitempty"`
	Reason       string        `json:"reason,omitempty"`
	Message      string        `json:"message,omitempty"`
	Since        time.Time     `json:"since,omitzero"`
	Version      string        `json:"version,omitempty"`
	ConfigDigest digest.Digest `json:"configDigest,omitempty"`
	Content      digest.Digest `json:"content,omitempty"`
	Revision     string        `json:"revision,omitempty"`
	Floating     bool          `json:"floating,omitempty"`
	// Failures counts how often the assignment has begun to fail, according to its agent; see bundle.Item.
	Failures int64 `json:"failures,omitempty"`
	// Release is the digest of the release that the cluster runs.
	Release digest.Digest `json:"release,omitempty"`
}

// ShownState returns the state as people read it, such as "stale (was compliant)".
func (c ClusterStatus) ShownState() string { return shown(c.State, c.LastState) }

// ShownReason returns the most important problem for people: a shared identity, the reason, or a mismatch.
func (c ClusterStatus) ShownReason() string {
	switch {
	case !c.SharedSince.IsZero(), c.Conflicts > 0: // the other reasons may be of either agent
		return string(hubapi.CodeSharedIdentity)
	case c.Reason != "":
		return c.Reason
	case c.Mismatch != "":
		return "Mismatch: " + c.Mismatch
	}
	return ""
}

// ShownState returns the state as people read it, such as "stale (was compliant)".
func (d DeploymentStatus) ShownState() string { return shown(d.State, d.LastState) }

// ShownVersion returns the workload's version as people read it; see [bundle.ShownVersion]. Where it is not known, as of what an engine
// fetches by itself, it is a dash with the commit that the engine has, as in "- (main@3f2a9c1)", if it names one.
func (d DeploymentStatus) ShownVersion() string {
	version, commit := bundle.ShownVersion(d.Version), commitIn.FindStringSubmatch(d.Revision)
	if version == "" && commit != nil {
		return "- (" + commit[1] + commit[2] + ")"
	}
	return version
}

// commitIn finds the first digits of the commit in an engine's revision, with the branch in front of it.
var commitIn = lazyregexp.New(`^([^@]*@)?(?:sha1:)?([0-9a-f]{7})[0-9a-f]{33}$`)
