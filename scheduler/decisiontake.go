package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// obey takes the assignments from d instead of the platform's policies. If the platform is
// incomplete, an unknown target fails by itself.
func (r *renderer) obey(d *Decision, incomplete bool) error {
	if d.Environment != r.model.environment {
		return finding.Errorf("", d.at, "", "the decision is for environment %q, not for %q", d.Environment, r.model.environment)
	}
	r.unknown = map[string][]Failure{}
	o := &obedience{
		renderer: r, types: sortedKeys(r.model.objects.ClusterTypes), byName: map[string][]int{},
		taken: map[[3]string]finding.Position{}, selected: map[[2]string]*selectedPair{},
	}
	for i, t := range r.targets {
		o.byName[t.Name] = append(o.byName[t.Name], i)
	}
	var errs []error
	for _, a := range d.Assignments {
		err := o.take(a)
		var failed *reasonedError
		if incomplete && errors.As(err, &failed) && failed.reason == TargetUnknown {
			r.unknown[a.ClusterType] = append(r.unknown[a.ClusterType], newFailure(a.Name, a.ClusterType, err))
		} else if err != nil {
			errs = append(errs, err)
		}
		if len(errs) == 10*finding.MaxReported { // the file is of another platform; hints cost time
			break
		}
	}
	for _, p := range o.selected {
		r.policies = append(r.policies, *p)
	}
	slices.SortFunc(r.policies, func(a, b selectedPair) int { return strings.Compare(a.policy, b.policy) })
	return finding.Join(errs)
}

// obedience turns a decision into pairs, one for each policy on each cluster type.
type obedience struct {
	*renderer
	types    []string
	byName   map[string][]int               // targets; several where names clash
	taken    map[[3]string]finding.Position // by cluster type, name, registration
	selected map[[2]string]*selectedPair    // by policy, cluster type
}

func (o *obedience) take(a Decided) error {
	i, known := slices.BinarySearch(o.types, a.ClusterType)
	if !known {
		return finding.Errorf("", a.at, finding.DidYouMean(a.ClusterType, o.types), "there is no cluster type %q", a.ClusterType)
	}
	targets := o.byName[a.Name]
	if len(targets) > 0 {
		agreeing := slices.DeleteFunc(slices.Clone(targets), func(t int) bool { return a.agrees(o.targets[t]) != nil })
		if len(agreeing) == 0 {
			return a.agrees(o.targets[targets[0]])
		}
		targets = agreeing
	}
	key := [3]string{a.ClusterType, a.Name, a.Registration}
	if first, twice := o.taken[key]; twice {
		return finding.Errorf("", a.at, "remove one of them", "%s is on %s twice, first at %s", a.Name, a.ClusterType, first)
	}
	o.taken[key] = a.at
	if len(targets) == 0 {
		return o.unknownTarget(a)
	}
	policies := a.Policies
	if len(policies) == 0 {
		policies = []DecidedBy{{}}
	}
	for _, p := range policies {
		if err := checkReason(a.at, p.Name, len(a.Policies)); err != nil {
			return err
		}
		o.pair(p.Name, i).add(targets)
	}
	return nil
}

// pair returns what a policy, or none, selects on the i-th cluster type.
func (o *obedience) pair(policy string, i int) *selectedPair {
	key := [2]string{policy, o.types[i]}
	p := o.selected[key]
	if p == nil {
		p = &selectedPair{policy: policy, types: newBitset(len(o.types)), targets: newBitset(len(o.targets))}
		p.types.add(i)
		o.selected[key] = p
	}
	return p
}

func (p *selectedPair) add(targets []int) {
	for _, t := range targets {
		p.targets.add(t)
	}
}

// unknownTarget returns the error for an unknown target, by its name or its environment.
func (o *obedience) unknownTarget(a Decided) error {
	for _, w := range o.model.objects.Workloads {
		for i := range w.Spec.DeploymentTargets {
			if t := &w.Spec.DeploymentTargets[i]; w.Metadata.Name+"-"+t.Name == a.Name {
				return finding.Errorf("", a.at, "", "deployment target %q is for environment %q (%s), not for %q",
					a.Name, t.Environment, w.Position(t.Line), o.model.environment)
			}
		}
	}
	var names []string
	for _, t := range o.targets {
		names = append(names, t.Name)
	}
	return because(TargetUnknown, finding.Errorf("", a.at, finding.DidYouMean(a.Name, names), "there is no deployment target %q in environment %q", a.Name, o.model.environment))
}

// addUnknown adds the failures of unknown targets in the decision.
func (r *renderer) addUnknown(result *ClusterTypeResult) {
	if more := r.unknown[result.Name]; len(more) > 0 {
		result.Failures = append(result.Failures, more...)
		slices.SortFunc(result.Failures, func(a, b Failure) int { return strings.Compare(a.Name, b.Name) })
	}
}

// agrees returns an error if the decision is about another target of that name, made from other input.
func (a Decided) agrees(t *target) error {
	for _, f := range []struct{ field, got, want string }{
		{"workspace", a.Workspace, t.Workspace},
		{"workload", a.Workload, t.Workload.Metadata.Name},
		{"target", a.Target, t.Spec.Name},
		{"registration", a.Registration, t.Workload.Registration},
	} {
		if f.got != "" && f.got != f.want {
			return finding.Errorf("", a.at, "leave it out, or decide again on this input", "%s has %s %q, not %q", a.Name, f.field, f.want, f.got)
		}
	}
	return nil
}

const (
	// maxReasonBytes bounds the name of one policy, as Kubernetes bounds that of an object.
	maxReasonBytes = 253
	// maxReasons bounds the policies of one assignment, whose line in the bundle must stay short.
	maxReasons = 256
)

// checkReason checks the names of policies, which travel in bundles and are shown in tables.
func checkReason(at finding.Position, name string, count int) error {
	switch {
	case count == 0:
		return nil
	case count > maxReasons:
		return finding.Errorf("", at, "", "an assignment with %d policies: at most %d are permitted", count, maxReasons)
	case name == "" || len(name) > maxReasonBytes || strings.ContainsFunc(name, unprintable):
		return finding.Errorf("", at, fmt.Sprintf("use 1 to %d printable characters", maxReasonBytes), "a policy cannot be called %.80q", name)
	}
	return nil
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }
