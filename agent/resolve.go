package agent

import (
	"context"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// resolve asks which manifest the moving tag names.
func (p *pass) resolve(ctx context.Context) outcome {
	if p.offer == nil {
		return idle
	}
	if repo, ok := p.offer.(oci.Target); ok {
		return outcomeOf(ctx, p.poll(ctx, repo))
	}
	desc, err := p.offer.Resolve(ctx, bundle.MovingTag(p.cluster.Ring))
	if err != nil {
		return outcomeOf(ctx, err)
	}
	p.manifest, p.from = desc, p.offer
	return done
}
