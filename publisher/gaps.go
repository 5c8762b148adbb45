package publisher

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/usage"
	"github.com/wherry-dev/wherry/scheduler"
)

// gaps is what a publication cannot know of its input, and what it gives up on purpose. What is in a gap is held as the
// last release has it.
type gaps struct {
	// unread and failedPolicies are the registrations and scheduling policies of which it is not known what they select.
	unread         []platform.Unread
	failedPolicies []scheduler.FailedPolicy
	// left names the cluster types that the environment had and has no more.
	left map[string]bool
	// drops holds the assignments that are given up, as <cluster type>/<name>, and dropped those of them
	// that are there, among others.
	drops, dropped map[string]bool
}

// leftTypes returns, without assignments, the cluster types that the last record names and result does
// not, and notes them. An agent of such a type learns by a signed, empty release that nothing is assigned any more.
func (g *gaps) leftTypes(record *bundle.VerifiedEnvironment, result *scheduler.Result) []scheduler.ClusterTypeResult {
	if record == nil {
		return nil
	}
	var left []scheduler.ClusterTypeResult
	for _, name := range record.Record.Types() {
		if !slices.ContainsFunc(result.ClusterTypes, func(ct scheduler.ClusterTypeResult) bool { return ct.Name == name }) {
			left = append(left, scheduler.ClusterTypeResult{Name: name})
			g.left[name] = true
		}
	}
	slices.SortFunc(left, func(a, b scheduler.ClusterTypeResult) int { return cmp.Compare(a.Name, b.Name) })
	return left
}

// checkDrops refuses to give up what is nowhere, which is probably mistyped. All cluster types are planned.
func (g *gaps) checkDrops() error {
	for _, drop := range slices.Sorted(maps.Keys(g.drops)) {
		if !g.dropped[drop] {
			return usage.Errorf("there is no assignment %s to drop: none failed, and none is in the last release", drop)
		}
	}
	return nil
}

// unknown reports whether it is not known of all that was assigned whether it still is.
func (g *gaps) unknown() bool { return len(g.unread)+len(g.failedPolicies) > 0 }

// isUnread reports whether a registration's source could not be read. What leaves with its cluster type does
// so whatever its source says.
func (g *gaps) isUnread(pl *plan, registration string) bool {
	return !g.left[pl.clusterType.Name] && slices.ContainsFunc(g.unread, func(u platform.Unread) bool { return u.Registration == registration })
}

// unreadReason is the reason of what is held because a registration's source could not be read, or brings too much.
func (g *gaps) unreadReason(registration string) scheduler.FailureReason {
	for _, u := range g.unread {
		if u.Registration == registration {
			return scheduler.ReasonOf(u.Err, SourceUnreadable)
		}
	}
	return SourceUnreadable
}

// isFailedPolicy reports whether it is not known what a policy selects for pl. What leaves with its cluster type does
// so whatever policies say.
func (g *gaps) isFailedPolicy(pl *plan, name string) bool {
	return !g.left[pl.clusterType.Name] && slices.ContainsFunc(g.failedPolicies, func(f scheduler.FailedPolicy) bool { return f.Name == name })
}

// compare notes what pl had in its last release, and what of that fails because it is not known whether it is still
// asked for: its registration's source cannot be read, also where another registration has taken the name meanwhile,
// or a policy that selected it fails. What another policy selects as well is rendered, and keeps both names.
func (g *gaps) compare(pl *plan, last *lastRelease) {
	pl.rendered = slices.Clone(pl.rendered)
	for _, a := range last.tree.Assignments {
		pl.had[a.Name] = a
		g.compareSelection(pl, a)
		if _, known := pl.failed[a.Name]; g.isUnread(pl, a.Registration) && !known {
			pl.failed[a.Name] = FailedAssignment{
				Name: a.Name, Error: fmt.Sprintf("the source of registration %s cannot be read", a.Registration), Reason: g.unreadReason(a.Registration),
			}
		}
	}
	pl.rendered = slices.DeleteFunc(pl.rendered, func(a scheduler.Assignment) bool {
		_, fails := pl.failed[a.Name]
		return fails
	})
}

// compareSelection judges an assignment of the last release by the policies that have failed since.
func (g *gaps) compareSelection(pl *plan, a bundle.Assignment) {
	unknown := slices.DeleteFunc(slices.Clone(a.Policies), func(name string) bool { return !g.isFailedPolicy(pl, name) })
	if len(unknown) == 0 {
		return
	}
	for i := range pl.rendered {
		if r := &pl.rendered[i]; r.Name == a.Name {
			r.Policies = slices.Compact(slices.Sorted(slices.Values(slices.Concat(r.Policies, unknown))))
			return
		}
	}
	if _, known := pl.failed[a.Name]; !known {
		pl.failed[a.Name] = FailedAssignment{
			Name: a.Name, Error: fmt.Sprintf("it is not known what the scheduling policy %s selects", strings.Join(unknown, ", ")), Reason: PolicyFailed,
		}
	}
}

// failLost fails pl because of err, which says why what its failed assignments had is not known.
func (g *gaps) failLost(pl *plan, err error) {
	pl.result.Failures, pl.result.Dropped = nil, nil
	for _, name := range slices.Sorted(maps.Keys(pl.failed)) {
		pl.result.Failures = append(pl.result.Failures, pl.failed[name])
	}
	what := fmt.Sprintf("%d of %d assignments failed", len(pl.failed), len(pl.failed)+len(pl.rendered))
	remedy := "restore it, or give them up with --drop"
	if len(pl.failed) == 0 {
		what, remedy = "assignments of a registration that cannot be read may be on it", "restore it, or correct the registration's source"
		if len(g.unread) == 0 {
			what, remedy = "assignments of a scheduling policy that fails may be on it", "restore it, or correct the policy"
		}
	}
	pl.fail("%s, and what they had is not known: %v: %s", what, err, remedy)
	for drop := range g.drops {
		if strings.HasPrefix(drop, pl.drop("")) {
			g.dropped[drop] = true // nobody can say that there is no such assignment
		}
	}
}

// judgeDrops notes which assignments are there to be given up, and warns of those that need not be.
func (g *gaps) judgeDrops(pl *plan, warn func(format string, args ...any)) {
	for _, a := range pl.rendered {
		if drop := pl.drop(a.Name); g.drops[drop] {
			g.dropped[drop] = true
			warn("%s did not fail, so it is not dropped", drop)
		}
	}
	for name := range pl.failed {
		g.dropped[pl.drop(name)] = true
	}
	for name := range pl.had {
		g.dropped[pl.drop(name)] = true
	}
}

// needLast reports whether the last release of pl has to be read: for what is held, and to tell which of the drops is
// there.
func (g *gaps) needLast(pl *plan) bool {
	needed := g.unknown() && !g.left[pl.clusterType.Name]
	for name := range pl.failed {
		needed = needed || !g.drops[pl.drop(name)]
	}
	for drop := range g.drops {
		name, ours := strings.CutPrefix(drop, pl.drop(""))
		_, fails := pl.failed[name]
		needed = needed || ours && !fails
	}
	return needed
}
