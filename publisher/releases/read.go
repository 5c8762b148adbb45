package releases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
)

// AnnotationHeld on a bundle's manifest counts its held assignments; absent where there are none.
const AnnotationHeld = "dev.wherry.held"

// ReadManifest reads a manifest without verifying who signed it.
func ReadManifest(ctx context.Context, src bundle.Source, desc ocispec.Descriptor) (*ocispec.Manifest, error) {
	data, err := bundle.ReadBlob(ctx, src, desc, bundle.MaxManifestBytes)
	if err != nil {
		return nil, err
	}
	m := new(ocispec.Manifest)
	if err := json.Unmarshal(data, m); err != nil {
		return nil, &bundle.Refusal{Reason: bundle.BadContent, Message: fmt.Sprintf("manifest %s: %v", desc.Digest, err)}
	}
	return m, nil
}

// ReadRelease reads a bundle's manifest and release document without verifying them.
func ReadRelease(ctx context.Context, src bundle.Source, desc ocispec.Descriptor) (*ocispec.Manifest, *bundle.Release, error) {
	m, err := ReadManifest(ctx, src, desc)
	if err != nil {
		return nil, nil, err
	}
	if m.ArtifactType != bundle.MediaTypeBundle || len(m.Layers) == 0 {
		return nil, nil, &bundle.Refusal{Reason: bundle.BadContent, Message: fmt.Sprintf("%s is a %q and no bundle", desc.Digest, m.ArtifactType)}
	}
	data, err := bundle.ReadBlob(ctx, src, m.Config, bundle.MaxReleaseBytes)
	if err != nil {
		return nil, nil, err
	}
	r, err := bundle.ParseRelease(data)
	return m, &r, err
}

// ReadRecord reads an environment record without verifying it.
func ReadRecord(ctx context.Context, src bundle.Source, desc ocispec.Descriptor) (*bundle.EnvironmentRecord, error) {
	m, err := ReadManifest(ctx, src, desc)
	if err != nil {
		return nil, err
	}
	if m.ArtifactType != bundle.MediaTypeEnvironment {
		return nil, &bundle.Refusal{Reason: bundle.BadContent, Message: fmt.Sprintf("%s is a %q and no environment record", desc.Digest, m.ArtifactType)}
	}
	data, err := bundle.ReadBlob(ctx, src, m.Config, bundle.MaxEnvironmentBytes)
	if err != nil {
		return nil, err
	}
	r, err := bundle.ParseEnvironmentRecord(data)
	return &r, err
}

// UnlessRefused drops the error of content that is not trusted, or not there in full.
func UnlessRefused(err error) error {
	var refusal *bundle.Refusal
	if errors.As(err, &refusal) || errors.Is(err, errdef.ErrNotFound) {
		return nil
	}
	return err
}
