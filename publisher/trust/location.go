package trust

import (
	"context"
	"fmt"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/usage"
)

// Begin returns the chain that begins with version 1 in envelope, which somebody vouches for.
func Begin(envelope []byte) (bundle.TrustChain, error) {
	if d, _, err := bundle.OpenTrust(envelope); err == nil && d.Version != 1 {
		return nil, usage.Errorf("it is version %d: give version 1, from which the others are followed at the location", d.Version)
	}
	return bundle.TrustChain(nil).Append(envelope)
}

// Published is what Publish did. Its JSON form is an interface.
type Published struct {
	Reference string           `json:"reference"`
	Version   int64            `json:"version"`
	Digest    digest.Digest    `json:"digest"`
	Result    releases.Outcome `json:"result"`
}

// Publish puts the document in envelope at loc, after the versions that are there, which it has to
// continue. One that is there already is left as it is, and another one of the same version is never
// replaced: the error is a *bundle.Refusal then. It wraps ErrNotYet where signatures are missing, and is an
// *Error where a version between is.
func Publish(ctx context.Context, envelope []byte, loc oci.Location, opts oci.Options) (*Published, error) {
	d, _, err := bundle.OpenTrust(envelope)
	if err != nil {
		return nil, err
	}
	repo, err := loc.Repository(bundle.TrustRepository, opts)
	if err != nil {
		return nil, err
	}
	done := &Published{Reference: fmt.Sprintf("%s/%s:%s", loc, bundle.TrustRepository, bundle.TrustTag(d.Version)), Version: d.Version, Result: releases.OutcomePublished}
	chain, err := published.FollowTrust(ctx, loc, nil, opts)
	if err != nil {
		return nil, err
	}
	switch there := int64(len(chain)); {
	case d.Version <= there:
		if !samePayload(chain[d.Version-1].Envelope, envelope) {
			return nil, otherTrust(done)
		}
		desc, err := repo.Resolve(ctx, bundle.TrustTag(d.Version))
		done.Result, done.Digest = releases.OutcomeUnchanged, desc.Digest
		return done, err
	case d.Version > there+1:
		return nil, usage.Errorf("version %d cannot be the next at %s, which has %d: publish version %d first", d.Version, loc, there, there+1)
	}
	if err := checkSigned(envelope, chain); err != nil {
		return nil, err
	}
	if _, err := chain.Append(envelope); err != nil {
		return nil, err
	}
	blobs, err := bundle.TrustManifest(envelope)
	if err != nil {
		return nil, err
	}
	for _, b := range blobs {
		if err := releases.PushBlob(ctx, repo, b); err != nil {
			return nil, err
		}
	}
	manifest := blobs[len(blobs)-1].Descriptor
	done.Digest = manifest.Digest
	if err := repo.Tag(ctx, manifest, bundle.TrustTag(d.Version)); err != nil {
		return nil, err
	}
	// Registries have no compare-and-swap: somebody may have published another one at the same moment.
	got, err := bundle.FetchTrust(ctx, repo, d.Version)
	if err == nil && !samePayload(got, envelope) {
		err = otherTrust(done)
	}
	return done, err
}

func otherTrust(done *Published) error {
	return &bundle.Refusal{
		Reason:  bundle.TrustDocumentRejected,
		Message: fmt.Sprintf("%s is another document, and a version is never replaced: agents may have it already", done.Reference),
	}
}

// checkSigned returns an error with the signatures that envelope lacks to be the next one of chain.
func checkSigned(envelope []byte, chain bundle.TrustChain) error {
	var previous []byte
	if len(chain) > 0 {
		previous = chain[len(chain)-1].Envelope
	}
	s, err := StatusOf(envelope, previous)
	if err == nil && !s.Complete {
		err = s.missing()
	}
	return err
}
