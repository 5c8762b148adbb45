package diff

import (
	"cmp"
	"slices"

	"github.com/wherry-dev/wherry/publisher/impact"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/scheduler"
)

// Comparison collects the differences of one environment. Done is complete once Conclude was called.
type Comparison struct {
	platform.Built
	// Fleet is the roster of the platform, unless the caller knows more.
	Fleet   impact.Fleet
	Done    *Difference
	explain *scheduler.Explainer
}

// New returns a Comparison of planned with the content of a location. Against is the location's name for people.
func New(planned platform.Built, against string) (*Comparison, error) {
	e, err := planned.Loaded.Model.Explainer(planned.Decision)
	if err != nil {
		return nil, err
	}
	result := planned.Result
	c := &Comparison{Built: planned, Fleet: RosterOf(planned.Loaded.Model), explain: e, Done: &Difference{
		Platform: result.Platform, Environment: result.Environment, Against: against, BaseCommit: result.BaseCommit,
		ClusterTypes: []TypeDifference{}, Renames: []Rename{}, Waiting: []WaitingWorkspace{},
	}}
	c.Done.Unread, c.Done.FailedPolicies = platform.UnreadOf(planned.Loaded.Unread), platform.FailedPoliciesOf(result.FailedPolicies)
	for _, s := range planned.Loaded.Shared {
		c.Done.Shared = append(c.Done.Shared, SharedFiles(s))
	}
	return c, nil
}

// Conclude adds what concerns the environment as a whole.
func (c *Comparison) Conclude() {
	byWorkspace := map[string][]scheduler.WaitingTarget{}
	for _, t := range c.explain.Waiting() {
		byWorkspace[t.Workspace] = append(byWorkspace[t.Workspace], t)
	}
	for workspace, targets := range byWorkspace {
		c.Done.Waiting = append(c.Done.Waiting, WaitingWorkspace{workspace, targets})
	}
	slices.SortFunc(c.Done.Waiting, func(a, b WaitingWorkspace) int { return cmp.Compare(a.Workspace, b.Workspace) })
	c.Done.Impact = c.Done.facts(c.Fleet)
	slices.SortFunc(c.Done.Renames, func(a, b Rename) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
}

// Apart returns a comparison of the same environment with a Difference of its own, for changes that another comparison
// lists already.
func (c *Comparison) Apart() *Comparison {
	return &Comparison{Built: c.Built, explain: c.explain, Done: &Difference{}}
}
