package publisher

import (
	"context"
	"fmt"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/trust"
)

// Waiting counts the releases that wait.
func (e *Pending) Waiting() int {
	n := 0
	for _, t := range e.ClusterTypes {
		if t.Result == releases.OutcomePending {
			n++
		}
	}
	return n
}

// Complete reports whether all that waited is released.
func (e *Pending) Complete() bool { return e.Record.Result == releases.OutcomePublished }

// Sign adds the signatures of keys to the releases that wait and to the record, and where that makes as many as
// are needed it releases them, the record last. It changes e to say what became of it. It can be repeated, also
// after it was cut off; one more signature by a key that has signed already is none.
func (e *Pending) Sign(ctx context.Context, keys []*keys.Key) error {
	p := e.p
	if err := p.trust.CheckKeys(keys); err != nil {
		return err
	}
	p.keys = keys
	for _, t := range e.ClusterTypes {
		if t.Result == releases.OutcomePending {
			stream := bundle.Stream{Environment: e.Environment, ClusterType: t.ClusterType}
			if err := e.addTo(ctx, t.part.plan.repo, stream.Repository(), t.Digest); err != nil {
				return err
			}
		}
	}
	repo, err := p.recordRepository()
	if err != nil {
		return err
	}
	if err := e.addTo(ctx, repo, bundle.EnvironmentRepository(e.Environment), e.Record.Digest); err != nil {
		return err
	}
	return e.release(ctx, repo)
}

func (e *Pending) addTo(ctx context.Context, repo oci.Target, name string, d digest.Digest) error {
	_, added, err := e.p.cosign(ctx, repo, name, d)
	e.Added = e.Added || added
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// release reads again who has signed, since others may have done so meanwhile, and releases all if nothing
// lacks a signature.
func (e *Pending) release(ctx context.Context, repo oci.Target) error {
	p, complete := e.p, true
	signed := func(repo oci.Target, d digest.Digest, by *[]trust.KeyName) error {
		ids, err := bundle.VerifySignature(ctx, repo, d, p.trust.AnyKey())
		*by = p.names(ids)
		complete = complete && len(ids) >= e.Need
		return err
	}
	for i := range e.ClusterTypes {
		if t := &e.ClusterTypes[i]; t.Result == releases.OutcomePending {
			if err := signed(t.part.plan.repo, t.Digest, &t.SignedBy); err != nil {
				return err
			}
		}
	}
	if err := signed(repo, e.Record.Digest, &e.Record.SignedBy); err != nil || !complete {
		return err
	}
	for i := range e.ClusterTypes {
		t := &e.ClusterTypes[i]
		part := t.part
		own := part.verified.Release.Tag()
		_, err := releases.Settle(ctx, part.plan.repo, part.verified.Descriptor, own, part.moving, part.plan.standing.Tags)
		if err != nil {
			return fmt.Errorf("%s: %w", t.ClusterType, err)
		}
		part.plan.standing.All = append(part.plan.standing.All, own)
		if t.Result == releases.OutcomePending {
			t.Result = releases.OutcomePublished
		}
	}
	desc, err := repo.Resolve(ctx, e.Record.Digest.String())
	if err != nil {
		return err
	}
	if _, err = releases.Settle(ctx, repo, desc, releases.ReleaseTag(e.Epoch, e.Record.Sequence), []string{bundle.LatestTag}, p.record.tags); err == nil {
		e.Record.Result = releases.OutcomePublished
	}
	return err
}
