package releases

import (
	"context"
	"encoding/json"
	"fmt"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

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
