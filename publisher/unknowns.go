package publisher

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/usage"
	"github.com/wherry-dev/wherry/scheduler"
)

// unknowns lists the unknown parts of a publication's input, and the assignments that it drops on purpose. Assignments in an
// unknown part keep their content of the last release.
type unknowns struct {
	// unread are the registrations that could not be read, failedPolicies the scheduling policies whose selection is
	// unknown.
	unread         []platform.Unread
	failedPolicies []scheduler.FailedPolicy
	// dropping are the registrations that drop too many of their own targets, each with what is wrong.
	dropping map[string]string
	// waiting are the workloads whose new content the environment below has not proved, each with what it waits for.
	waiting map[ledger.Key]string
	// undone are the workloads that would come again as a revision which was taken back, each with the mark.
	undone map[ledger.Key]ledger.Undone
	// drops holds the assignments that are given up, as <cluster type>/<name>.
	drops map[string]bool
}

// check refuses to drop an assignment that does not exist and is probably mistyped. All cluster types are planned, and
// there has the drops that name an assignment.
func (g unknowns) check(there map[string]bool) error {
	for _, drop := range slices.Sorted(maps.Keys(g.drops)) {
		if !there[drop] {
			return usage.Errorf("there is no assignment %s to drop: none failed, and none is in the last release", drop)
		}
	}
	return nil
}

// any reports whether some earlier assignments may or may not be assigned still.
func (g unknowns) any() bool { return len(g.unread)+len(g.failedPolicies) > 0 }

// of returns the unknowns of one cluster type.
func (g unknowns) of(ct asked) typeUnknowns { return typeUnknowns{g, ct.Name, ct.left} }

// typeUnknowns are the unknowns of one cluster type. What leaves with its cluster type does so whatever its source and its
// policies say.
type typeUnknowns struct {
	unknowns
	clusterType string
	left        bool // the environment has it no more
}

// drop is how PublishOptions.Drop names an assignment.
func (g typeUnknowns) drop(name string) string { return g.clusterType + "/" + name }

// isUnread reports whether a registration's source could not be read.
func (g typeUnknowns) isUnread(registration string) bool {
	return !g.left && slices.ContainsFunc(g.unread, func(u platform.Unread) bool { return u.Registration == registration })
}

// unreadReason returns the reason for holding the assignments of a registration whose source could not be read, or
// exceeds a bound.
func (g typeUnknowns) unreadReason(registration string) scheduler.FailureReason {
	for _, u := range g.unread {
		if u.Registration == registration {
			return scheduler.ReasonOf(u.Err, SourceUnreadable)
		}
	}
	return SourceUnreadable
}

// isFailedPolicy reports whether it is not known what a policy selects.
func (g typeUnknowns) isFailedPolicy(name string) bool {
	return !g.left && slices.ContainsFunc(g.failedPolicies, func(f scheduler.FailedPolicy) bool { return f.Name == name })
}

// outcome is what became of the assignments of a cluster type when they were rendered.
type outcome struct {
	rendered []scheduler.Assignment
	failed   map[string]FailedAssignment // by name
}

// compare returns o with what fails of the last release because it is not known whether it is still asked for: its
// registration's source cannot be read, also where another registration has taken the name meanwhile, or a policy that
// selected it fails. What another policy selects as well is rendered, and keeps both names.
func (g typeUnknowns) compare(o outcome, last []bundle.Assignment) outcome {
	o = outcome{slices.Clone(o.rendered), maps.Clone(o.failed)}
	g.holdBack(o, last)
	for _, a := range last {
		g.compareSelection(o, a)
		if _, known := o.failed[a.Name]; g.isUnread(a.Registration) && !known {
			o.failed[a.Name] = FailedAssignment{
				Name: a.Name, Error: fmt.Sprintf("the source of registration %s cannot be read", a.Registration), Reason: g.unreadReason(a.Registration),
			}
		}
	}
	o.rendered = slices.DeleteFunc(o.rendered, func(a scheduler.Assignment) bool {
		_, fails := o.failed[a.Name]
		return fails
	})
	return o
}

// holdBack notes in o all that a registration which drops too many targets had, and what is new of it, and the same of workloads
// that wait: each of them stays whole.
func (g typeUnknowns) holdBack(o outcome, last []bundle.Assignment) {
	if g.left {
		return
	}
	fail := func(name string, of ledger.Key) {
		_, failed := o.failed[name]
		mark, undone := g.undone[of]
		switch {
		case g.dropping[of.Registration] != "":
			o.failed[name] = FailedAssignment{Name: name, Error: fmt.Sprintf("registration %s drops too many deployment targets at once", of.Registration), Reason: TooManyRemoved}
		case undone && !failed:
			o.failed[name] = FailedAssignment{Name: name, Error: staysOut(mark), Reason: Undone}
		case g.waiting[of] != "" && !failed:
			o.failed[name] = FailedAssignment{Name: name, Error: g.waiting[of], Reason: AwaitingProof}
		}
	}
	for _, a := range last {
		fail(a.Name, keyOf(a))
	}
	for _, a := range o.rendered {
		fail(a.Name, ledger.Key{Registration: a.Registration, Workload: a.Workload})
	}
}

// compareSelection judges an assignment of the last release by the policies that have failed since, and notes that in o.
func (g typeUnknowns) compareSelection(o outcome, a bundle.Assignment) {
	unknown := slices.DeleteFunc(slices.Clone(a.Policies), func(name string) bool { return !g.isFailedPolicy(name) })
	if len(unknown) == 0 {
		return
	}
	for i := range o.rendered {
		if r := &o.rendered[i]; r.Name == a.Name {
			r.Policies = slices.Compact(slices.Sorted(slices.Values(slices.Concat(r.Policies, unknown))))
			return
		}
	}
	if _, known := o.failed[a.Name]; !known {
		o.failed[a.Name] = FailedAssignment{
			Name: a.Name, Error: fmt.Sprintf("it is not known what the scheduling policy %s selects", strings.Join(unknown, ", ")), Reason: PolicyFailed,
		}
	}
}

// lost returns the outcome if err keeps the content of failed assignments from being known: none of them is kept.
func (g typeUnknowns) lost(o outcome, err error) kept {
	k := kept{rendered: o.rendered}
	for _, name := range slices.Sorted(maps.Keys(o.failed)) {
		k.add(o.failed[name])
	}
	what := fmt.Sprintf("%d of %d assignments failed", len(o.failed), len(o.failed)+len(o.rendered))
	remedy := "restore it, or give them up with --drop"
	if len(o.failed) == 0 {
		what, remedy = "assignments of a registration that cannot be read may be on it", "restore it, or correct the registration's source"
		if len(g.unread) == 0 {
			what, remedy = "assignments of a scheduling policy that fails may be on it", "restore it, or correct the policy"
		}
	}
	k.lost = fmt.Sprintf("%s, and what they had is not known: %v: %s", what, err, remedy)
	for drop := range g.drops {
		if strings.HasPrefix(drop, g.drop("")) {
			k.there = append(k.there, drop) // nobody can say that there is no such assignment
		}
	}
	return k
}

// needLast reports whether the last release has to be read: for the content of held assignments, and to check that the
// assignments to drop exist.
func (g typeUnknowns) needLast(o outcome) bool {
	needed := (g.any() || len(g.dropping)+len(g.waiting)+len(g.undone) > 0) && !g.left
	for name := range o.failed {
		needed = needed || !g.drops[g.drop(name)]
	}
	for drop := range g.drops {
		name, ours := strings.CutPrefix(drop, g.drop(""))
		_, fails := o.failed[name]
		needed = needed || ours && !fails
	}
	return needed
}
