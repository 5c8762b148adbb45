// Package impact counts what a plan does to a fleet: the clusters that it reaches, the bytes that they fetch, and the pods
// that restart.
//
// [Facts] are the numbers of a whole plan, for people and for rules about plans. [Fleet] is where the clusters come from, and
// [Restarts] names the workloads whose pods a changed assignment replaces. Package diff fills Facts in. The package reads
// nothing but its arguments.
package impact

import (
	"cmp"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
)

// Facts are the numbers of a plan. Its JSON form is an interface.
type Facts struct {
	// ClustersFrom is "roster" or "hub". It is empty if no cluster is known: then Clusters, ChangedClusters and TotalBytes
	// are 0 because nobody knows them.
	ClustersFrom string `json:"clustersFrom,omitempty"`
	// Link is the rate that Seconds are for; zero if none was given.
	Link Link `json:"linkBitsPerSecond,omitempty"`
	Counts
	// ClusterTypes has each cluster type, sorted by name.
	ClusterTypes []TypeFacts `json:"clusterTypes"`
}

// TypeFacts are the numbers of one cluster type.
type TypeFacts struct {
	ClusterType string `json:"clusterType"`
	// Result is the outcome of the plan for the type, such as "changed"; see package diff.
	Result string `json:"result"`
	Counts
}

// Counts are the numbers of a cluster type, or of all of them together.
type Counts struct {
	// Clusters counts the clusters, and ChangedClusters those of them that would get other content. A release that is only
	// renewed changes no cluster.
	Clusters        int `json:"clusters"`
	ChangedClusters int `json:"changedClusters"`
	// Added, Changed, Removed and Failed count assignments.
	Added   int `json:"added"`
	Changed int `json:"changed"`
	Removed int `json:"removed"`
	Failed  int `json:"failed"`
	// Restarts counts the changed assignments on which pods are replaced. RestartsUnknown counts those of which it cannot be
	// known, since another engine, such as Flux, fetches the manifests.
	Restarts        int `json:"restarts"`
	RestartsUnknown int `json:"restartsUnknown"`
	// Refused counts the changed assignments that fail on clusters, since fields cannot change; see Immutable.
	Refused int `json:"refused,omitempty"`
	// Bytes is what one cluster fetches, TotalBytes what all of them fetch together. Of several cluster types, Bytes is the
	// most. UpTo is true if a cluster may fetch less.
	Bytes      int64 `json:"bytes"`
	TotalBytes int64 `json:"totalBytes"`
	UpTo       bool  `json:"upTo,omitempty"`
	// Carried is the size of the artifacts that one cluster brings to its store at most: those that no earlier release has, as
	// far as their sizes are known.
	Carried int64 `json:"carriedBytes,omitempty"`
	// Seconds is the time that Bytes take on the link of one cluster, rounded up.
	Seconds int64 `json:"seconds,omitempty"`
}

// Add adds the numbers of one more cluster type.
func (f *Facts) Add(t TypeFacts) {
	f.ClusterTypes = append(f.ClusterTypes, t)
	slices.SortFunc(f.ClusterTypes, func(a, b TypeFacts) int { return cmp.Compare(a.ClusterType, b.ClusterType) })
	f.Clusters, f.ChangedClusters = f.Clusters+t.Clusters, f.ChangedClusters+t.ChangedClusters
	f.Added, f.Changed, f.Removed, f.Failed = f.Added+t.Added, f.Changed+t.Changed, f.Removed+t.Removed, f.Failed+t.Failed
	f.Carried, f.Refused = max(f.Carried, t.Carried), f.Refused+t.Refused
	f.Restarts, f.RestartsUnknown = f.Restarts+t.Restarts, f.RestartsUnknown+t.RestartsUnknown
	f.Bytes, f.TotalBytes, f.UpTo = max(f.Bytes, t.Bytes), f.TotalBytes+t.TotalBytes, f.UpTo || t.UpTo
}

// Type returns the numbers of a cluster type; zero if there is none of that name.
func (f *Facts) Type(name string) TypeFacts {
	i, found := slices.BinarySearchFunc(f.ClusterTypes, name, func(t TypeFacts, name string) int { return cmp.Compare(t.ClusterType, name) })
	if !found {
		return TypeFacts{ClusterType: name}
	}
	return f.ClusterTypes[i]
}

// Cluster is a cluster of the environment.
type Cluster struct {
	Name        string
	UID         string // empty if unknown
	ClusterType string
	Labels      map[string]string
	// Ring is empty for a cluster that follows the releases for all rings.
	Ring string
	// Release is the digest of the release that the cluster runs; empty if unknown, as in a roster.
	Release digest.Digest
	// State is what the cluster last reported; empty if unknown.
	State bundle.State
	// LastSeen is the time of its newest report; zero if unknown.
	LastSeen time.Time
}

// Has returns the release that is known to be whole at the cluster: the one that runs, if the cluster is compliant. It is empty
// if there is none.
func (c Cluster) Has() digest.Digest {
	if c.State != bundle.Compliant {
		return ""
	}
	return c.Release
}

// The sources of a fleet.
const (
	FromRoster  = "roster"
	FromHub     = "hub"
	FromReports = "reports"
)

// Fleet lists the clusters of an environment. The zero value is that of an unknown fleet.
type Fleet struct {
	// From is FromRoster, FromHub or FromReports; empty if the clusters are unknown.
	From     string
	Clusters []Cluster
}

// Of returns the clusters of a cluster type.
func (f Fleet) Of(clusterType string) []Cluster {
	var all []Cluster
	for _, c := range f.Clusters {
		if c.ClusterType == clusterType {
			all = append(all, c)
		}
	}
	return all
}
