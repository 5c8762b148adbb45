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

// What JoinSignatures keeps of unknown keys, so that nobody can fill a manifest with it: so many signatures,
// and claims of so many bytes. One of ours has some 250.
const (
	maxOtherSignatures = 8
	maxOtherClaimBytes = 2 << 10
)

// Signatures reads the signatures in the signature manifest that src has under tag. There are none, and
// the digest is empty, where it has no such tag. Nothing of them is judged.
func Signatures(ctx context.Context, src Source, tag string) (layers []ocispec.Descriptor, manifest digest.Digest, err error) {
	desc, err := src.Resolve(ctx, tag)
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
		return nil, "", refuse(BadContent, "signatures %s: %v", tag, err)
	}
	if len(m.Layers) > maxSignatures {
		return nil, "", refuse(TooLarge, "%d signatures under %s, at most %d are allowed", len(m.Layers), tag, maxSignatures)
	}
	return m.Layers, desc.Digest, nil
}

// JoinSignatures makes one signature manifest of layers, which Signatures has read from src and which may
// be from several manifests: the good signatures over manifest d by keys, each key once, and a few of those that
// are others'. The ids are of the keys that have signed, sorted. It is the same for the same layers in whatever
// order, so that two publishers who join signatures at the same time end with the same bytes.
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
			continue // somebody's, and broken
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
