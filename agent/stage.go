package agent

import (
	"context"
	"errors"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// stage unpacks the target's tree from the store and checks it.
func (p *pass) stage(ctx context.Context) outcome {
	if p.staged {
		return done
	}
	err := p.unpackAndCheck(ctx, p.target)
	p.staged = err == nil
	return outcomeOf(ctx, err)
}

// unpackAndCheck blames the publisher only for what the publisher has signed: where the stored layer is
// not what was fetched, this machine's disk is at fault, and the next pass fetches it again.
func (p *pass) unpackAndCheck(ctx context.Context, r *release) error {
	err := p.content.stage(ctx, r)
	if errors.As(err, new(*bundle.Refusal)) && !p.content.intact(ctx, r) {
		return state.Local("stored layer %s is damaged and will be fetched again: %w", r.Tree.Digest, errors.Join(err, p.content.discard(r)))
	}
	return err
}

// ready makes the tree of r usable from what is on this machine, and says whether it is.
func (p *pass) ready(ctx context.Context, r *release) bool {
	if _, err := p.content.assignments(r); err == nil {
		return true
	}
	return p.content.intact(ctx, r) && p.unpackAndCheck(ctx, r) == nil
}
