package publisher

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/pack"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/scheduler"
)

// SourceUnreadable is the reason of an assignment that is held because the source of its registration
// could not be fetched or parsed. It says no more, so that an outage which changes its face from one run
// to the next gives no new releases.
const SourceUnreadable scheduler.FailureReason = "SourceUnreadable"

// PolicyFailed is the reason of an assignment that is held because a scheduling policy that had selected it has a
// mistake in its selectors, so that it is not known whether it still does.
const PolicyFailed scheduler.FailureReason = "PolicyFailed"

// AwaitingProof is the reason of an assignment that keeps its files because its workload waits for a proof of the environment below.
// That is no failure.
const AwaitingProof scheduler.FailureReason = "AwaitingProof"

// Undone is the reason of an assignment that keeps its files because its workload would come again as a revision which was taken back. That
// is no failure, and no mark of the assignment, which has what a person gave back to it.
const Undone scheduler.FailureReason = "Undone"

// kept is the outcome for the assignments of a cluster type.
type kept struct {
	// rendered and held are published: with their new content, and with that of an earlier release.
	rendered []scheduler.Assignment
	held     []pack.Held
	// sites are published beside them.
	sites siteValues
	// failures, waiting and dropped are listed in the result.
	failures, waiting, dropped []FailedAssignment
	// lost is the reason why the earlier content of failed assignments is unknown, so that nothing may be published;
	// empty if it is known.
	lost string
	// there names the existing assignments, in the form of PublishOptions.Drop, and intact those to drop that did not fail.
	there, intact []string
}

// hold decides on the failed assignments of ct: they are dropped on purpose, held with their content of the last release,
// or left out because they never had any. If their earlier content is unknown, ct is not published: leaving an assignment
// out would order its deletion.
func (n *planner) hold(ctx context.Context, ct asked, at found, record state.Record) (kept, error) {
	o, unknowns := outcomeOf(ct), n.unknowns.of(ct)
	k, err := n.holdFailed(ctx, o, ct.Sites, unknowns, at, record)
	if err != nil {
		return k, err
	}
	k.failures = append(k.failures, takenOf(ct)...)
	slices.SortStableFunc(k.failures, func(a, b FailedAssignment) int { return cmp.Compare(a.Name, b.Name) })
	return k, nil
}

// outcomeOf returns the rendered and the failed assignments of ct, without those whose name another one has taken.
func outcomeOf(ct asked) outcome {
	o := outcome{ct.Assignments, map[string]FailedAssignment{}}
	for _, f := range ct.Failures {
		if !f.Taken {
			o.failed[f.Name] = FailedAssignment{Name: f.Name, Error: f.Err.Error(), Reason: cmp.Or(f.Reason, scheduler.RenderFailed)}
		}
	}
	return o
}

// takenOf lists the failures of those whose names others have: nothing is held for them.
func takenOf(ct asked) []FailedAssignment {
	var taken []FailedAssignment
	for _, f := range ct.Failures {
		if f.Taken {
			taken = append(taken, FailedAssignment{Name: f.Name, Error: f.Err.Error(), Reason: f.Reason, Taken: true, Registration: f.Registration})
		}
	}
	return taken
}

// holdFailed does what hold says for those whose names nobody else has.
func (n *planner) holdFailed(ctx context.Context, o outcome, sites *scheduler.Sites, unknowns typeUnknowns, at found, record state.Record) (k kept, err error) {
	var last *lastRelease
	var listed []bundle.Assignment // in last
	needed := unknowns.needLast(o)
	if needed || !sites.IsFinal() {
		last, err = n.openLast(ctx, at, record)
	}
	if err == nil && last != nil {
		defer func() { _ = last.tree.Close() }() // a temporary folder
		listed = last.tree.Assignments
	}
	if err == nil && (needed || last != nil) { // a new cluster type gets nothing that waits, either
		o = unknowns.compare(o, listed)
	}
	if err == nil {
		k, err = unknowns.keep(o, last, n.accountOf)
	}
	if err == nil {
		k.sites, err = last.siteValues(sites, k.held)
	}
	var unknown *state.LostError
	if errors.As(err, &unknown) {
		k := unknowns.lost(o, unknown)
		if !needed {
			k.lost = lostSites(sites, unknown)
		}
		return k, nil
	}
	for _, a := range o.rendered {
		if drop := unknowns.drop(a.Name); unknowns.drops[drop] {
			k.there, k.intact = append(k.there, drop), append(k.intact, drop)
		}
	}
	for name := range o.failed {
		k.there = append(k.there, unknowns.drop(name))
	}
	for _, a := range listed {
		k.there = append(k.there, unknowns.drop(a.Name))
	}
	return k, err
}

// keep takes from last, which may be nil, what failed and is not dropped. AccountOf is scheduler.Result.ServiceAccount.
func (g typeUnknowns) keep(o outcome, last *lastRelease, accountOf func(workspace, namespace string) string) (kept, error) {
	k := kept{rendered: o.rendered}
	had := map[string]bundle.Assignment{}
	if last != nil {
		for _, a := range last.tree.Assignments {
			had[a.Name] = a
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.failed)) {
		f := o.failed[name]
		if g.drops[g.drop(name)] {
			k.dropped = append(k.dropped, f)
			continue
		}
		if a, published := had[name]; published {
			h, err := last.hold(a, f.Reason)
			h.Line.ServiceAccount = accountOf(a.Workspace, a.Namespace) // permissions follow the present platform
			if err != nil {
				return k, state.LostIfRefused(err, "release %s", last.name)
			}
			k.held, f.HeldFrom = append(k.held, h), last.heldFrom(a.HeldFrom, f.Reason)
		}
		k.add(f)
	}
	return k, nil
}

// add lists an assignment that has not been dropped.
func (k *kept) add(f FailedAssignment) {
	if f.Reason == AwaitingProof || f.Reason == Undone {
		k.waiting = append(k.waiting, f)
	} else {
		k.failures = append(k.failures, f)
	}
}

// lastRelease is a release of ours with its content.
type lastRelease struct {
	name    string
	release bundle.Release
	tree    *published.Tree
}

// hold takes an assignment over. One that is held already names the release in which it was last rendered.
func (l *lastRelease) hold(a bundle.Assignment, reason scheduler.FailureReason) (pack.Held, error) {
	files, err := l.tree.Files(a)
	if reason != Undone {
		a.HeldFrom = l.heldFrom(a.HeldFrom, reason)
	}
	return pack.Held{Line: a, Files: files, Artifacts: l.tree.ArtifactsOf(a.Name), Sources: l.tree.SourcesOf(a.Name)}, err
}

// openLast opens the release that failed assignments keep their content from. It returns nil where there never was one,
// and a *state.LostError where it cannot be fetched and verified.
func (n *planner) openLast(ctx context.Context, at found, record state.Record) (*lastRelease, error) {
	v, err := n.last(ctx, at, record)
	if v == nil || err != nil {
		return nil, err
	}
	tree, err := at.Type.Type.Tree(ctx, v)
	if err != nil {
		return nil, state.LostIfRefused(err, "release %s", v.Name())
	}
	return &lastRelease{v.Name(), v.Release, tree}, nil
}

// last returns the release that failed assignments keep their content from; nil where there never was one.
func (n *planner) last(ctx context.Context, at found, record state.Record) (*bundle.Verified, error) {
	return n.Last(ctx, at.Type, at.base(), record)
}
