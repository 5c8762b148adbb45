package agent

import (
	"context"

	"github.com/wherry-dev/wherry/bundle"
)

// resolve asks which manifest the moving tag names.
func (p *pass) resolve(ctx context.Context) outcome {
	if p.offer == nil {
		return idle
	}
	desc, err := p.offer.Resolve(ctx, bundle.MovingTag(p.cluster.Ring))
	if err != nil {
		return outcomeOf(ctx, err)
	}
	p.manifest = desc
	return done
}
