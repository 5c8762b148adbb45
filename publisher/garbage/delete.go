package garbage

import (
	"context"
	"errors"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle/oci"
)

// Delete deletes the garbage that Collect found. It deletes records first, so that no remaining record names a deleted
// release. Of each release or record it deletes the tags, then the manifest, then the signature. Content that is already
// gone counts as deleted, and an interrupted Delete can be repeated. In a layout it then removes the blobs, and counts
// them. The error wraps errors.ErrUnsupported if the registry deletes nothing.
func (c *Collection) Delete(ctx context.Context) error {
	for _, r := range c.Repositories {
		if err := r.Delete(ctx); err != nil {
			return err
		}
	}
	layout, ok := c.at.Store.(*oci.Layout)
	if !ok {
		return nil
	}
	swept, err := layout.Sweep(ctx, c.now.Add(-grace))
	c.Blobs = &swept
	return err
}

// Delete deletes the garbage of one repository and marks it as deleted. It frees no blobs of a layout; see
// [Collection.Delete].
func (r *Repository) Delete(ctx context.Context) error {
	if len(r.Garbage) == 0 {
		return nil
	}
	needed, err := r.stillNeeded(ctx)
	if err != nil {
		return err
	}
	for i := range r.Garbage {
		g := &r.Garbage[i]
		if needed[g.Digest] {
			continue
		}
		if g.Deleted, err = r.deleteOne(ctx, g, needed); err != nil {
			return err
		}
	}
	return nil
}

// stillNeeded looks up what moving and foreign tags name now, and the signatures of all that stays: whoever
// may write to a registry can have two tags name one signature.
func (r *Repository) stillNeeded(ctx context.Context) (map[digest.Digest]bool, error) {
	goes := map[string]bool{}
	for _, g := range r.Garbage {
		goes[g.signature] = true
		for _, tag := range g.Tags {
			goes[tag] = true
		}
	}
	all, err := r.repo.Tags(ctx)
	if err != nil {
		return nil, err
	}
	needed := map[digest.Digest]bool{}
	for _, tag := range all {
		if goes[tag] {
			continue
		}
		desc, err := r.repo.Resolve(ctx, tag)
		if err != nil && !errors.Is(err, errdef.ErrNotFound) {
			return nil, err
		}
		if desc.Digest != "" {
			needed[desc.Digest] = true
		}
	}
	return needed, nil
}

func (r *Repository) deleteOne(ctx context.Context, g *Item, needed map[digest.Digest]bool) (done bool, err error) {
	for _, tag := range g.Tags {
		if done, err = r.untag(ctx, tag); err != nil {
			return false, err
		}
	}
	switch g.Kind {
	case Signature:
		// It is an orphan still, unless a copy has brought its manifest after it.
		if _, err := r.repo.Resolve(ctx, g.subject.String()); !errors.Is(err, errdef.ErrNotFound) {
			return false, err
		}
	default:
		if g.Digest == "" {
			return done, nil
		}
		err := r.repo.Delete(ctx, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: g.Digest})
		if gone(err) != nil {
			return false, err
		}
	}
	if g.Kind == Decision {
		return true, nil
	}
	desc, err := r.repo.Resolve(ctx, g.signature)
	if err != nil {
		return true, gone(err)
	}
	if _, err := r.untag(ctx, g.signature); err != nil || needed[desc.Digest] {
		return true, err
	}
	return true, gone(r.repo.Delete(ctx, desc))
}

// untag reports whether the tag is gone. Where a registry deletes no tags, they go with their manifest, or stay.
func (r *Repository) untag(ctx context.Context, tag string) (done bool, err error) {
	err = gone(r.repo.Untag(ctx, tag))
	if errors.Is(err, errors.ErrUnsupported) {
		return false, nil
	}
	return err == nil, err
}

// gone takes it for done where there is nothing to delete.
func gone(err error) error {
	if errors.Is(err, errdef.ErrNotFound) {
		return nil
	}
	return err
}
