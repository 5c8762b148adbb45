package publisher

import (
	"context"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/diff"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/scheduler"
)

// pusher makes, signs and pushes the releases that are planned, and decides which releases are made anew.
type pusher struct {
	*state.Reader
	signer releases.Signer
	// renewBefore, created, source, message, cache and deltaCommand are the options of those names.
	renewBefore  time.Duration
	commits      commits
	created      time.Time
	source       string
	message      string
	proved       []diff.Proved // what comes by proof, once it is known
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

// commits are those that a publication is of, and what identifies the base; empty where they are not known.
type commits struct{ base, environment, baseID string }

// outgoing is a release or record on its way out, which gets its own tag and the moving ones.
type outgoing struct {
	repo            oci.Target
	repository      string         // its name
	seen            published.Tags // before anything was written
	epoch, sequence int64
	moving          []string
	// waiting is the manifest that waits for signatures under that place; nil where there is none.
	waiting *ocispec.Descriptor
	// withheld keeps it from agents: a release that it names waits for signatures.
	withheld bool
}

// sent is what put did with a release or record. Signatures is nil unless some are missing.
type sent struct {
	digest     digest.Digest
	result     releases.Outcome
	signatures *SignatureCount
}

// put signs the waiting artifact; without one it pushes the artifact that build makes. It publishes it to agents if enough
// keys have signed it, else to those who are to sign it.
func (ps *pusher) put(ctx context.Context, o outgoing, build func() (releases.Artifact, error)) (s sent, err error) {
	var desc ocispec.Descriptor // with its data if it is new
	have := len(ps.signer.Keys)
	if o.waiting != nil {
		desc = *o.waiting
		have, _, err = ps.signer.Cosign(ctx, o.repo, o.repository, desc.Digest)
	} else {
		var a releases.Artifact
		if a, err = build(); err == nil {
			desc, err = a.Manifest.WithData(), a.Push(ctx, o.repo)
		}
	}
	if s.digest = desc.Digest; err != nil {
		return s, err
	}
	if need := ps.Trust.Need(); have < need || o.withheld {
		s.result, s.signatures = releases.OutcomePending, &SignatureCount{have, need}
		return s, releases.Wait(ctx, o.repo, desc, published.PendingTag(o.epoch, o.sequence))
	}
	s.result = releases.OutcomePublished
	_, err = releases.Settle(ctx, o.repo, desc, published.ReleaseTag(o.epoch, o.sequence), o.moving, o.seen)
	return s, err
}

// isDue reports whether pl would be released.
func (ps *pusher) isDue(ctx context.Context, pl *plan) (bool, error) {
	if pl.row.Result == releases.OutcomeFailed {
		return false, nil
	}
	all, err := ps.ringReleases(ctx, pl)
	// What other rings have is only made anew: it was judged when it was new.
	return slices.ContainsFunc(all, func(i *ringRelease) bool { return i.from == nil || i.why != "" && pl.isOf(i.from) }), err
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
