package publisher

import (
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/checks"
	"github.com/wherry-dev/wherry/publisher/impact"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/scheduler/check"
)

// judgePlans returns what the platform's plan checks say against plans. They have nothing to say if no content changes, so that
// releases are always renewed in time.
func (n *planner) judgePlans(set *check.Set, plans []*plan) []check.Judgement {
	if !set.HasPlans() {
		return nil
	}
	facts := check.Facts{Environment: n.Environment}
	clusters := map[string][]impact.Cluster{}
	if f := n.opts.Fleet; f != nil {
		facts.ClustersKnown = f.From != ""
		for _, c := range f.Clusters {
			clusters[c.ClusterType] = append(clusters[c.ClusterType], c)
		}
	}
	for _, pl := range plans {
		facts.ClusterTypes = append(facts.ClusterTypes, pl.facts(clusters[pl.Name]))
	}
	return set.Changes(facts)
}

// facts counts what pl does to the clusters of its type.
func (pl *plan) facts(clusters []impact.Cluster) check.PlannedType {
	t := check.PlannedType{
		Name: pl.Name, Labels: pl.Labels, Left: pl.left, New: pl.Verified == nil,
		Clusters:    check.Counts{Total: float64(len(clusters))},
		Assignments: check.AssignmentCounts{Total: float64(pl.row.Assignments), Failed: float64(len(pl.row.Failures))},
	}
	if pl.row.Result == releases.OutcomeFailed || pl.tree == nil {
		return t
	}
	workspaces := map[string]float64{}
	for _, a := range pl.loses.removed {
		workspaces[a.Workspace]++
	}
	t.Removed, t.Workspaces = float64(len(pl.loses.removed)), check.WorkspacesOf(workspaces)
	var ofRing func(string) bool
	t.Changed, ofRing = pl.changes()
	for _, c := range clusters {
		if !t.New && ofRing(c.Ring) {
			t.Clusters.Changed++
		}
	}
	return t
}

// changes reports whether the type gets other content, and returns whether clusters of a ring do, which is empty for
// those without one.
func (pl *plan) changes() (any bool, ofRing func(string) bool) {
	differs := func(v *bundle.Verified) bool { return v == nil || v.Release.Content != pl.tree.Content }
	if !pl.hasRings() {
		any = differs(pl.base().Release)
		return any, func(string) bool { return any } // clusters of a ring take it, too
	}
	changed := map[string]bool{}
	for _, l := range pl.aim {
		changed[l.Name] = differs(l.Release)
		any = any || changed[l.Name]
	}
	return any, func(ring string) bool { return changed[ring] }
}

// checkPlan returns a *checks.Error if a plan check of the platform, or its bound on removals, refuses plans, and warns of the others.
func (p *publication) checkPlan(set *check.Set, plans []*plan, so *progress) error {
	refused := &checks.Error{Late: len(so.pushed) > 0}
	for _, j := range append(p.judgeRemovals(plans), p.judgePlans(set, plans)...) {
		if j.Warning {
			p.Warn("%v", j.Err())
		} else {
			refused.Refusals = append(refused.Refusals, j.Err())
		}
	}
	if len(refused.Refusals) > 0 {
		return refused
	}
	return nil
}
