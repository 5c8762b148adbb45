package publisher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// standingTree is what a cluster type has now: a folder per assignment.
type standingTree struct {
	files fs.FS
	// listed is what the bundle says of its assignments. A rendered folder says nothing: it has names alone.
	listed []bundle.Assignment
	// namesOnly is true for a rendered folder.
	namesOnly bool
}

// typeState is what a cluster type would have.
type typeState struct {
	name     string
	rendered []scheduler.Assignment
	failed   []FailedDifference
	// dropped gives the errors of assignments that are given up.
	dropped map[string]string
	// keep is true where nothing is removed, because not all sources could be read.
	keep bool
}

func resultType(ct scheduler.ClusterTypeResult) typeState {
	s := typeState{name: ct.Name, rendered: ct.Assignments, failed: []FailedDifference{}}
	for _, f := range ct.Failures {
		s.failed = append(s.failed, FailedDifference{Name: f.Name, Error: f.Err.Error(), Taken: f.Taken})
	}
	return s
}

// plannedType is what publishing would make of a cluster type.
func plannedType(pl *plan) typeState {
	s := resultType(pl.clusterType)
	if pl.content != nil { // else something keeps it from being published
		s.rendered = pl.rendered
	}
	if len(pl.result.Failures)+len(pl.result.Dropped) > 0 {
		s.failed, s.dropped = []FailedDifference{}, map[string]string{}
		for _, f := range pl.result.Failures {
			s.failed = append(s.failed, FailedDifference{Name: f.Name, Error: f.Error, Taken: f.Taken, Stands: f.HeldFrom != nil})
		}
		for _, f := range pl.result.Dropped {
			s.dropped[f.Name] = f.Error
		}
	}
	return s
}

// unchanged is the difference of a type whose content is what it was.
func (s typeState) unchanged() *TypeDifference {
	d := &TypeDifference{
		ClusterType: s.name, Result: StandingUnchanged, Assignments: len(s.rendered), Unchanged: len(s.rendered),
		Changes: []AssignmentDifference{}, Failed: s.failed,
	}
	for _, f := range s.failed {
		if f.Stands {
			d.Assignments++
		}
	}
	return d
}

// clusterType compares with what stands, which is nil where there is nothing. The difference is never nil.
func (c *comparison) clusterType(ctx context.Context, now typeState, old *standingTree) (*TypeDifference, error) {
	result := StandingUnchanged
	if old == nil {
		result, old = StandingNew, &standingTree{}
	}
	before := map[string]bundle.Assignment{}
	for _, a := range old.listed {
		before[a.Name] = a
	}
	for i := range now.failed {
		if now.failed[i].Taken {
			continue
		}
		_, now.failed[i].Stands = before[now.failed[i].Name]
		delete(before, now.failed[i].Name)
	}
	d := now.unchanged()
	d.Result, d.Unchanged = result, 0
	var added []scheduler.Assignment
	for _, a := range now.rendered {
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
	if len(d.Changes) > 0 && d.Result == StandingUnchanged {
		d.Result = StandingChanged
	}
	return d, c.findRenames(now.name, added, removed, old)
}

func (c *comparison) added(a scheduler.Assignment) AssignmentDifference {
	d := AssignmentDifference{Name: a.Name, Change: ChangeAdded, Workspace: a.Workspace}
	for _, name := range a.Policies {
		d.Because = append(d.Because, c.policy(name))
	}
	return d
}

func (c *comparison) policy(name string) Cause {
	return Cause{"SchedulingPolicy", scheduler.Named{Name: name, Position: c.explain.Policy(name)}}
}

// removed says why an assignment is no longer there: because of its sides, or of the policies.
func (c *comparison) removed(ctx context.Context, now typeState, a bundle.Assignment) AssignmentDifference {
	d := AssignmentDifference{Name: a.Name, Change: ChangeRemoved, Workspace: a.Workspace}
	if failed, dropped := now.dropped[a.Name]; dropped {
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

// unmet says which terms of a policy do not hold.
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
