package agent

import (
	"context"
	"errors"

	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// resolve asks which manifest the moving tag names.
func (p *pass) resolve(ctx context.Context) outcome {
	if p.offer == nil {
		return idle
	}
	var err error
	if repo, ok := p.offer.(oci.Target); ok {
		err = p.poll(ctx, repo)
	} else {
		p.manifest, err = p.offer.Resolve(ctx, bundle.MovingTag(p.cluster.Ring))
		p.from = p.offer
	}
	p.answered = !p.media && answersTag(err)
	return outcomeOf(ctx, err)
}

// answersTag reports whether err, nil too, is the word of a registry on what a tag names: that there is no such tag or
// repository is one. A refused login is none, as it may be that of a proxy or a portal on the way, nor is a medium
// that is not there.
func answersTag(err error) bool {
	return err == nil || errors.Is(err, errdef.ErrNotFound) && !errors.Is(err, oci.ErrNoLayout)
}
