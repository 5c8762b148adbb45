package publisher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/catalog"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/publisher/usage"
	"github.com/wherry-dev/wherry/scheduler"
)

// MoveOptions says for whom Move makes a release anew. Of PublishOptions it takes Trust, OCI and Now.
type MoveOptions struct {
	Environment, ClusterType string
	// Ring is the ring that clusters were moved to; empty for those that have none any more.
	Ring string
	// Above is what people call the release that those clusters have accepted, see bundle.ParseReleaseQuery: where the
	// ring's release is above it already, nothing is done. A tag such as s0-1795262400 counts also where that release is
	// not there any more. Empty is the newest of all rings.
	Above string
}

// Move makes the release of a ring anew, with the same content, so that it is above what other rings have: a cluster
// that was moved from one of those would refuse it as older than what it has accepted. Releases for narrower rings than
// one for all are made anew as well, above it. The result has that cluster type alone.
func Move(ctx context.Context, to oci.Location, keys []*keys.Key, move MoveOptions, opts PublishOptions) (*Published, error) {
	for what, name := range map[string]string{"environment": move.Environment, "cluster type": move.ClusterType} {
		if err := oci.CheckName(name); err != nil || strings.Contains(move.ClusterType, "/") {
			return nil, usage.Errorf("%s: %w", what, cmp.Or(err, fmt.Errorf("%q holds a slash", name)))
		}
	}
	if _, err := bundle.ParseReleaseQuery(move.Above); err != nil && move.Above != "" {
		return nil, &usage.Error{Err: err}
	}
	signers := opts.Trust
	if !signers.Documented() {
		signers = trust.PinnedBy(keys)
	}
	p, err := newPublication(&scheduler.Result{Environment: move.Environment}, to, keys, signers, opts)
	if err == nil {
		err = signers.CheckKeys(keys)
	}
	if err != nil {
		return nil, err
	}
	if err = p.takePlatform(ctx); err == nil {
		err = p.mayPublish(ctx)
	}
	for round := 1; err == nil && round <= releases.MaxRaces; round++ {
		if err = p.move(ctx, move); !errors.Is(err, releases.ErrRace) || round == releases.MaxRaces {
			break
		}
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("move at %s: %w", to, err)
	}
	return p.done, err
}

// takePlatform takes the platform's name from the environment's record. Whether that is signed is judged later.
func (p *publication) takePlatform(ctx context.Context) error {
	repo, err := p.recordRepository()
	if err != nil {
		return err
	}
	desc, err := repo.Resolve(ctx, bundle.LatestTag)
	if errors.Is(err, errdef.ErrNotFound) {
		return p.nothingEver(ctx, fmt.Errorf("environment %s", p.done.Environment))
	}
	if err != nil {
		return err
	}
	r, err := releases.ReadRecord(ctx, repo, desc)
	if err == nil {
		p.platform, p.done.Platform = r.Platform, r.Platform
	}
	return err
}

func (p *publication) move(ctx context.Context, move MoveOptions) error {
	p.done.ClusterTypes = []PublishedType{}
	pl, err := p.planMove(ctx, move)
	if err != nil {
		return err
	}
	above, err := p.accepted(ctx, pl, move)
	if err != nil {
		return err
	}
	own := orderOf(pl.force.release)
	if cmp.Or(cmp.Compare(own.Epoch, above.Epoch), cmp.Compare(own.Sequence, above.Sequence)) < 0 {
		pl.forced = "clusters were moved to its ring"
	}
	if err := p.attemptRings(ctx, pl); err != nil {
		return err
	}
	p.done.ClusterTypes = append(p.done.ClusterTypes, pl.result)
	next := p.record.verified.Record
	next.IssuedAt, next.ClusterTypes, next.Rings = p.issuedAt, maps.Clone(next.ClusterTypes), maps.Clone(next.Rings)
	next.ClusterTypes[move.ClusterType] = pl.result.releaseOf("").Digest
	next.Rings[move.ClusterType] = pl.result.byRing()
	return p.publishRecord(ctx, next)
}

// planMove finds the releases of the rings, of which that of the ring to move to is forced.
func (p *publication) planMove(ctx context.Context, move MoveOptions) (*plan, error) {
	var err error
	if p.record, err = p.readRecord(ctx); err != nil {
		return nil, err
	}
	if p.record.verified == nil {
		return nil, &bundle.Refusal{Reason: bundle.UntrustedKey, Message: fmt.Sprintf("there is no record of environment %s %s", move.Environment, p.trust.SignedText())}
	}
	p.done.BaseCommit, p.done.EnvironmentCommit = p.record.verified.Record.BaseCommit, p.record.verified.Record.EnvironmentCommit
	named := p.record.verified.Record.Rings
	if len(named[move.ClusterType]) == 0 {
		return nil, usage.Errorf("cluster type %s has no rings in environment %s: those that have are %s", move.ClusterType, move.Environment, cmp.Or(strings.Join(slices.Sorted(maps.Keys(named)), ", "), "none"))
	}
	stream := bundle.Stream{Platform: p.done.Platform, Environment: move.Environment, ClusterType: move.ClusterType}
	repo, err := p.store.Repository(stream.Repository())
	if err != nil {
		return nil, err
	}
	pl := &plan{clusterType: scheduler.ClusterTypeResult{Name: move.ClusterType}, result: PublishedType{ClusterType: move.ClusterType}, repo: repo}
	if pl.standing, err = p.look(ctx, repo, stream); err != nil {
		return nil, err
	}
	rings := slices.Sorted(maps.Keys(named[move.ClusterType]))
	if pl.lanes, pl.standing.foreign, err = p.lookRings(ctx, repo, stream, pl.standing, rings, p.record.verified); err != nil {
		return nil, err
	}
	at := slices.IndexFunc(pl.lanes, func(l *lane) bool { return l.ring == move.Ring })
	if at < 0 {
		return nil, usage.Errorf("unknown ring %q: cluster type %s has %s", move.Ring, move.ClusterType, strings.Join(rings, ", "))
	}
	if pl.force = pl.lanes[at]; pl.force.release == nil {
		return nil, lost("the release of %s is not there", lanesText(pl.lanes[at:at+1]))
	}
	pl.aim = pl.lanes[at : at+1]
	assignments, err := releases.ReadTree(ctx, repo, pl.force.release.Tree, pl.force.release.Release.Content)
	pl.result.Assignments = len(assignments)
	return pl, err
}

// accepted returns the place of the release that clusters have accepted.
func (p *publication) accepted(ctx context.Context, pl *plan, move MoveOptions) (bundle.Order, error) {
	if move.Above == "" {
		return orderOf(newestRelease(pl.lanes)), nil
	}
	if place, ok := releases.PlaceOf("s", move.Above); ok {
		return place, nil
	}
	stream := bundle.Stream{Environment: move.Environment, ClusterType: move.ClusterType}
	ref := oci.Reference{Location: p.to, Repository: stream.Repository(), Tag: move.Above}
	desc, err := catalog.FindRelease(ctx, pl.repo, ref, errdef.ErrNotFound)
	if err != nil {
		return bundle.Order{}, err
	}
	v, _, err := p.verifyRelease(ctx, pl.repo, desc.Digest.String())
	if v == nil && err == nil {
		err = &bundle.Refusal{Reason: bundle.UntrustedKey, Message: fmt.Sprintf("%s is not a release %s", move.Above, p.trust.SignedText())}
	}
	if err != nil {
		return bundle.Order{}, err
	}
	return orderOf(v), nil
}
