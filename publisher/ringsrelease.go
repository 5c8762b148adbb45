package publisher

import (
	"context"
	"fmt"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/pack"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/scheduler"
)

// layerOf returns the compressed tree of a content that this program has at hand.
func (pl *plan) layerOf(c bundle.Content, cache scheduler.Cache) ([]byte, bool) {
	if pl.content != nil && pl.content.Content == c {
		return pl.content.Gzip, true
	}
	return pack.Before(cache, c)
}

// attemptRings pushes what the rings of pl are to have, or finds that it is there. The newest goes first, so that at
// each moment the newest release for a ring is the one that the ring is to have.
func (p *publication) attemptRings(ctx context.Context, pl *plan) error {
	all, err := p.issues(ctx, pl)
	if err != nil {
		return err
	}
	made, err := p.releasesOf(pl, all)
	if err != nil {
		return err
	}
	pl.result.Releases = nil
	for n, i := range slices.Backward(all) {
		done, err := p.carryOutIssue(ctx, pl, i, made[n])
		if err != nil {
			return err
		}
		pl.result.Releases = append(pl.result.Releases, *done)
	}
	pl.addLost()
	pl.sumUp()
	return nil
}

// madeRelease is what becomes of an issue that is due: a release that waits already, or a new one.
type madeRelease struct {
	release bundle.Release
	waiting *bundle.Verified
}

// releasesOf makes the release of each issue that is due, in rising order; nil for the others.
func (p *publication) releasesOf(pl *plan, all []*issue) ([]*madeRelease, error) {
	made := make([]*madeRelease, len(all))
	known, last, numbered, anew := pl.standing.Tags, pl.lastOf(p.trust.Epoch), pl.highestNumbered(), false
	known.All = slices.Clone(known.All)
	for n, i := range all {
		if !i.due() {
			continue
		}
		r := p.releaseOf(pl, i)
		if v := i.lanes[0].waiting; v != nil && !anew && p.waitsFor(v, r) {
			made[n] = &madeRelease{v.Release, v}
			continue
		}
		anew = anew || i.forAll()
		var err error
		if r.Sequence, err = known.Next(r.Epoch, last, p.issuedAt); err != nil {
			return nil, fmt.Errorf("%s: %w", pl.clusterType.Name, err)
		}
		r.Number = bundle.NextNumber(numbered)
		last, numbered, known.All = r.Sequence, &bundle.Verified{Release: r}, append(known.All, r.Tag())
		made[n] = &madeRelease{release: r}
	}
	return made, nil
}

// lastOf is the highest sequence that pl's releases have in an epoch, those that wait among them.
func (pl *plan) lastOf(epoch int64) int64 {
	last := max(lastSequence(pl.standing.verified, epoch), lastSequence(pl.standing.pending, epoch))
	for _, l := range pl.lanes {
		last = max(last, lastSequence(l.release, epoch), lastSequence(l.waiting, epoch))
	}
	return last
}

// highestNumbered returns the release of the highest number that is known of pl's stream, those that wait among them; nil
// where there is none.
func (pl *plan) highestNumbered() *bundle.Verified {
	highest := pl.standing.verified
	for _, l := range pl.lanes {
		for _, v := range []*bundle.Verified{l.release, l.waiting} {
			if v != nil && (highest == nil || v.Release.Number > highest.Release.Number) {
				highest = v
			}
		}
	}
	return highest
}

// releaseOf returns the release of an issue, without its sequence and number.
func (p *publication) releaseOf(pl *plan, i *issue) bundle.Release {
	r := p.plannedRelease(pl)
	if i.from != nil {
		from := i.from.Release
		r.BaseCommit, r.EnvironmentCommit, r.Content, r.Artifacts = from.BaseCommit, from.EnvironmentCommit, from.Content, from.Artifacts
		if pl.validFor == 0 {
			r.ExpiresAt = p.issuedAt.Add(from.ExpiresAt.Sub(from.IssuedAt))
		}
	}
	r.Rings = ringsOf(i.lanes)
	return r
}

