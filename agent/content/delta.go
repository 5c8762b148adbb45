package content

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

// offeredDelta is a delta of the wanted release that starts from a tree that is here.
type offeredDelta struct {
	layer ocispec.Descriptor
	job   delta.Job
}

// deltas returns those of the manifest's deltas that this agent can use, in its order. None where the process of
// a delta would take more memory than there is.
func (c *Store) deltas(m ocispec.Manifest, w Wanted) (usable []offeredDelta) {
	if c.opts.Deltas == nil {
		return nil
	}
	for _, layer := range m.Layers[1:min(len(m.Layers), 1+delta.MaxLayers)] {
		if layer.MediaType != delta.MediaType || layer.Size < 0 || layer.Size > delta.MaxBytes || layer.Size >= w.Release.Tree.Size || c.useless[layer.Digest] {
			continue
		}
		base, ok := c.base(digest.Digest(layer.Annotations[delta.AnnotationFrom]), w.Bases...)
		if !ok {
			continue
		}
		want := w.Release.Release.Content
		job := delta.Job{Base: base, Delta: c.blob(layer.Digest), Want: want, Out: c.made(want.DiffID)}
		if free, ok := delta.Available(); !ok || free < job.Memory() {
			c.opts.Log.Info("the full layer is fetched: there is too little memory to apply a delta", "needed", job.Memory(), "available", free)
			return nil
		}
		usable = append(usable, offeredDelta{layer, job})
	}
	return usable
}

// byDelta makes the tree of one that is here, and says whether it could. It is an error where the link,
// or this machine, is at fault; another fault of the delta costs no more than the full layer.
func (c *Store) byDelta(ctx context.Context, from oci.Target, d offeredDelta, w Wanted) (made bool, err error) {
	err = c.download(ctx, from, d.layer)
	if err == nil {
		c.db.At("delta: it has arrived")
		if err = c.opts.Deltas.Apply(ctx, d.job); err == nil {
			c.db.At("delta: the tree is made")
			if err = c.keepMade(d.job.Out, d.job.Want.DiffID); err != nil {
				return false, state.Local("store: %w", err)
			}
			c.opts.Log.Info("a delta was taken in place of the layer", "digest", w.Release.Digest(), "bytes", d.layer.Size, "layer", w.Release.Tree.Size)
			return true, nil
		}
	} else if !errors.As(err, new(*bundle.Refusal)) && !errors.Is(err, errdef.ErrNotFound) {
		return false, err
	}
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	c.opts.Log.Warn("the full layer is fetched: a delta is of no use", "delta", d.layer.Digest, "err", err)
	c.useless[d.layer.Digest] = true
	return false, nil
}
