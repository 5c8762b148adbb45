package publisher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/catalog"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/standing"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/publisher/usage"
	"github.com/wherry-dev/wherry/scheduler"
)

// MoveOptions selects the release that Move makes anew. Of PublishOptions, Move uses Trust, OCI and Now.
type MoveOptions struct {
	Environment, ClusterType string
	// Ring is the ring that clusters were moved to; empty for clusters that no longer have one.
	Ring string
	// Above is what people call the release that those clusters have accepted, see bundle.ParseReleaseQuery: where the
	// ring's release is above it already, nothing is done. A tag such as s0-1795262400 counts also where that release is
	// not there any more. Empty is the newest of all rings.
	Above string
}

// Move makes the release of a ring anew, with the same content, so that it is newer than the releases of other rings: a
// cluster moved from one of those would refuse the old one as older than its last accepted release. If the release is for
// all rings, releases for narrower rings are made anew as well, above it. The result has that cluster type alone.
func Move(ctx context.Context, to oci.Location, keys []*keys.Key, move MoveOptions, opts PublishOptions) (*Published, error) {
	for what, name := range map[string]string{"environment": move.Environment, "cluster type": move.ClusterType} {
		if err := oci.CheckName(name); err != nil || strings.Contains(move.ClusterType, "/") {
			return nil, usage.Errorf("%s: %w", what, cmp.Or(err, fmt.Errorf("%q holds a slash", name)))
		}
	}
	if _, err := bundle.ParseReleaseQuery(move.Above); err != nil && move.Above != "" {
		return nil, &usage.Error{Err: err}
	}
	return settled("move at "+to.String(), &scheduler.Result{Environment: move.Environment}, to, keys, opts, func(p *publication) (Published, error) {
		if err := p.ofRecord(ctx); err != nil {
			return p.nothingDone(), err
		}
		return p.move(ctx, move)
	})
}

// PlatformOf returns the platform's name that the newest record of an environment has. It verifies nothing.
func PlatformOf(ctx context.Context, to oci.Location, opts oci.Options, environment string) (string, error) {
	store, err := to.Open(opts)
	if err != nil {
		return "", err
	}
	at := standing.New(to, store, trust.Signers{}, time.Time{}, "", environment, func(string, ...any) {})
	return platformOf(ctx, &at)
}

// platformOf returns the platform's name from the environment's record. Whether that is signed is judged later.
func platformOf(ctx context.Context, at *standing.Reader) (string, error) {
	repo, err := at.Records()
	if err != nil {
		return "", err
	}
	desc, err := bundle.ResolveManifest(ctx, repo, bundle.LatestTag)
	if errors.Is(err, errdef.ErrNotFound) {
		return "", at.NothingEver(ctx, fmt.Errorf("environment %s", at.Environment))
	}
	if err != nil {
		return "", err
	}
	r, err := releases.ReadRecord(ctx, repo, desc)
	if err != nil {
		return "", err
	}
	return r.Platform, nil
}

func (p *publication) move(ctx context.Context, move MoveOptions) (Published, error) {
	record, err := p.recordToMove(ctx, move)
	if err != nil {
		return p.nothingDone(), err
	}
	next := record.Verified.Record
	again := *p
	again.commits = commits{next.BaseCommit, next.EnvironmentCommit}
	p = &again
	done := p.nothingDone()
	pl, err := p.planMove(ctx, move, record)
	if err != nil {
		return done, err
	}
	above, err := p.accepted(ctx, pl.Type, move)
	if err != nil {
		return done, err
	}
	own := standing.OrderOf(pl.force.Release)
	if cmp.Or(cmp.Compare(own.Epoch, above.Epoch), cmp.Compare(own.Sequence, above.Sequence)) < 0 {
		pl.forced = "clusters were moved to its ring"
	}
	row, err := p.attempt(ctx, pl)
	if err != nil {
		return done, err
	}
	done.ClusterTypes = append(done.ClusterTypes, row)
	next.IssuedAt, next.ClusterTypes, next.Rings = p.IssuedAt, maps.Clone(next.ClusterTypes), maps.Clone(next.Rings)
	next.ClusterTypes[move.ClusterType] = row.releaseOf("").Digest
	next.Rings[move.ClusterType] = row.byRing()
	done.Record, err = p.publishRecord(ctx, record, next, done.Pending() > 0)
	return done, err
}

// recordToMove returns the environment's record, which names rings of the cluster type.
func (p *publication) recordToMove(ctx context.Context, move MoveOptions) (standing.Record, error) {
	record, err := p.Record(ctx)
	if err != nil {
		return record, err
	}
	if record.Verified == nil {
		return record, &bundle.Refusal{Reason: bundle.UntrustedKey, Message: fmt.Sprintf("there is no record of environment %s %s", move.Environment, p.Trust.SignedText())}
	}
	if named := record.Verified.Record.Rings; len(named[move.ClusterType]) == 0 {
		return record, usage.Errorf("cluster type %s has no rings in environment %s: those that have are %s", move.ClusterType, move.Environment, cmp.Or(strings.Join(slices.Sorted(maps.Keys(named)), ", "), "none"))
	}
	return record, nil
}

// planMove finds the releases of the rings, of which that of the ring to move to is forced.
func (p *publication) planMove(ctx context.Context, move MoveOptions, record standing.Record) (*plan, error) {
	t, err := p.Type(ctx, move.ClusterType)
	if err != nil {
		return nil, err
	}
	rings := slices.Sorted(maps.Keys(record.Verified.Record.Rings[move.ClusterType]))
	if t, err = p.Rings(ctx, t, rings, record); err != nil {
		return nil, err
	}
	at := slices.IndexFunc(t.Lanes, func(l *standing.Lane) bool { return l.Ring == move.Ring })
	if at < 0 {
		return nil, usage.Errorf("unknown ring %q: cluster type %s has %s", move.Ring, move.ClusterType, strings.Join(rings, ", "))
	}
	pl := &plan{
		asked: asked{ClusterTypeResult: scheduler.ClusterTypeResult{Name: move.ClusterType}},
		found: found{Type: t, aim: t.Lanes[at : at+1]},
		force: t.Lanes[at], row: PublishedType{ClusterType: move.ClusterType},
	}
	if pl.force.Release == nil {
		return nil, standing.Lost("the release of %s is not there", pl.aim)
	}
	assignments, err := releases.ReadTree(ctx, t.Repo, pl.force.Release.Tree, pl.force.Release.Release.Content)
	pl.row.Assignments = len(assignments)
	return pl, err
}

// accepted returns the place of the release that clusters have accepted.
func (p *publication) accepted(ctx context.Context, at standing.Type, move MoveOptions) (bundle.Order, error) {
	if move.Above == "" {
		return standing.OrderOf(at.Lanes.Newest()), nil
	}
	if place, ok := releases.PlaceOf("s", move.Above); ok {
		return place, nil
	}
	ref := oci.Reference{Location: p.Location, Repository: at.Stream.Repository(), Tag: move.Above}
	desc, err := catalog.FindRelease(ctx, at.Repo, ref, errdef.ErrNotFound)
	if err != nil {
		return bundle.Order{}, err
	}
	v, _, err := p.Release(ctx, at.Repo, desc.Digest.String())
	if v == nil && err == nil {
		err = &bundle.Refusal{Reason: bundle.UntrustedKey, Message: fmt.Sprintf("%s is not a release %s", move.Above, p.Trust.SignedText())}
	}
	if err != nil {
		return bundle.Order{}, err
	}
	return standing.OrderOf(v), nil
}
