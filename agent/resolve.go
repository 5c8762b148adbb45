package agent

import (
	"context"
	"errors"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// offer is what a source names as the newest release.
type offer struct {
	manifest ocispec.Descriptor
	// documents has the manifest, its signature and the release document: the source with a cache of the content that
	// was read already.
	documents bundle.Source
	// layers is the source itself.
	layers bundle.Source
	// answered is true if the registry has returned the tag's manifest, or that there is no such tag.
	answered bool
}

// resolve asks from for the manifest under the moving tag. A nil from offers nothing.
func (p *pass) resolve(ctx context.Context, from bundle.Source) (o offer, out outcome) {
	if from == nil {
		return o, idle
	}
	var err error
	o.layers = from
	if repo, ok := from.(oci.Target); ok {
		o.manifest, o.documents, err = p.poll(ctx, repo)
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
