package published

import (
	"context"
	"errors"
	"fmt"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// Documents is the repository of trust documents.
type Documents struct{ Repository }

// Documents returns the trust documents of the place.
func (p *Place) Documents() (Documents, error) {
	r, err := p.repository(bundle.TrustRepository)
	return Documents{r}, err
}

// Versions returns the manifests of the versions that are there, from version 1 on, verified by nobody; with an error, those that
// were found before it.
func (d Documents) Versions(ctx context.Context) (all []ocispec.Descriptor, err error) {
	for version := int64(1); ; version++ {
		desc, err := bundle.ResolveManifest(ctx, d.Repo, bundle.TrustTag(version))
		switch {
		case errors.Is(err, errdef.ErrNotFound):
			return all, nil
		case err == nil && version > bundle.MaxTrustVersions:
			err = bundle.Refuse(bundle.TrustDocumentRejected, "%s has more than %d versions", d, bundle.MaxTrustVersions)
		}
		if err != nil {
			return all, err
		}
		all = append(all, desc)
	}
}

// Follow returns chain with all versions that follow it here, in order. A nil chain begins with version 1, whatever it is, which
// nobody vouches for. The error is a *bundle.Refusal if a version is not trusted; the chain then ends before that version.
func (d Documents) Follow(ctx context.Context, chain bundle.TrustChain) (bundle.TrustChain, error) {
	var err error
	for more := true; more && err == nil; {
		chain, more, err = chain.Next(ctx, d.Repo)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", d, err)
	}
	return chain, err
}

// FollowTrust is [Documents.Follow] at a location.
func FollowTrust(ctx context.Context, loc oci.Location, chain bundle.TrustChain, opts oci.Options) (bundle.TrustChain, error) {
	at, err := Open(loc, opts, AsItLies())
	if err != nil {
		return chain, err
	}
	documents, err := at.Documents()
	if err != nil {
		return chain, err
	}
	return documents.Follow(ctx, chain)
}
