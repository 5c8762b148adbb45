package publisher

import (
	"context"
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

// isDue reports whether pl would be released.
func (ps *pusher) isDue(ctx context.Context, pl *plan) (bool, error) {
	if pl.row.Result == releases.OutcomeFailed {
		return false, nil
	}
	all, err := ps.issues(ctx, pl)
	// What other rings have is only made anew: it was judged when it was new.
	return slices.ContainsFunc(all, func(i *issue) bool { return i.from == nil || i.why != "" && pl.isOf(i.from) }), err
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
