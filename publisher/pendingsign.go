package publisher

import (
	"context"
	"fmt"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
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

// Have counts the signatures of the release that waits, or of the record, that has the fewest.
func (e *Pending) Have() int {
	have := len(e.Record.SignedBy)
	for _, t := range e.ClusterTypes {
		if t.Result == releases.OutcomePending {
			have = min(have, len(t.SignedBy))
		}
	}
	return have
}

// Complete reports whether all that waited is released.
func (e *Pending) Complete() bool { return e.Record.Result == releases.OutcomePublished }

// Sign adds the signatures of keys to the releases that wait and to the record, and where that makes as many as
// are needed it releases them, the record last. It changes e to say what became of it. It can be repeated, also
// after it was cut off; one more signature by a key that has signed already is none.
func (e *Pending) Sign(ctx context.Context, keys []*keys.Key) error {
	if err := trust.CheckKeys(e.at.Trust, keys); err != nil {
		return err
	}
	signer := releases.Signer{Keys: keys, Known: e.at.Trust.Keys, Location: e.at.Location}
	for _, t := range e.ClusterTypes {
		if t.Result == releases.OutcomePending {
			if err := e.addTo(ctx, signer, t.part.at.Repo, t.part.at.Stream.Repository(), t.Digest); err != nil {
				return err
			}
		}
	}
	if err := e.addTo(ctx, signer, e.record.Repo, bundle.EnvironmentRepository(e.Environment), e.Record.Digest); err != nil {
		return err
	}
	complete, err := e.readSignatures(ctx)
	if err != nil || !complete {
		return err
	}
	return e.release(ctx)
}

func (e *Pending) addTo(ctx context.Context, signer releases.Signer, repo oci.Target, name string, d digest.Digest) error {
	_, added, err := signer.Cosign(ctx, repo, name, d)
	e.Added = e.Added || added
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// readSignatures reads the signatures again, since others may have signed meanwhile, and reports whether none is missing.
func (e *Pending) readSignatures(ctx context.Context) (complete bool, err error) {
	complete = true
	signed := func(repo oci.Target, d digest.Digest, by *[]trust.KeyName) error {
		ids, err := bundle.VerifySignature(ctx, repo, d, e.at.Trust.AnyKey().Trust)
		*by = trust.NamesOf(e.at.Trust, ids)
		complete = complete && len(ids) >= e.Need
		return err
	}
	for i := range e.ClusterTypes {
		if t := &e.ClusterTypes[i]; t.Result == releases.OutcomePending {
			if err := signed(t.part.at.Repo, t.Digest, &t.SignedBy); err != nil {
				return false, err
			}
		}
	}
	err = signed(e.record.Repo, e.Record.Digest, &e.Record.SignedBy)
	return complete, err
}

// release releases all, the record last.
func (e *Pending) release(ctx context.Context) error {
	for i := range e.ClusterTypes {
		t := &e.ClusterTypes[i]
		at, v := t.part.at, t.part.verified
		own := v.Release.Tag()
		if _, err := releases.Settle(ctx, at.Repo, v.Descriptor, own, t.part.moving, at.Tags); err != nil {
			return fmt.Errorf("%s: %w", t.ClusterType, err)
		}
		at.All = append(at.All, own)
		if t.Result == releases.OutcomePending {
			t.Result = releases.OutcomePublished
		}
	}
	desc, err := e.record.Repo.Resolve(ctx, e.Record.Digest.String())
	if err != nil {
		return err
	}
	if _, err = releases.Settle(ctx, e.record.Repo, desc, published.ReleaseTag(e.Epoch, e.Record.Sequence), []string{bundle.LatestTag}, e.record.Tags); err == nil {
		e.Record.Result = releases.OutcomePublished
	}
	return err
}
