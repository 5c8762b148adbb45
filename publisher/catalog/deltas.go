package catalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/delta"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
)

// Delta is a layer that makes a bundle's tree of that of an earlier release. Agents believe nothing it says: one
// that is of no use costs them the full layer.
type Delta struct {
	Digest digest.Digest `json:"digest"`
	Size   int64         `json:"size"` // in bytes
	// From is the digest of the uncompressed tar that it starts from, and Base the tag of a release with that
	// tree; empty where none of the newest here has it.
	From digest.Digest `json:"from"`
	Base string        `json:"base,omitempty"`
	// Applied is true if it was applied and gives the signed tree. Problem is the reason why it is unusable.
	Applied bool   `json:"applied,omitempty"`
	Problem string `json:"problem,omitempty"`
}

// listDeltas lists a manifest's deltas with their base releases, which it searches among the newest of at. It does not
// verify the signatures of bases: a base with the wrong tree only makes the delta fail.
func listDeltas(ctx context.Context, at published.Type, m ocispec.Manifest) (list []Delta, bases map[digest.Digest]deltaBase, err error) {
	wanted := map[digest.Digest]bool{}
	for _, layer := range published.DeltasOf(m) {
		d := Delta{Digest: layer.Digest, Size: layer.Size, From: digest.Digest(layer.Annotations[delta.AnnotationFrom])}
		list, wanted[d.From] = append(list, d), true
	}
	if len(list) == 0 {
		return nil, nil, nil
	}
	all, err := at.Repo.Tags(ctx)
	if err != nil {
		return nil, nil, err
	}
	bases = map[digest.Digest]deltaBase{}
	for _, tag := range (published.Tags{All: all}).Releases() {
		if len(bases) == len(wanted) {
			break
		}
		v, _, err := at.Read(ctx, tag)
		if err := published.IgnoreRefused(err); err != nil {
			return nil, nil, err
		}
		if err == nil && wanted[v.Release.Content.DiffID] && bases[v.Release.Content.DiffID].tag == "" {
			bases[v.Release.Content.DiffID] = deltaBase{tag, v.Tree, v.Release.Content}
		}
	}
	for i := range list {
		list[i].Base = bases[list[i].From].tag
	}
	return list, bases, nil
}

// deltaBase is a release that a delta starts from.
type deltaBase struct {
	tag     string
	layer   ocispec.Descriptor
	content bundle.Content
}

// ApplyDeltas fetches and applies each delta of a bundle whose base at has, and returns the deltas with the outcome.
func ApplyDeltas(ctx context.Context, at published.Type, v *bundle.Verified) ([]Delta, error) {
	list, bases, err := listDeltas(ctx, at, v.Manifest)
	if err != nil {
		return nil, err
	}
	for i := range list {
		d := &list[i]
		err := applyDelta(ctx, at.Repo, *d, bases[d.From], v.Release.Content)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if d.Applied = err == nil && d.Base != ""; err != nil {
			d.Problem = err.Error()
			if errors.Is(err, errdef.ErrNotFound) { // agents serve releases without their deltas
				d.Problem = "it is not there"
			}
		}
	}
	return list, nil
}

// applyDelta fetches a delta, and applies it where from is known.
func applyDelta(ctx context.Context, repo oci.Target, d Delta, from deltaBase, want bundle.Content) error {
	layer := ocispec.Descriptor{MediaType: delta.MediaType, Digest: d.Digest, Size: d.Size}
	data, err := bundle.ReadBlob(ctx, repo, layer, delta.MaxBytes)
	if err != nil || from.tag == "" {
		return err
	}
	if from.content.Size > delta.MaxTreeBytes {
		return &bundle.Refusal{Reason: bundle.TooLarge, Message: fmt.Sprintf("its base has %d bytes", from.content.Size)}
	}
	var tar bytes.Buffer
	tar.Grow(int(from.content.Size))
	if err := published.FetchTar(ctx, repo, from.layer, from.content, &tar); err != nil {
		return fmt.Errorf("release %s: %w", from.tag, err)
	}
	_, err = delta.Apply(tar.Bytes(), data, want)
	return err
}
