// Package referrertest pushes signatures and SBOMs for tests, in the forms that cosign and oras give them.
package referrertest

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// Tag pushes a manifest about subject with a layer of this text, under cosign's tag with this suffix, such as ".sig".
func Tag(ctx context.Context, repo oci.Target, subject ocispec.Descriptor, suffix, text string) (ocispec.Descriptor, error) {
	d, err := push(ctx, repo, ocispec.Manifest{}, bundle.MediaTypeSimpleSigning, text)
	if err != nil {
		return d, err
	}
	return d, repo.Tag(ctx, d, strings.TrimSuffix(bundle.SignatureTag(subject.Digest), ".sig")+suffix)
}

// Refer pushes a manifest of a type that names subject, with a layer of this text. In a folder it gets a tag, as nothing else shows it.
func Refer(ctx context.Context, repo oci.Target, subject ocispec.Descriptor, artifactType, text string) (ocispec.Descriptor, error) {
	subject = ocispec.Descriptor{MediaType: subject.MediaType, Digest: subject.Digest, Size: subject.Size}
	d, err := push(ctx, repo, ocispec.Manifest{ArtifactType: artifactType, Subject: &subject}, artifactType, text)
	if err != nil {
		return d, err
	}
	listed, err := repo.Referrers(ctx, subject)
	if err != nil {
		return d, err
	}
	for _, l := range listed {
		if l.Digest == d.Digest {
			return d, nil
		}
	}
	return d, repo.Tag(ctx, d, "wherry-"+d.Digest.Encoded())
}

func push(ctx context.Context, repo oci.Target, m ocispec.Manifest, layerType, text string) (ocispec.Descriptor, error) {
	config, layer := bundle.NewBlob(ocispec.MediaTypeEmptyJSON, []byte("{}")), bundle.NewBlob(layerType, []byte(text))
	m.Versioned, m.MediaType = specs.Versioned{SchemaVersion: 2}, ocispec.MediaTypeImageManifest
	m.Config, m.Layers = config.Descriptor, []ocispec.Descriptor{layer.Descriptor}
	data, err := json.Marshal(m)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	manifest := bundle.NewBlob(m.MediaType, data)
	for _, b := range []bundle.Blob{config, layer, manifest} {
		there, err := repo.Exists(ctx, b.Descriptor)
		if err == nil && !there {
			err = repo.Push(ctx, b.Descriptor, bytes.NewReader(b.Data))
		}
		if err != nil {
			return ocispec.Descriptor{}, err
		}
	}
	return manifest.Descriptor, nil
}
