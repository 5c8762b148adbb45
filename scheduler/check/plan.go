package check

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// Plan is the variable plan: the facts about a publication. Numbers have a fraction, so that they can be compared with a part
// of another: plan.clusters.changed <= 0.1 * plan.clusters.total.
type Plan struct {
	// Clusters counts those of all cluster types that the check is for.
	Clusters    Counts           `cel:"clusters"`
	Assignments AssignmentCounts `cel:"assignments"`
	// Removed counts the assignments that clusters would lose, and Workspaces those of each workspace that loses any, sorted by
	// name.
	Removed    float64            `cel:"removed"`
	Workspaces []PlannedWorkspace `cel:"workspaces"`
	// ClusterTypes is sorted by name.
	ClusterTypes []PlannedType `cel:"clusterTypes"`
}

// PlannedWorkspace holds the facts about a workspace that loses assignments. Its name is empty for the platform's own workloads.
type PlannedWorkspace struct {
	Name    string  `cel:"name"`
	Removed float64 `cel:"removed"`
}

// PlannedType holds the facts about one cluster type.
type PlannedType struct {
	Name   string            `cel:"name"`
	Labels map[string]string `cel:"labels"`
	// Changed is true if clusters of the type would get other content than they have.
	Changed bool `cel:"changed"`
	// New is true if the type has no release yet, and Left if it has left the environment. A type that has left has no labels,
	// so checks of all selectors are for it.
	New  bool `cel:"new"`
	Left bool `cel:"left"`
	// Clusters counts those of the type. Those of a new type do not count as changed, since they have nothing yet.
	Clusters    Counts           `cel:"clusters"`
	Assignments AssignmentCounts `cel:"assignments"`
	// Removed and Workspaces are those of Plan, for the type.
	Removed    float64            `cel:"removed"`
	Workspaces []PlannedWorkspace `cel:"workspaces"`
}

// Counts are numbers of clusters: all, and those that would get other content than they have.
type Counts struct {
	Total   float64 `cel:"total"`
	Changed float64 `cel:"changed"`
}

// AssignmentCounts are numbers of assignments: those of the plan, and those that fail, which keep their content.
type AssignmentCounts struct {
	Total  float64 `cel:"total"`
	Failed float64 `cel:"failed"`
}

// Facts are what plan checks judge.
type Facts struct {
	Environment string
	// ClustersKnown is true if the clusters of the environment are known. Otherwise a check that reads their numbers refuses.
	ClustersKnown bool
	ClusterTypes  []PlannedType
}

// MaxRemoved is the name of the bound on removals in a Judgement. No PlatformCheck can have it.
const MaxRemoved = "maxRemoved"

// Judgement is the outcome of a plan check, or of the bound on removals, that does not accept a publication.
type Judgement struct {
	Check   string           `json:"check"`
	At      finding.Position `json:"at"`
	Warning bool             `json:"warning,omitempty"`
	Message string           `json:"message"`
	Hint    string           `json:"hint,omitempty"`
}

// Err returns the judgement as an error, with its place.
func (j Judgement) Err() error {
	if j.Check == MaxRemoved {
		return finding.Errorf(finding.CodePlanCheck, j.At, j.Hint, "%s", j.Message)
	}
	return finding.Errorf(finding.CodePlanCheck, j.At, j.Hint, "PlatformCheck %q: %s", j.Check, j.Message)
}

// Changes is Plan if any cluster type gets other content. Otherwise it returns nothing: content that is only renewed has been judged.
func (s *Set) Changes(facts Facts) []Judgement {
	if !slices.ContainsFunc(facts.ClusterTypes, func(t PlannedType) bool { return t.Changed }) {
		return nil
	}
	return s.Plan(facts)
}

// HasPlans reports whether there is any plan check.
func (s *Set) HasPlans() bool { return s != nil && len(s.plans) > 0 }

// Plan returns the outcome of each plan check that does not accept the facts, in the order of names.
func (s *Set) Plan(facts Facts) []Judgement {
	if s == nil {
		return nil
	}
	var all []Judgement
	for _, c := range s.plans {
		j := Judgement{Check: c.name, At: c.at, Warning: c.warning}
		if c.clusters && !facts.ClustersKnown {
			j.Message, j.Hint = "the check counts clusters, and they are not known", `add Cluster objects to the platform, with "wherry roster add", or give --hub`
			all = append(all, j)
			continue
		}
		cost := uint64(0)
		met, message, hint := c.judge(map[string]any{"plan": planOf(c, facts), "environment": facts.Environment}, &cost)
		if !met {
			j.Message, j.Hint = message, hint
			all = append(all, j)
		}
	}
	return all
}

// planOf sums up the cluster types that a check is for.
func planOf(c *check, facts Facts) Plan {
	p := Plan{ClusterTypes: []PlannedType{}}
	byWorkspace := map[string]float64{}
	for _, t := range facts.ClusterTypes {
		if !t.Left && !c.types.Matches(labels.Set(t.Labels)) {
			continue
		}
		p.ClusterTypes = append(p.ClusterTypes, t)
		p.Clusters.Total, p.Clusters.Changed = p.Clusters.Total+t.Clusters.Total, p.Clusters.Changed+t.Clusters.Changed
		p.Assignments.Total, p.Assignments.Failed = p.Assignments.Total+t.Assignments.Total, p.Assignments.Failed+t.Assignments.Failed
		p.Removed += t.Removed
		for _, w := range t.Workspaces {
			byWorkspace[w.Name] += w.Removed
		}
	}
	p.Workspaces = WorkspacesOf(byWorkspace)
	slices.SortFunc(p.ClusterTypes, func(a, b PlannedType) int { return strings.Compare(a.Name, b.Name) })
	return p
}

// WorkspacesOf lists counts of removed assignments by workspace.
func WorkspacesOf(removed map[string]float64) []PlannedWorkspace {
	list := []PlannedWorkspace{}
	for _, name := range slices.Sorted(maps.Keys(removed)) {
		list = append(list, PlannedWorkspace{name, removed[name]})
	}
	return list
}
