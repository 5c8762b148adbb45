// Package catalog lists, inspects and compares published releases.
//
// Begin with [List] for the releases that agents follow, with [Releases] for those of one cluster type, and with [Inspect] for
// one bundle. [Between] compares two releases, [Environments] the records of two environments, and
// [ReadTrips] returns what a medium would carry to each site. The package writes nothing.
package catalog

import (
	"context"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
)

// Inspected is a bundle as it lies there, verified or not. Its JSON form is an interface.
type Inspected struct {
	Reference string        `json:"reference"`
	Digest    digest.Digest `json:"digest"`
	// Signatures counts those that the bundle carries, by whatever key.
	Signatures  int                 `json:"signatures"`
	Release     bundle.Release      `json:"release"`
	Manifest    ocispec.Manifest    `json:"manifest"`
	Deltas      []Delta             `json:"deltas,omitempty"`
	Assignments []bundle.Assignment `json:"assignments"`
	// Artifacts lists the artifacts outside the bundle that they need.
	Artifacts []bundle.Artifact `json:"artifacts,omitempty"`
}

// Inspect reads the bundle that ref names without verifying its signatures: the content may come from anybody.
func Inspect(ctx context.Context, ref oci.Reference, opts oci.Options) (*Inspected, error) {
	at, desc, err := published.Resolve(ctx, ref, opts, published.AsItLies())
	if err != nil {
		return nil, err
	}
	v, _, err := at.ReadAt(ctx, desc)
	if err != nil {
		return nil, err
	}
	i := &Inspected{Reference: ref.String(), Digest: desc.Digest, Manifest: v.Manifest, Release: v.Release}
	if i.Signatures, err = countSignatures(ctx, at.Repo, desc.Digest); err != nil {
		return nil, err
	}
	if i.Deltas, _, err = listDeltas(ctx, at, v.Manifest); err != nil {
		return nil, err
	}
	tree, err := at.Tree(ctx, v)
	if err != nil {
		return nil, err
	}
	i.Assignments, i.Artifacts = tree.Assignments, tree.Artifacts
	return i, tree.Close()
}

func countSignatures(ctx context.Context, src bundle.Source, d digest.Digest) (int, error) {
	layers, _, err := bundle.Signatures(ctx, src, bundle.SignatureTag(d))
	return len(layers), err
}
