package agent

import (
	"context"
	"errors"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/delta"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// offeredDelta is a delta of the target that starts from a tree that is here.
type offeredDelta struct {
	layer ocispec.Descriptor
	job   delta.Job
}

// deltas returns those of the manifest's deltas that this agent can use, in its order. None where the process of
// a delta would take more memory than there is.
func (p *pass) deltas(m ocispec.Manifest) (usable []offeredDelta) {
	if len(p.opts.DeltaCommand) == 0 {
		return nil
	}
	for _, layer := range m.Layers[1:min(len(m.Layers), 1+delta.MaxLayers)] {
		if layer.MediaType != delta.MediaType || layer.Size < 0 || layer.Size > delta.MaxBytes || layer.Size >= p.target.Tree.Size || p.spoiled[layer.Digest] {
			continue
		}
		base, ok := p.content.base(digest.Digest(layer.Annotations[delta.AnnotationFrom]), p.running, p.good)
		if !ok {
			continue
		}
		want := p.target.Release.Content
		job := delta.Job{Base: base, Delta: p.content.blob(layer.Digest), Want: want, Out: p.content.made(want.DiffID)}
		if free, ok := delta.Available(); !ok || free < job.Memory() {
			p.opts.Log.Info("the full layer is fetched: there is too little memory to apply a delta", "needed", job.Memory(), "available", free)
			return nil
		}
		usable = append(usable, offeredDelta{layer, job})
	}
	return usable
}

// byDelta makes the target's tree of one that is here, and says whether it could. It is an error where the link,
// or this machine, is at fault; another fault of the delta costs no more than the full layer.
func (p *pass) byDelta(ctx context.Context, from oci.Target, d offeredDelta) (made bool, err error) {
	err = p.download(ctx, from, d.layer)
	if err == nil {
		p.state.db.At("delta: it has arrived")
		if err = d.job.Start(ctx, p.opts.DeltaCommand...); err == nil {
			p.state.db.At("delta: the tree is made")
			if err = p.content.keepMade(d.job.Out, d.job.Want.DiffID); err != nil {
				return false, state.Local("store: %w", err)
			}
			p.opts.Log.Info("a delta was taken in place of the layer", "digest", p.target.digest(), "bytes", d.layer.Size, "layer", p.target.Tree.Size)
			return true, nil
		}
	} else if !errors.As(err, new(*bundle.Refusal)) && !errors.Is(err, errdef.ErrNotFound) {
		return false, err
	}
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	p.opts.Log.Warn("the full layer is fetched: a delta is of no use", "delta", d.layer.Digest, "err", err)
	if p.spoiled == nil {
		p.spoiled = map[digest.Digest]bool{}
	}
	p.spoiled[d.layer.Digest] = true
	return false, nil
}
