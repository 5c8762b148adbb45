package diff

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// Tree is what a cluster type has now.
type Tree struct {
	// Read returns the files of an assignment that are not empty, by their paths below its folder.
	Read func(a bundle.Assignment) (map[string][]byte, error)
	// Listed is what the bundle says of its assignments. A rendered folder says nothing: it has names alone.
	Listed []bundle.Assignment
	// Sources says where embedded files came from; nil if there are none, or nothing says so.
	Sources []bundle.AssignmentSources
	// Sites are its site values.
	Sites Sites
	// namesOnly is true for a rendered folder.
	namesOnly bool
}

// State is what a cluster type would have.
type State struct {
	name     string
	Rendered []scheduler.Assignment
	Failed   []FailedDifference
	// Held names assignments that keep what clusters have of them.
	Held map[string]bool
	// Sites are the site values, and FailedSites the clusters that have mistakes in theirs.
	Sites       Sites
	FailedSites []FailedSite
	// Dropped gives the errors of assignments that are given up.
	Dropped map[string]string
	// keep is true where nothing is removed, because not all sources could be read.
	keep bool
}

// StateOf returns what a cluster type would have as it was rendered.
func StateOf(ct scheduler.ClusterTypeResult) State {
	s := State{name: ct.Name, Rendered: ct.Assignments, Failed: []FailedDifference{}}
	for _, f := range ct.Failures {
		s.Failed = append(s.Failed, FailedDifference{Name: f.Name, Error: f.Err.Error(), Taken: f.Taken})
	}
	return s
}

// Unchanged returns the difference of a type whose content is unchanged.
func (s State) Unchanged() *TypeDifference {
	d := &TypeDifference{
		ClusterType: s.name, Result: ResultUnchanged, Assignments: len(s.Rendered), Unchanged: len(s.Rendered),
		Changes: []AssignmentDifference{}, Failed: s.Failed, FailedSites: s.FailedSites,
	}
	for _, f := range s.Failed {
		if f.Stands {
			d.Assignments++
		}
	}
	return d
}

// Type compares the new state with the earlier tree, which is nil if there is none. The difference is never nil.
func (c *Comparison) Type(ctx context.Context, now State, old *Tree) (*TypeDifference, error) {
	result := ResultUnchanged
	if old == nil {
		result, old = ResultNew, &Tree{}
	}
	before := map[string]bundle.Assignment{}
	for _, a := range old.Listed {
		before[a.Name] = a
	}
	for i := range now.Failed {
		if now.Failed[i].Taken {
			continue
		}
		_, now.Failed[i].Stands = before[now.Failed[i].Name]
		delete(before, now.Failed[i].Name)
	}
	d := now.Unchanged()
	d.Result, d.Unchanged = result, 0
	for name := range now.Held {
		if _, stands := before[name]; stands {
			d.Assignments++
			d.Unchanged++
			delete(before, name)
		}
	}
	var added []scheduler.Assignment
	for _, a := range now.Rendered {
		was, there := before[a.Name]
		delete(before, a.Name)
		if !there {
			added = append(added, a)
			d.Changes = append(d.Changes, c.added(a))
			continue
		}
		change, err := c.changed(ctx, a, was, old)
		if err != nil {
			return d, err
		}
		if change == nil {
			d.Unchanged++
			continue
		}
		d.Changes = append(d.Changes, *change)
	}
	if now.keep {
		d.Assignments, d.Unchanged, before = d.Assignments+len(before), d.Unchanged+len(before), nil
	}
	var removed []bundle.Assignment
	for _, a := range before {
		removed = append(removed, a)
		d.Changes = append(d.Changes, c.removed(ctx, now, a))
	}
	slices.SortFunc(d.Changes, func(a, b AssignmentDifference) int { return strings.Compare(a.Name, b.Name) })
	if result != ResultNew && !old.namesOnly {
		d.SiteValues = SitesBetween(old.Sites, now.Sites)
		var err error
		if d.Lacking, err = lacking(now.Rendered, d.Changes, old); err != nil {
			return d, err
		}
	}
	if (len(d.Changes) > 0 || d.SiteValues != nil) && d.Result == ResultUnchanged {
		d.Result = ResultChanged
	}
	return d, c.findRenames(now.name, added, removed, old)
}

func (c *Comparison) added(a scheduler.Assignment) AssignmentDifference {
	d := AssignmentDifference{Name: a.Name, Change: ChangeAdded, Workspace: a.Workspace}
	for _, name := range a.Policies {
		d.Because = append(d.Because, c.policy(name))
	}
	return d
}

func (c *Comparison) policy(name string) Cause {
	return Cause{"SchedulingPolicy", scheduler.Named{Name: name, Position: c.explain.Policy(name)}}
}

// removed returns the difference of a removed assignment, with the reason: its target, its cluster type, or the policies.
func (c *Comparison) removed(ctx context.Context, now State, a bundle.Assignment) AssignmentDifference {
	d := AssignmentDifference{Name: a.Name, Change: ChangeRemoved, Workspace: a.Workspace}
	if failed, dropped := now.Dropped[a.Name]; dropped {
		d.Why = "it is dropped on purpose, having failed: " + failed
		return d
	}
	x, err := c.explain.Pair(ctx, now.name, a.Name)
	if err != nil {
		var mistake *finding.Error
		if d.Why = err.Error(); errors.As(err, &mistake) {
			d.Why = mistake.Message // the suggestion would be for a person who mistyped the name
		}
		return d
	}
	if c.Decision != nil {
		d.Why = "the decision that was given does not name it"
		return d
	}
	var reasons []string
	for _, p := range x.Policies {
		if slices.Contains(a.Policies, p.Name) {
			reasons = append(reasons, fmt.Sprintf("policy %s (%s) %s", p.Name, p.Position, unmet(p)))
		}
	}
	for _, name := range a.Policies {
		if c.explain.Policy(name) == (finding.Position{}) {
			reasons = append(reasons, fmt.Sprintf("there is no policy %s any more", name))
		}
	}
	if len(a.Policies) == 0 { // of a rendered folder
		reasons = nearMisses(x.Policies)
	}
	d.Why = strings.Join(reasons, "; ")
	return d
}

// nearMisses names the policies that one term keeps from selecting.
func nearMisses(policies []scheduler.PolicyMatch) []string {
	reasons := []string{"no policy selects it"}
	for _, p := range policies {
		if n := len(unmetTerms(p)); n == 1 {
			reasons = append(reasons, fmt.Sprintf("policy %s (%s) %s", p.Name, p.Position, unmet(p)))
		}
	}
	return reasons
}

func unmetTerms(p scheduler.PolicyMatch) []scheduler.Term {
	return slices.DeleteFunc(slices.Clone(p.Terms), func(t scheduler.Term) bool { return t.Met })
}

// unmet returns the unmet terms of a policy as a text.
func unmet(p scheduler.PolicyMatch) string {
	var terms []string
	for _, t := range unmetTerms(p) {
		side := "of the target"
		if t.Side == scheduler.TypeSide {
			side = "of the cluster type"
		}
		terms = append(terms, fmt.Sprintf("asks %s %s, which has %s", side, t.Asks, labelText(t)))
	}
	return strings.Join(terms, ", ")
}

func labelText(t scheduler.Term) string {
	if t.Value == nil {
		return "no label " + t.Label
	}
	return t.Label + "=" + *t.Value
}
