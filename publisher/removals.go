package publisher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/check"
)

// TooManyRemoved is the reason of an assignment that is held because its registration would drop more of its own targets at once
// than the platform lets it.
const TooManyRemoved scheduler.FailureReason = "TooManyRemoved"

// loss is what clusters would lose of the release that they have. The zero value loses nothing.
type loss struct {
	of      bundle.Release
	had     []bundle.Assignment
	removed []bundle.Assignment // but for those that are dropped on purpose
}

// loss returns what pl takes away from the clusters to publish to; of several rings, from those that lose most.
func (n *planner) loss(ctx context.Context, pl *plan) (most loss, err error) {
	has := map[string]bool{}
	for _, a := range pl.rendered {
		has[a.Name] = true
	}
	for _, h := range pl.held {
		has[h.Line.Name] = true
	}
	for _, d := range pl.dropped {
		has[d.Name] = true
	}
	for _, v := range pl.replaced() {
		had, err := pl.listAssignments(ctx, v, n.opts.Cache)
		if err != nil {
			var lost *state.LostError
			if err = state.LostIfRefused(err, "release %s", v.Name()); errors.As(err, &lost) {
				n.Warn("%s: the assignments that it had are not known, so nobody counts those that are removed: %v", pl.Name, err)
				err = nil
			}
			return loss{}, err
		}
		l := loss{of: v.Release, had: had}
		for _, a := range l.had {
			if !has[a.Name] {
				l.removed = append(l.removed, a)
			}
		}
		if most.had == nil || len(l.removed) > len(most.removed) {
			most = l
		}
	}
	return most, nil
}

// replaced lists the releases with other content that the one of pl takes the place of.
func (pl *plan) replaced() []*bundle.Verified {
	var differing []*bundle.Verified
	for _, l := range pl.aim {
		if pl.isOf(l.Waiting) { // somebody has agreed to it before signing it
			continue
		}
		if v := l.Release; v != nil && v.Release.Content != pl.tree.Content && !slices.ContainsFunc(differing, func(o *bundle.Verified) bool { return o.Release.Content == v.Release.Content }) {
			differing = append(differing, v)
		}
	}
	return differing
}

// isDroppedByTeam reports whether it is the objects of an assignment's registration that ask for it no more, and not the
// platform's own: its target is gone, or what it was read from is all as it was for the release that had it.
func (p *publication) isDroppedByTeam(a bundle.Assignment, had bundle.Release) bool {
	targets, registered := p.declared[a.Registration]
	if !registered || a.Registration == "" {
		return false
	}
	same := had.BaseCommit != "" && had.BaseCommit == p.commits.base && had.EnvironmentCommit != "" && had.EnvironmentCommit == p.commits.environment
	return !targets[a.Name] || same || a.HeldFrom != nil && a.HeldFrom.Reason == string(TooManyRemoved)
}

// holdDropping returns plans in which each registration that drops too many of its targets keeps what it had.
func (p *publication) holdDropping(ctx context.Context, plans []*plan, record state.Record) ([]*plan, error) {
	if p.opts.AllowRemovals {
		return plans, nil
	}
	had, dropped := map[string]map[string]bool{}, map[string]map[string]bool{}
	count := func(in map[string]map[string]bool, a bundle.Assignment) {
		if in[a.Registration] == nil {
			in[a.Registration] = map[string]bool{}
		}
		in[a.Registration][a.Name] = true
	}
	for _, pl := range plans {
		for _, a := range pl.loses.removed {
			if pl.row.Assignments > 0 && p.isDroppedByTeam(a, pl.loses.of) {
				count(dropped, a)
			}
		}
	}
	if len(dropped) == 0 {
		return plans, nil
	}
	for _, pl := range plans {
		for _, a := range pl.hadAssigned() {
			count(had, a)
		}
	}
	p.unknowns.dropping = map[string]string{}
	for registration, names := range dropped {
		if p.maxRemoved.Exceeded(len(names), len(had[registration])) {
			p.unknowns.dropping[registration] = fmt.Sprintf("it drops %d of its %d deployment targets at once (%s), and may drop %s: --allow-removals removes them",
				len(names), len(had[registration]), someOf(slices.Sorted(maps.Keys(names))), p.maxRemoved)
		}
	}
	if len(p.unknowns.dropping) == 0 {
		return plans, nil
	}
	held := slices.Clone(plans)
	err := p.each(len(plans), func(p *publication, i int) (err error) {
		if slices.ContainsFunc(append(plans[i].hadAssigned(), plans[i].assigned()...), func(a bundle.Assignment) bool { return p.unknowns.dropping[a.Registration] != "" }) {
			held[i], err = p.plan(ctx, plans[i].asked, record)
		}
		return err
	})
	return held, err
}

// hadAssigned lists the assignments that clusters have.
func (pl *plan) hadAssigned() []bundle.Assignment {
	if pl.loses.had == nil && pl.Verified != nil { // it is unchanged
		return pl.assigned()
	}
	return slices.Clone(pl.loses.had)
}

// assigned lists the assignments that clusters would get, with what identifies them alone.
func (pl *plan) assigned() (all []bundle.Assignment) {
	for _, a := range pl.rendered {
		all = append(all, bundle.Assignment{Name: a.Name, Registration: a.Registration, Workload: a.Workload})
	}
	for _, h := range pl.held {
		all = append(all, h.Line)
	}
	return all
}

// droppingOf lists the registrations that are held because they drop too many of their targets.
func (g unknowns) droppingOf() []platform.UnreadRegistration {
	var list []platform.UnreadRegistration
	for _, name := range slices.Sorted(maps.Keys(g.dropping)) {
		list = append(list, platform.UnreadRegistration{Registration: name, Error: g.dropping[name]})
	}
	return list
}

// judgeRemovals refuses plans that take too many assignments from a cluster type because the platform's own objects ask for them
// no more. A cluster type that loses all of them needs PublishOptions.AllowEmpty instead.
func (p *publication) judgeRemovals(plans []*plan) []check.Judgement {
	var all []check.Judgement
	for _, pl := range plans {
		if p.opts.AllowRemovals || pl.row.Result == releases.OutcomeFailed || pl.row.Assignments == 0 {
			continue
		}
		var names []string
		for _, a := range pl.loses.removed {
			if !p.isDroppedByTeam(a, pl.loses.of) {
				names = append(names, a.Name)
			}
		}
		if p.maxRemoved.Exceeded(len(names), len(pl.loses.had)) {
			all = append(all, check.Judgement{
				Check: check.MaxRemoved, At: p.maxRemoved.At, Hint: "--allow-removals removes them",
				Message: fmt.Sprintf("%s would lose %d of its %d assignments (%s), and a publication may remove %s", pl.Name, len(names), len(pl.loses.had), someOf(names), p.maxRemoved),
			})
		}
	}
	return all
}

// someOf lists the first names.
func someOf(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// Removals returns why publishing planned to a registry or layout would need PublishOptions.AllowRemovals: it takes too many
// assignments from cluster types, as the platform's own objects say. It only reads.
func Removals(ctx context.Context, planned platform.Built, to oci.Location, trust published.Signers, opts PublishOptions) ([]check.Judgement, error) {
	opts.Unread = planned.Loaded.Unread
	p, err := newPublication(planned.Result, to, nil, trust, opts)
	if err != nil {
		return nil, err
	}
	record, err := p.Record(ctx)
	var plans []*plan
	if err == nil {
		plans, _, err = p.planned(ctx, planned.Result, record, newProgress())
	}
	if err != nil {
		return nil, fmt.Errorf("compare with %s: %w", to, err)
	}
	return p.judgeRemovals(plans), nil
}
