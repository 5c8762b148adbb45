// Package announce packs what was published in an environment, for a hub that may not reach the registry.
//
// Begin with Read, which reads the newest record with everything that proves it, and write the Publication. The hub verifies
// all of it: what is packed is the signed content itself, in an OCI layout with the names that it has at the location.
package announce

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
)

// Publication is an environment record with the releases that it names, their signatures, and the trust documents.
type Publication struct {
	named []ocispec.Descriptor // of the index
	blobs []bundle.Blob
	// layers are the trees of the releases, by digest, with where they are.
	layers map[digest.Digest]layer
}

type layer struct {
	ocispec.Descriptor
	from oci.Target
}

// Read reads the record of an environment with that digest, and what belongs to it. A release that is not there is left out;
// the hub says so.
func Read(ctx context.Context, from oci.Store, environment string, record digest.Digest) (*Publication, error) {
	p, at := &Publication{layers: map[digest.Digest]layer{}}, published.At(oci.Location{}, from, published.AsItLies())
	e, err := at.Environment(environment)
	if err != nil {
		return nil, err
	}
	v, _, err := e.Read(ctx, record.String())
	if err != nil {
		return nil, err
	}
	if err := p.add(ctx, e.Repository, v.Descriptor, bundle.LatestTag, v.Record.Tag()); err != nil {
		return nil, err
	}
	for _, typ := range v.Record.Types() {
		if err := p.addReleases(ctx, at, bundle.Stream{Environment: environment, ClusterType: typ}, v.Record.ReleasesOf(typ)); err != nil {
			return nil, err
		}
	}
	return p, p.addTrust(ctx, at)
}

func (p *Publication) addReleases(ctx context.Context, at *published.Place, of bundle.Stream, all []digest.Digest) error {
	t, err := at.Type(of)
	if err != nil {
		return err
	}
	for _, d := range all {
		v, _, err := t.Read(ctx, d.String())
		if errors.Is(err, errdef.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		p.layers[v.Tree.Digest] = layer{v.Tree, t.Repo}
		if err := p.add(ctx, t.Repository, v.Descriptor, v.Release.Tag()); err != nil {
			return err
		}
	}
	return nil
}

// addTrust adds all trust documents of the location.
func (p *Publication) addTrust(ctx context.Context, at *published.Place) error {
	d, err := at.Documents()
	if err != nil {
		return err
	}
	versions, err := d.Versions(ctx)
	if errors.Is(err, oci.ErrUnauthorized) { // as some registries answer for missing content
		err = nil
	}
	for i, desc := range versions {
		if err == nil {
			err = p.addManifest(ctx, d.Repository, desc, bundle.TrustTag(int64(i)+1))
		}
	}
	return err
}

// add adds a manifest under tags, with its signature.
func (p *Publication) add(ctx context.Context, repo published.Repository, desc ocispec.Descriptor, tags ...string) error {
	if err := p.addManifest(ctx, repo, desc, tags...); err != nil {
		return err
	}
	tag := bundle.SignatureTag(desc.Digest)
	signature, err := bundle.ResolveManifest(ctx, repo.Repo, tag)
	if err != nil {
		return err
	}
	return p.addManifest(ctx, repo, signature, tag)
}

// addManifest adds a manifest and what it names, but for trees.
func (p *Publication) addManifest(ctx context.Context, repo published.Repository, desc ocispec.Descriptor, tags ...string) error {
	data, err := bundle.ReadBlob(ctx, repo.Repo, desc, bundle.MaxManifestBytes)
	if err != nil {
		return err
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("manifest %s: %w", desc.Digest, err)
	}
	for _, tag := range tags {
		named := ocispec.Descriptor{MediaType: desc.MediaType, Digest: desc.Digest, Size: desc.Size}
		named.Annotations = map[string]string{ocispec.AnnotationRefName: repo.Name + "/" + tag}
		p.named = append(p.named, named)
	}
	desc.Data = nil
	p.blobs = append(p.blobs, bundle.Blob{Descriptor: desc, Data: data})
	for _, part := range append([]ocispec.Descriptor{m.Config}, m.Layers...) {
		if part.MediaType == bundle.MediaTypeTree || part.Size > bundle.MaxEnvironmentBytes || m.ArtifactType == bundle.MediaTypeBundle && part.Digest != m.Config.Digest {
			continue // a tree, or a delta
		}
		data, err := bundle.ReadBlob(ctx, repo.Repo, part, bundle.MaxEnvironmentBytes)
		if err != nil {
			return err
		}
		part.Data, part.Annotations = nil, nil
		p.blobs = append(p.blobs, bundle.Blob{Descriptor: part, Data: data})
	}
	return nil
}

// Size returns the length of what Write writes, in bytes.
func (p *Publication) Size(trees []digest.Digest) (int64, error) {
	var all []ocispec.Descriptor
	for _, b := range p.blobs {
		all = append(all, b.Descriptor)
	}
	for _, d := range trees {
		if l, ok := p.layers[d]; ok {
			all = append(all, l.Descriptor)
		}
	}
	seen := map[digest.Digest]bool{}
	all = slices.DeleteFunc(all, func(d ocispec.Descriptor) bool {
		before := seen[d.Digest]
		seen[d.Digest] = true
		return before
	})
	return airgap.Size(p.named, all)
}

// Write writes the publication as an OCI layout in a tar, with the trees of these digests, which the hub has asked for.
func (p *Publication) Write(ctx context.Context, w io.Writer, trees []digest.Digest) error {
	out := airgap.NewWriter(w)
	if err := out.Index(p.named); err != nil {
		return err
	}
	for _, b := range p.blobs {
		err := out.Blob(b.Descriptor, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Data)), nil })
		if err != nil {
			return err
		}
	}
	for _, d := range trees {
		l, ok := p.layers[d]
		if !ok {
			continue
		}
		if err := out.Blob(l.Descriptor, func() (io.ReadCloser, error) { return l.from.Fetch(ctx, l.Descriptor) }); err != nil {
			return err
		}
	}
	return out.Close()
}
