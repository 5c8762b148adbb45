package bundle

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
)

// Bounds on the signatures of unknown keys that JoinSignatures keeps, so that nobody can fill a manifest with them: their
// number, and the bytes of a claim. A claim of wherry's has some 250 bytes.
const (
	maxOtherSignatures = 8
	maxOtherClaimBytes = 2 << 10
)

// Signatures returns the layers and the digest of the signature manifest that src has under tag. Both are zero if src has
// no such tag. It verifies no signature.
func Signatures(ctx context.Context, src Source, tag string) (layers []ocispec.Descriptor, manifest digest.Digest, err error) {
	desc, err := ResolveManifest(ctx, src, tag)
	if errors.Is(err, errdef.ErrNotFound) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("signatures %s: %w", tag, err)
	}
	data, err := ReadBlob(ctx, src, desc, MaxManifestBytes)
	if err != nil {
		return nil, "", fmt.Errorf("signatures %s: %w", tag, err)
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, "", Refuse(BadContent, "signatures %s: %v", tag, err)
	}
	if len(m.Layers) > maxSignatures {
		return nil, "", Refuse(TooLarge, "%d signatures under %s, at most %d are allowed", len(m.Layers), tag, maxSignatures)
	}
	return m.Layers, desc.Digest, nil
}

// JoinSignatures makes one signature manifest of layers, which Signatures has read from src and which may come from
// several manifests. The result holds the valid signatures over manifest d by keys, each key once, and a few signatures of
// other keys. It also returns the ids of the keys that have signed, sorted. The result does not depend on the order of
// layers, so two publishers that join signatures at the same time produce the same bytes.
func JoinSignatures(ctx context.Context, src Source, d digest.Digest, keys Keys, layers []ocispec.Descriptor) (signed *Signed, ids []string, err error) {
	byKey, others := map[string]ocispec.Descriptor{}, map[string]ocispec.Descriptor{}
	for _, layer := range layers {
		text := layer.Annotations[annotationSignature]
		sig, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(sig) == 0 || layer.MediaType != MediaTypeSimpleSigning {
			continue
		}
		layer.Data, err = ReadBlob(ctx, src, layer, MaxManifestBytes)
		if errors.As(err, new(*Refusal)) || errors.Is(err, errdef.ErrNotFound) {
			continue // broken, of an unknown key
		}
		if err != nil {
			return nil, nil, fmt.Errorf("signature of %s: %w", d, err)
		}
		if id, ok := signedBy(layer.Data, sig, keys); !ok && len(layer.Data) <= maxOtherClaimBytes {
			others[text] = layer
		} else if before, has := byKey[id]; ok && claimedDigest(layer.Data) == d.String() && (!has || text < before.Annotations[annotationSignature]) {
			byKey[id] = layer
		}
	}
	ids = slices.Sorted(maps.Keys(byKey))
	var all []ocispec.Descriptor
	for _, id := range ids {
		all = append(all, byKey[id])
	}
	for i, text := range slices.Sorted(maps.Keys(others)) {
		if i < maxOtherSignatures {
			all = append(all, others[text])
		}
	}
	if signed, err = signatureManifest(all); err == nil && len(signed.Manifest.Data) > MaxManifestBytes {
		err = fmt.Errorf("signatures of %s: %w", d, ErrTooLarge)
	}
	return signed, ids, err
}
