package publisher

import (
	"context"
	"fmt"
	"slices"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/signing"
	"github.com/wherry-dev/wherry/publisher/standing"
	"github.com/wherry-dev/wherry/scheduler"
)

// pusher makes, signs and pushes the releases that are planned, and decides which releases are made anew.
type pusher struct {
	*standing.Reader
	signer signing.Signer
	// renewBefore, created, source, message, cache and deltaCommand are the options of those names.
	renewBefore  time.Duration
	commits      commits
	created      time.Time
	source       string
	message      string
	cache        scheduler.Cache
	deltaCommand []string
	// deltaSlots has a place for each cluster type whose deltas may be made at once: they take memory and a core each.
	deltaSlots slots
}

// slots bounds the operations at once. Without capacity it bounds nothing.
type slots chan struct{}

// enter waits for a slot. The caller calls leave.
func (s slots) enter() (leave func()) {
	if cap(s) == 0 {
		return func() {}
	}
	s <- struct{}{}
	return func() { <-s }
}

// commits are those that a publication is of; empty where they are not known.
type commits struct{ base, environment string }

// attempt pushes what pl asks for, or finds that it is there, and returns the cluster type's row in the result.
func (ps *pusher) attempt(ctx context.Context, pl *plan) (PublishedType, error) {
	if len(pl.Lanes) > 0 {
		return ps.attemptRings(ctx, pl)
	}
	row, moving := pl.row, movingTags(nil, pl.Tags)
	if last := pl.Verified; last != nil {
		same, renewed, err := ps.isCurrent(ctx, pl, last)
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
	r, waiting, err := ps.newRelease(pl)
	if err != nil {
		return row, err
	}
	desc, have, err := ps.push(ctx, pl, r, waiting, nil)
	if err != nil {
		return row, err
	}
	row.Sequence, row.Digest, row.Number = r.Sequence, desc.Digest, r.Number
	row.Result, row.Signatures, err = ps.makeVisible(ctx, pl.Type, desc, r, moving, have)
	return row, err
}

// push has a release signed that is waiting, or where that is nil makes it, anew from the release from unless that is nil,
// and pushes it. It returns the release's manifest, with its data if it is new, and how many keys have signed that.
func (ps *pusher) push(ctx context.Context, pl *plan, r bundle.Release, waiting, from *bundle.Verified) (desc ocispec.Descriptor, have int, err error) {
	if waiting != nil {
		have, _, err = ps.signer.Cosign(ctx, pl.Repo, r.Stream().Repository(), waiting.Descriptor.Digest)
		return waiting.Descriptor, have, err
	}
	a, err := ps.maker().bundle(ctx, pl, r, from)
	if err != nil {
		return desc, 0, err
	}
	return a.Manifest.WithData(), len(ps.signer.Keys), a.Push(ctx, pl.Repo)
}

// makeVisible makes a release visible that is there in full: to agents if as many keys have signed it as have to, else to
// those who are to sign it.
func (ps *pusher) makeVisible(ctx context.Context, at standing.Type, desc ocispec.Descriptor, r bundle.Release, moving []string, have int) (releases.Outcome, *SignatureCount, error) {
	if need := ps.Trust.Need(); have < need {
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
func (ps *pusher) isDue(ctx context.Context, pl *plan) (bool, error) {
	if pl.row.Result == releases.OutcomeFailed {
		return false, nil
	}
	if pl.Verified == nil {
		return true, nil
	}
	if len(pl.Lanes) > 0 { // what a ring has only made anew was judged when it was new
		all, err := ps.issues(ctx, pl)
		return slices.ContainsFunc(all, func(i *issue) bool { return i.from == nil }), err
	}
	same, _, err := ps.isCurrent(ctx, pl, pl.Verified)
	return !same, err
}

// isCurrent reports whether the last release equals a new one. If only its age or its
// signatures require a new one, renewed is the reason. Its tree and its own tag must exist too: a registry may
// have lost the former, and another publisher have taken the latter.
func (ps *pusher) isCurrent(ctx context.Context, pl *plan, last *bundle.Verified) (same bool, renewed string, err error) {
	if !pl.isOf(last) {
		return false, "", nil
	}
	if renewed = ps.renewal().why(last.Release, pl.Current); renewed != "" {
		return false, renewed, nil
	}
	if v := pl.Pending; v != nil {
		if !ps.isPending(pl, v) {
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
func (ps *pusher) isPending(pl *plan, v *bundle.Verified) bool {
	return ps.renewal().waitsFor(v, ps.plannedRelease(pl))
}

// plannedRelease returns the release that pl asks for, without its sequence and number.
func (ps *pusher) plannedRelease(pl *plan) bundle.Release {
	r := bundle.Release{
		Schema: bundle.ReleaseSchema, Platform: ps.Platform, Environment: ps.Environment, ClusterType: pl.Name,
		Epoch: ps.Trust.Epoch, IssuedAt: ps.IssuedAt, ExpiresAt: ps.IssuedAt.Add(pl.validFor),
		BaseCommit: ps.commits.base, EnvironmentCommit: ps.commits.environment, Artifacts: pl.artifacts, Platforms: pl.platforms,
	}
	if pl.tree != nil {
		r.Content = pl.tree.Content
	}
	return r
}

// newRelease returns the release that pl asks for, which is that of waiting unless that is nil.
func (ps *pusher) newRelease(pl *plan) (r bundle.Release, waiting *bundle.Verified, err error) {
	if v := pl.Pending; v != nil && ps.isPending(pl, v) {
		return v.Release, v, nil
	}
	r = ps.plannedRelease(pl)
	r.Number = bundle.NextNumber(pl.Verified)
	last := max(standing.LastSequence(pl.Verified, r.Epoch), standing.LastSequence(pl.Pending, r.Epoch))
	if r.Sequence, err = pl.Next(r.Epoch, last, ps.IssuedAt); err != nil {
		err = fmt.Errorf("%s: %w", pl.Name, err)
	}
	return r, nil, err
}
