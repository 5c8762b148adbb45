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

	"github.com/wherry-dev/wherry/agent/registries"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// offer is what a source names as the newest release.
type offer struct {
	place    int // of the registry in the order of sources
	manifest ocispec.Descriptor
	// documents has the manifest, its signature and the release document: the source with a cache of the content that
	// was read already.
	documents bundle.Source
	// layers is the source itself.
	layers bundle.Source
	// after is true if an earlier registry offers a release that is refused.
	after bool
	// answered is true if the registry has returned the tag's manifest, or that there is no such tag.
	answered bool
}

// resolve asks a registry for the manifest under the moving tag. One without releases offers nothing.
func (p puller) resolve(ctx context.Context, s source) (o offer, out outcome) {
	from := s.Releases
	if from == nil {
		return o, idle
	}
	var err error
	o.place, o.layers, o.after = s.place, from, s.after
	if repo, ok := from.(oci.Target); ok {
		asking, cancel := ctx, context.CancelFunc(func() {})
		if s.hurry {
			asking, cancel = context.WithTimeout(ctx, registries.Patience)
		}
		o.manifest, o.documents, err = p.poll(asking, repo, s.place)
		if err != nil && asking.Err() != nil && ctx.Err() == nil {
			err = errHurried
		}
		cancel()
	} else {
		o.manifest, err = from.Resolve(ctx, bundle.MovingTag(p.cluster.Ring))
		o.documents = from
	}
	o.answered = !p.media && answersTag(err)
	return o, outcomeOf(ctx, err)
}

// answersTag reports whether err, nil too, is the word of a registry on what a tag names: that there is no such tag or
// repository is one. A refused login is none, as it may be that of a proxy or a portal on the way, nor is a medium
// that is not there.
func answersTag(err error) bool {
	return err == nil || errors.Is(err, errdef.ErrNotFound) && !errors.Is(err, oci.ErrNoLayout)
}

// onePerManifest is a repository in which a manifest costs one request: Resolve brings it along, and Fetch
// then has it.
type onePerManifest struct {
	oci.Target
	poller *oci.Poller
	// tooLong is the reason for refusing content that is larger than a manifest may be.
	tooLong bundle.Reason
	had     map[digest.Digest][]byte
	// named are the tags that were asked for, so that one pass asks for each once.
	named map[string]ocispec.Descriptor
}

func (a *Agent) onePerManifest(src oci.Target, tooLong bundle.Reason) *onePerManifest {
	return &onePerManifest{src, &a.poller, tooLong, map[digest.Digest][]byte{}, map[string]ocispec.Descriptor{}}
}

func (o *onePerManifest) Resolve(ctx context.Context, tag string) (ocispec.Descriptor, error) {
	if desc, ok := o.named[tag]; ok {
		return desc, nil
	}
	desc, data, err := o.poller.Poll(ctx, o.Target, tag, "", bundle.MaxManifestBytes)
	if errors.Is(err, errdef.ErrSizeExceedsLimit) {
		err = &bundle.Refusal{Reason: o.tooLong, Message: bundle.Clip(err.Error())}
	}
	if err == nil {
		o.had[desc.Digest], o.named[tag] = data, desc
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
func (p puller) poll(ctx context.Context, repo oci.Target, place int) (ocispec.Descriptor, bundle.Source, error) {
	known, tag := p.known(place), bundle.MovingTag(p.cluster.Ring)
	of := p.book.Of(place)
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
		of.Seen = &bundle.Blob{Descriptor: desc, Data: data}
	}
	if err != nil {
		return ocispec.Descriptor{}, from, err
	}
	if of.Seen != nil && of.Seen.Descriptor.Digest == desc.Digest {
		from.had[desc.Digest] = of.Seen.Data
	}
	return desc, from, nil
}

// known returns the manifest that the tag of a registry named in its last answer. It returns the zero descriptor if
// nothing is remembered, or if the manifest has to be fetched again. A refused manifest counts for the first registry.
func (p puller) known(place int) ocispec.Descriptor {
	seen := p.book.Of(place).Seen
	switch {
	case seen != nil:
		return seen.Descriptor
	case place > 0 && p.accepted != nil:
		return p.accepted.Manifest
	case p.refused != nil && p.remembered(*p.refused, p.refused.Digest):
		return ocispec.Descriptor{Digest: p.refused.Digest}
	case p.refused == nil && p.accepted != nil:
		return p.accepted.Manifest
	}
	return ocispec.Descriptor{}
}
