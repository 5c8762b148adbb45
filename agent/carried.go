package agent

import (
	"context"
	"errors"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/carry"
	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/intake"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/agent/trust"
	"github.com/wherry-dev/wherry/bundle"
)

// newCarrier returns the carrier, which shares link, window and clock with the rest.
func (a *Agent) newCarrier() *carry.Carrier {
	o := a.opts.Carry
	o.Download, o.Window, o.Now, o.Log = a.opts.Content.Download, a.enterWindow, a.opts.Now, a.opts.Log
	o.Wake = func() { nudge(a.wake) }
	return carry.New(a.state.db, o)
}

// newKeeper returns the keeper of site packages, which shares store, trust and clock with the rest.
func (a *Agent) newKeeper() *intake.Keeper {
	o := a.opts.Intake
	o.Own, o.Ring, o.Platforms, o.WithoutReferrers = a.stream(), a.cluster.Ring, a.opts.Carry.Platforms, a.opts.Carry.WithoutReferrers
	o.Trust, o.Now, o.Log = a.state.trust, a.opts.Now, a.opts.Log
	o.Judge = func() (trust.Judge, error) {
		by := a.judge()
		return by, a.vouched(by)
	}
	o.Back = a.goesBackTo
	o.Prune = func() error {
		a.busy.Lock()
		defer a.busy.Unlock()
		p := newPass(a, scope{})
		if err := p.remember(); err != nil {
			return err
		}
		return p.prune(nil)
	}
	return intake.New(a.state.db, o)
}

// namedArtifacts lists what the store names of carried artifacts and of site packages.
func (a *Agent) namedArtifacts(tx *bbolt.Tx) ([]content.Named, error) {
	carried, err1 := a.carrier.Named(tx)
	stored, err2 := a.intake.Named(tx)
	return intake.Unambiguous(append(carried, stored...)), errors.Join(err1, err2)
}

// carry looks for the artifacts of the running release, and of the one that is to run once the cluster may be changed, and
// has the missing ones brought in the background. It does nothing where no assignment has any carried.
func (p *pass) carry(ctx context.Context, got pulled, rollout *assignments.Rollout, frozen bool) error {
	lists, wanted, err := p.carriedLists(ctx, got, rollout, frozen)
	if err != nil {
		return err
	}
	if known, err := p.carrier.Known(); err != nil || len(lists)+len(known) == 0 {
		return err
	}
	change, err := p.carrier.Look(lists, wanted)
	if err != nil {
		return err
	}
	switch {
	case change.Dropped:
		err = p.prune(got.target)
	case change.Named:
		err = p.content.Index(p.kept(got.target)...)
	}
	if err != nil {
		return err
	}
	p.carrier.Begin()
	return nil
}

// carriedLists returns what releases have carried, the most wanted first, and how many of the lists are of the running
// release and of the one that is to run. Of other releases, the lists are those that are known since they ran.
func (p *pass) carriedLists(ctx context.Context, got pulled, rollout *assignments.Rollout, frozen bool) (lists []carry.List, wanted int, err error) {
	known, err := p.carrier.Known()
	if err != nil {
		return nil, 0, err
	}
	find := func(r *state.Release) (carry.List, bool) {
		i := slices.IndexFunc(known, func(l carry.List) bool { return r != nil && l.Tree == r.Release.Content.DiffID })
		if i < 0 {
			return carry.List{}, false
		}
		l := known[i]
		l.Running, l.Platforms = false, r.Release.Platforms
		return l, true
	}
	has := func(r *state.Release) bool {
		return slices.ContainsFunc(lists, func(l carry.List) bool { return l.Tree == r.Release.Content.DiffID })
	}
	if p.running != nil && rollout.Contains(func(r assignments.Record) bool { return !r.Removing && r.Spec.Carry != "" }) {
		l, ok := find(p.running)
		if !ok {
			if l, err = carriedList(ctx, p.content, p.running); err != nil {
				return nil, 0, err
			}
		}
		l.Running = true
		lists = append(lists, l)
	}
	if frozen { // else it runs already
		if next := p.next(ctx, got); next != nil && next.Digest() != p.running.Digest() && !has(next) {
			l, ok := find(next)
			if !ok {
				if l, err = carriedList(ctx, p.content, next); err != nil {
					return nil, 0, err
				}
			}
			if len(l.Artifacts) > 0 {
				lists = append(lists, l)
			}
		}
	}
	wanted = len(lists)
	for _, r := range append([]*state.Release{p.good, p.previous}, p.kept(got.target)...) {
		if l, ok := find(r); ok && !has(r) {
			lists = append(lists, l)
		}
	}
	return lists, wanted, nil
}

// carriedList reads what the assignments of a release have carried. A tree that is not as it was unpacked is unpacked again.
func carriedList(ctx context.Context, files *content.Store, r *state.Release) (carry.List, error) {
	l, err := readCarried(files, r)
	if errors.Is(err, content.ErrNotStaged) {
		if err = files.Stage(ctx, r); err == nil {
			l, err = readCarried(files, r)
		}
	}
	if err != nil {
		return l, state.Local("read what is carried of release %s: %w", r.Digest(), err)
	}
	return l, nil
}

func readCarried(files *content.Store, r *state.Release) (carry.List, error) {
	list, err := files.Assignments(r)
	if err != nil || !carry.Needs(list) {
		return carry.List{Tree: r.Release.Content.DiffID}, err
	}
	data, err := files.Document(r, bundle.ArtifactsPath)
	if err != nil {
		return carry.List{}, err
	}
	artifacts, err := bundle.ParseArtifacts(data)
	l := carry.ListOf(r.Release.Content.DiffID, list, artifacts)
	l.Platforms = r.Release.Platforms
	return l, err
}

// prune deletes what no release in use needs.
func (p *pass) prune(target *state.Release) error {
	return p.carrier.Guard(func() error {
		return p.intake.Guard(func() error {
			return p.content.Prune([]*state.Release{p.accepted, p.running}, p.kept(target))
		})
	})
}
