package scheduler

import (
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// Cluster is a cluster of the environment.
type Cluster struct {
	Name string
	finding.Position
	ClusterType string
	// UID is the cluster's uid in its agent's reports.
	UID    string
	Ring   string
	Labels map[string]string
	// PublicKey is the Ed25519 key of the agent's reports, in PEM; empty if it does not report.
	PublicKey string
	// Reporting is true if reports are expected of it.
	Reporting bool
}

// Clusters returns the Cluster objects that were loaded, sorted by name. Package lint checks them.
func (m *Model) Clusters() []Cluster {
	var all []Cluster
	for _, c := range sortedValues(m.objects.Clusters) {
		all = append(all, Cluster{
			Name: c.Metadata.Name, Position: c.At, ClusterType: c.Spec.ClusterType, UID: c.Spec.UID, Ring: c.Spec.Ring,
			Labels: c.Spec.Labels, PublicKey: c.Spec.PublicKey, Reporting: c.Spec.Reporting != kinds.ReportingNone,
		})
	}
	return all
}