// carryOutIssue releases one issue, or sees to it that the release that stays has its tags.
func (p *publication) carryOutIssue(ctx context.Context, pl *plan, i *issue, made *madeRelease) (*PublishedRelease, error) {
	done := i.published()
	if made == nil {
		moved, err := releases.Settle(ctx, pl.repo, i.from.Descriptor, i.from.Release.Tag(), tagsOf(i.lanes), pl.standing.Tags)
		if moved {
			done.Result = releases.OutcomePublished
		}
		if v := i.waiting; v != nil {
			done.Result, done.Sequence, done.Number, done.Digest = releases.OutcomePending, v.Release.Sequence, v.Release.Number, v.Descriptor.Digest
			done.Signatures = &SignatureCount{len(v.KeyIDs), p.trust.Need()}
		}
		return done, err
	}
	done.Renewed = i.why
	var desc ocispec.Descriptor
	have := len(p.keys)
	if made.waiting != nil {
		desc = made.waiting.Descriptor
		var err error
		if have, _, err = p.cosign(ctx, pl.repo, made.release.Stream().Repository(), desc.Digest); err != nil {
			return nil, err
		}
	} else {
		a, err := p.newBundle(ctx, pl, made.release, i.from)
		if err != nil {
			return nil, err
		}
		if err := push(ctx, pl.repo, a); err != nil {
			return nil, err
		}
		desc = a.manifest.Descriptor
	}
	var err error
	done.Sequence, done.Number, done.Digest, done.content = made.release.Sequence, made.release.Number, desc.Digest, made.release.Content.DiffID
	done.Result, done.Signatures, err = p.makeVisible(ctx, pl, desc, made.release, tagsOf(i.lanes), have)
	pl.standing.All = append(pl.standing.All, made.release.Tag())
	return done, err
}

// published is what there is to say of an issue before anything was done about it.
func (i *issue) published() *PublishedRelease {
	done := &PublishedRelease{Rings: []string{}, Result: releases.OutcomeUnchanged}
	for _, l := range i.lanes {
		if l.ring == "" {
			done.Latest = true
		} else {
			done.Rings = append(done.Rings, l.ring)
		}
	}
	if i.from != nil {
		r := i.from.Release
		done.Sequence, done.Number, done.Digest, done.content = r.Sequence, r.Number, i.from.Descriptor.Digest, r.Content.DiffID
	}
	return done
}

// describeRings notes what each ring of pl has, before anything is done about it.
func (pl *plan) describeRings() {
	pl.result.Releases = nil
	for _, i := range slices.Backward(pl.standingIssues()) {
		pl.result.Releases = append(pl.result.Releases, *i.published())
	}
	pl.addLost()
}

// addLost adds the releases that are lost: the record goes on to name them until others take their place.
func (pl *plan) addLost() {
	for _, l := range pl.lanes {
		if l.release == nil && l.recorded != "" && pl.result.releaseOf(l.ring).Digest == "" {
			lost := (&issue{lanes: []*lane{l}}).published()
			lost.Digest = l.recorded
			pl.result.Releases = append(pl.result.Releases, *lost)
		}
	}
}

// sumUp says of pl as a whole what became of its releases. Its own is that of the widest ring that was published to.
func (pl *plan) sumUp() {
	own := pl.result.releaseOf(pl.base().ring)
	pl.result.Sequence, pl.result.Number, pl.result.Digest, pl.result.Result = own.Sequence, own.Number, own.Digest, own.Result
	pl.result.Renewed, pl.result.Signatures = own.Renewed, own.Signatures
	for _, r := range pl.result.Releases {
		pl.result.assigns = pl.result.assigns || pl.result.Assignments == 0 && pl.content != nil && r.content != pl.content.Content.DiffID
		switch {
		case r.Result == releases.OutcomePending && pl.result.Result != releases.OutcomePending:
			pl.result.Result, pl.result.Signatures = releases.OutcomePending, r.Signatures
		case r.Result == releases.OutcomePublished && pl.result.Result == releases.OutcomeUnchanged:
			pl.result.Result = releases.OutcomePublished
		}
	}
}
