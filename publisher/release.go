package publisher

import (
	"context"
	"errors"
	"fmt"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/signing"
	"github.com/wherry-dev/wherry/publisher/standing"
)

// carryOut pushes what pl asks for, or finds that it is there, and returns what the result says of it. Where another
// publisher was faster, it plans the cluster type anew.
func (p *publication) carryOut(ctx context.Context, pl *plan, record standing.Record, so *progress) (PublishedType, error) {
	for race := 1; pl.row.Result != releases.OutcomeFailed; race++ {
		row, err := p.attempt(ctx, pl)
		if !errors.Is(err, releases.ErrRace) {
			return row, err
		}
		if race == releases.MaxRaces {
			return row, fmt.Errorf("%s: %w", pl.Name, err)
		}
		if pl, err = p.plan(ctx, pl.asked, record); err != nil {
			return row, err
		}
		if err := p.check(ctx, []*plan{pl}, so); err != nil { // it may hold something else now
			return row, err
		}
	}
	return pl.row, nil
}

func (p *publication) attempt(ctx context.Context, pl *plan) (PublishedType, error) {
	if len(pl.Lanes) > 0 {
		return p.attemptRings(ctx, pl)
	}
	row, moving := pl.row, movingTags(p.opts.Rings, pl.Tags)
	if last := pl.Verified; last != nil {
		same, renewed, err := p.isCurrent(ctx, pl, last)
		if err != nil {
			return row, err
		}
		if same {
			moved, err := releases.Settle(ctx, pl.Repo, last.Descriptor, last.Release.Tag(), moving, pl.Tags)
			row.Result = releases.OutcomeUnchanged
			if moved {
				row.Result = releases.OutcomePublished
			}
			return row, err
		}
		row.Renewed = renewed
	}
	r, waiting, err := p.newRelease(pl)
	if err != nil {
		return row, err
	}
	desc, have, err := p.push(ctx, pl, r, waiting, nil)
	if err != nil {
		return row, err
	}
	row.Sequence, row.Digest, row.Number = r.Sequence, desc.Digest, r.Number
	row.Result, row.Signatures, err = p.makeVisible(ctx, pl.Type, desc, r, moving, have)
	return row, err
}

// push has a release signed that is waiting, or where that is nil makes it, anew from the release from unless that is nil,
// and pushes it. It returns the release's manifest and how many keys have signed that.
func (p *publication) push(ctx context.Context, pl *plan, r bundle.Release, waiting, from *bundle.Verified) (desc ocispec.Descriptor, have int, err error) {
	if waiting != nil {
		have, _, err = p.signer.Cosign(ctx, pl.Repo, r.Stream().Repository(), waiting.Descriptor.Digest)
		return waiting.Descriptor, have, err
	}
	a, err := p.maker().bundle(ctx, pl, r, from)
	if err != nil {
		return desc, 0, err
	}
	return a.Manifest.Descriptor, len(p.signer.Keys), a.Push(ctx, pl.Repo)
}

// makeVisible makes a release visible that is there in full: to agents if as many keys have signed it as have to, else to
// those who are to sign it.
func (p *publication) makeVisible(ctx context.Context, at standing.Type, desc ocispec.Descriptor, r bundle.Release, moving []string, have int) (releases.Outcome, *SignatureCount, error) {
	if need := p.Trust.Need(); have < need {
		return releases.OutcomePending, &SignatureCount{have, need}, signing.Wait(ctx, at.Repo, desc, releases.PendingTag(r.Epoch, r.Sequence))
	}
	_, err := releases.Settle(ctx, at.Repo, desc, r.Tag(), moving, at.Tags)
	return releases.OutcomePublished, nil, err
}

// movingTags returns the tags that a release for some rings moves where the platform names none: theirs, else those of
// every ring that has a tag, and latest. Where it names them, see [standing.Lanes.MovingTags].
func movingTags(rings []string, at releases.Tags) []string {
	var tags []string
	for _, r := range rings {
		tags = append(tags, bundle.MovingTag(r))
	}
	if len(tags) > 0 {
		return tags
	}
	return append(at.RingTags(), bundle.LatestTag)
}

// isDue reports whether pl would be released.
func (p *publication) isDue(ctx context.Context, pl *plan) (bool, error) {
	if pl.row.Result == releases.OutcomeFailed {
		return false, nil
	}
	if pl.Verified == nil {
		return true, nil
	}
	if len(pl.Lanes) > 0 { // what a ring has only made anew was judged when it was new
		all, err := p.issues(ctx, pl)
		return slices.ContainsFunc(all, func(i *issue) bool { return i.from == nil }), err
	}
	same, _, err := p.isCurrent(ctx, pl, pl.Verified)
	return !same, err
}

// isCurrent reports whether the last release equals a new one. If only its age or its
// signatures require a new one, renewed is the reason. Its tree and its own tag must exist too: a registry may
// have lost the former, and another publisher have taken the latter.
func (p *publication) isCurrent(ctx context.Context, pl *plan, last *bundle.Verified) (same bool, renewed string, err error) {
	if !pl.isOf(last) || !slices.Equal(last.Release.Rings, p.opts.Rings) {
		return false, "", nil
	}
	if renewed = p.renewal().why(last.Release, pl.Current); renewed != "" {
		return false, renewed, nil
	}
	if v := pl.Pending; v != nil {
		if !p.isPending(pl, v) {
			renewed = "it takes the place of " + releases.PendingTag(v.Release.Epoch, v.Release.Sequence)
		}
		return false, renewed, nil
	}
	if pl.Taken {
		return false, "another publisher took its tag", nil
	}
	if same, err = pl.Repo.Exists(ctx, last.Tree); !same {
		renewed = "its files are not there any more"
	}
	return same, renewed, err
}

// isPending reports whether v, which waits for signatures, is what would be published now. Whoever publishes
// signs it unseen, so that nothing may be in it which a release of theirs would not have: neither content, nor
// the word for where that came from, nor a layer that is not known.
func (p *publication) isPending(pl *plan, v *bundle.Verified) bool {
	return p.renewal().waitsFor(v, p.plannedRelease(pl))
}

// plannedRelease returns the release that pl asks for, without its sequence and number.
func (p *publication) plannedRelease(pl *plan) bundle.Release {
	r := bundle.Release{
		Schema: bundle.ReleaseSchema, Platform: p.Platform, Environment: p.Environment, ClusterType: pl.Name,
		Rings: p.opts.Rings, Epoch: p.Trust.Epoch, IssuedAt: p.IssuedAt, ExpiresAt: p.IssuedAt.Add(pl.validFor),
		BaseCommit: p.commits.base, EnvironmentCommit: p.commits.environment, Artifacts: pl.artifacts,
	}
	if pl.tree != nil {
		r.Content = pl.tree.Content
	}
	return r
}

// newRelease returns the release that pl asks for, which is that of waiting unless that is nil.
func (p *publication) newRelease(pl *plan) (r bundle.Release, waiting *bundle.Verified, err error) {
	if v := pl.Pending; v != nil && p.isPending(pl, v) {
		return v.Release, v, nil
	}
	r = p.plannedRelease(pl)
	r.Number = bundle.NextNumber(pl.Verified)
	last := max(standing.LastSequence(pl.Verified, r.Epoch), standing.LastSequence(pl.Pending, r.Epoch))
	if r.Sequence, err = pl.Next(r.Epoch, last, p.IssuedAt); err != nil {
		err = fmt.Errorf("%s: %w", pl.Name, err)
	}
	return r, nil, err
}
