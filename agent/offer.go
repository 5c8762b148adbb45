package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// onePerManifest is a repository in which a manifest costs one request: Resolve brings it along, and Fetch
// then has it.
type onePerManifest struct {
	oci.Target
	poller *oci.Poller
	// tooLong is the reason for refusing content that is larger than a manifest may be.
	tooLong bundle.Reason
	had     map[digest.Digest][]byte
}

func (a *Agent) onePerManifest(src oci.Target, tooLong bundle.Reason) *onePerManifest {
	return &onePerManifest{src, &a.poller, tooLong, map[digest.Digest][]byte{}}
}

func (o *onePerManifest) Resolve(ctx context.Context, tag string) (ocispec.Descriptor, error) {
	desc, data, err := o.poller.Poll(ctx, o.Target, tag, "", bundle.MaxManifestBytes)
	if errors.Is(err, errdef.ErrSizeExceedsLimit) {
		err = &bundle.Refusal{Reason: o.tooLong, Message: bundle.Clip(err.Error())}
	}
	if err == nil {
		o.had[desc.Digest] = data
	}
	return desc, err
}

func (o *onePerManifest) Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	if data, ok := o.had[d.Digest]; ok {
		return io.NopCloser(bytes.NewReader(data)), nil
	}
	return o.Target.Fetch(ctx, d)
}

// poll asks what the moving tag names, in one request. What has changed since it was asked last comes with the
// answer.
func (p *pass) poll(ctx context.Context, repo oci.Target) (ocispec.Descriptor, bundle.Source, error) {
	known, tag := p.known(), bundle.MovingTag(p.cluster.Ring)
	from := p.onePerManifest(repo, bundle.TooLarge)
	desc, data, err := p.poller.Poll(ctx, repo, tag, known.Digest, bundle.MaxManifestBytes)
	switch {
	case errors.Is(err, errdef.ErrSizeExceedsLimit):
		if desc, err = repo.Resolve(ctx, tag); err == nil && desc.Size <= bundle.MaxManifestBytes {
			err = fmt.Errorf("%w: it says that %s has %d bytes, and sends more", oci.ErrUnreachable, tag, desc.Size)
		}
	case err == nil && data == nil:
		desc = known
	case err == nil:
		p.seen = &bundle.Blob{Descriptor: desc, Data: data}
	}
	if err != nil {
		return ocispec.Descriptor{}, from, err
	}
	if p.seen != nil && p.seen.Descriptor.Digest == desc.Digest {
		from.had[desc.Digest] = p.seen.Data
	}
	return desc, from, nil
}

// known is the manifest that the tag named when it was asked last, as far as that is remembered and nothing more
// is needed of it than is here.
func (p *pass) known() ocispec.Descriptor {
	switch {
	case p.seen != nil:
		return p.seen.Descriptor
	case p.refused != nil && p.remembered(*p.refused, p.refused.Digest):
		return ocispec.Descriptor{Digest: p.refused.Digest}
	case p.refused == nil && p.accepted != nil:
		return p.accepted.Manifest
	}
	return ocispec.Descriptor{}
}
