package diff

import (
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/impact"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/check"
)

// RosterOf returns the clusters that a platform lists.
func RosterOf(m *scheduler.Model) impact.Fleet { return Roster(m.Clusters()) }

// Roster returns listed clusters as a fleet, of which nobody knows what it runs.
func Roster(clusters []scheduler.Cluster) impact.Fleet {
	var f impact.Fleet
	for _, c := range clusters {
		f.From = impact.FromRoster
		f.Clusters = append(f.Clusters, impact.Cluster{Name: c.Name, UID: c.UID, ClusterType: c.ClusterType, Ring: c.Ring, Labels: c.Labels})
	}
	return f
}

// restarts sets the restarts of a changed assignment, and what cannot change, of which was and now are the lines, before and files the files. A
// rendered folder has no lines: the settings are then taken to be the same.
func (d *AssignmentDifference) restarts(was, now bundle.Assignment, before map[string][]byte, files []bundle.File, namesOnly bool) {
	after := map[string][]byte{}
	for _, f := range files {
		after[f.Path] = f.Data
	}
	if namesOnly {
		was = now
		was.ConfigDigest, now.ConfigDigest = digest.FromBytes(before[configFile]), digest.FromBytes(after[configFile])
	}
	old, next := stateOf(was, before), stateOf(now, after)
	if d.Refused = impact.Immutable(old, next); len(d.Refused) > 0 {
		return
	}
	list, known := impact.Restarts(old, next)
	d.Restarts, d.RestartsUnknown = list, !known && len(d.Files) > 0
}

// configFile has the configuration that restarts are about.
const configFile = ConfigFile + "yaml"

func stateOf(line bundle.Assignment, files map[string][]byte) impact.State {
	s := impact.State{Adapter: line.Adapter, Files: files, Embedded: line.Delivery == bundle.Embedded && line.Adapter != scheduler.DirectoryAdapter}
	if line.RestartOnConfig {
		s.Config = line.ConfigDigest
	}
	return s
}

// judge returns what the platform's plan checks say against the changes of a rendered folder, which has no rings.
func (d *Difference) judge(set *check.Set, types []scheduler.ClusterTypeResult, fleet impact.Fleet) []check.Judgement {
	if !set.HasPlans() {
		return nil
	}
	labels := map[string]map[string]string{}
	for _, ct := range types {
		labels[ct.Name] = ct.Labels
	}
	clusters := map[string]float64{}
	for _, c := range fleet.Clusters {
		clusters[c.ClusterType]++
	}
	facts := check.Facts{Environment: d.Environment, ClustersKnown: fleet.From != ""}
	for _, ct := range d.ClusterTypes {
		t := check.PlannedType{
			Name: ct.ClusterType, Labels: labels[ct.ClusterType], New: ct.Result == ResultNew, Left: ct.Left,
			Changed:     ct.Result == ResultChanged || ct.Result == ResultNew,
			Clusters:    check.Counts{Total: clusters[ct.ClusterType]},
			Assignments: check.AssignmentCounts{Total: float64(ct.Assignments), Failed: float64(len(ct.Failed))},
		}
		workspaces := map[string]float64{}
		for _, a := range ct.Changes {
			if a.Change == ChangeRemoved {
				t.Removed++
				workspaces[a.Workspace]++
			}
		}
		t.Workspaces = check.WorkspacesOf(workspaces)
		if t.Changed && !t.New {
			t.Clusters.Changed = t.Clusters.Total
		}
		facts.ClusterTypes = append(facts.ClusterTypes, t)
	}
	return set.Changes(facts)
}

// facts counts what d does to a fleet.
func (d *Difference) facts(fleet impact.Fleet) *impact.Facts {
	f := &impact.Facts{ClustersFrom: fleet.From, ClusterTypes: []impact.TypeFacts{}}
	for _, ct := range d.ClusterTypes {
		f.Add(ct.facts(fleet.Of(ct.ClusterType)))
	}
	return f
}

func (d *TypeDifference) facts(clusters []impact.Cluster) impact.TypeFacts {
	n := d.Count()
	f := impact.TypeFacts{ClusterType: d.ClusterType, Result: string(d.Result), Counts: impact.Counts{
		Clusters: len(clusters), Added: n.Added, Changed: n.Changed, Removed: n.Removed, Failed: n.Failed,
	}}
	for _, a := range d.Changes {
		if len(a.Refused) > 0 {
			f.Refused++
		}
		if len(a.Restarts) > 0 {
			f.Restarts++
		}
		if a.RestartsUnknown {
			f.RestartsUnknown++
		}
	}
	groups := d.groups()
	for _, g := range groups {
		f.Carried = max(f.Carried, g.fetch.Carried)
		if f.Bytes = max(f.Bytes, g.fetch.Bytes); g.fetch.Bytes > 0 {
			f.UpTo = f.UpTo || g.fetch.UpTo
		}
	}
	for _, c := range clusters {
		i := slices.IndexFunc(groups, func(g ringGroup) bool { return g.has(c) })
		if i < 0 {
			continue
		}
		g := groups[i]
		if g.result == ResultChanged || g.result == ResultNew {
			f.ChangedClusters++
		}
		if c.Release == "" || c.Release == g.old {
			f.TotalBytes += g.fetch.Bytes
		} else { // there may be a delta from its release as well
			f.TotalBytes, f.UpTo = f.TotalBytes+g.fetch.FullBytes, f.UpTo || g.fetch.FullBytes > g.fetch.Bytes
		}
	}
	return f
}

// ringGroup is clusters that get the same release in place of the same one.
type ringGroup struct {
	has    func(impact.Cluster) bool
	result Result
	old    digest.Digest
	fetch  Fetch
}

// groups returns the groups of a cluster type's clusters. A cluster that is in none gets no release.
func (d *TypeDifference) groups() []ringGroup {
	if len(d.ByRing) == 0 {
		all := func(impact.Cluster) bool { return true }
		return []ringGroup{{all, d.Result, d.OldDigest, d.Fetch}}
	}
	var all []ringGroup
	for _, r := range d.ByRing {
		in := func(c impact.Cluster) bool {
			return c.Ring == "" && r.Latest || c.Ring != "" && slices.Contains(r.Rings, c.Ring)
		}
		result := r.Result
		if d.Result == ResultBlocked {
			result = ResultBlocked
		}
		all = append(all, ringGroup{in, result, r.OldDigest, r.Fetch})
	}
	return all
}
