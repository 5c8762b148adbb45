package bundle

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/content/memory"
)

// signaturesBy are the layers of a signature manifest over d.
func signaturesBy(t *testing.T, store *memory.Store, d digest.Digest, reference string, signers ...signature.Signer) []ocispec.Descriptor {
	signed, err := SignManifest(d, reference, signers...)
	require.NoError(t, err)
	for _, b := range append(signed.Blobs, signed.Manifest) {
		if there, _ := store.Exists(t.Context(), b.Descriptor); !there {
			require.NoError(t, store.Push(t.Context(), b.Descriptor, bytes.NewReader(b.Data)))
		}
	}
	require.NoError(t, store.Tag(t.Context(), signed.Manifest.Descriptor, "signatures"))
	layers, there, err := Signatures(t.Context(), store, "signatures")
	require.NoError(t, err)
	require.Equal(t, signed.Manifest.Descriptor.Digest, there)
	return layers
}

func TestJoinedSignaturesAreTheSameWhoeverJoinsThem(t *testing.T) {
	store, d := memory.New(), digest.FromString("manifest")
	a, keyA := newKey(t)
	b, keyB := newKey(t)
	stranger, _ := newKey(t)
	keys := Keys{keyA, keyB}
	byA := signaturesBy(t, store, d, "here/edge", a)
	byB := signaturesBy(t, store, d, "there/edge", b, stranger)
	againA := signaturesBy(t, store, d, "elsewhere/edge", a)
	transplanted := signaturesBy(t, store, digest.FromString("another"), "here/edge", a)
	garbage := ocispec.Descriptor{MediaType: MediaTypeSimpleSigning, Digest: d, Size: 3, Annotations: map[string]string{annotationSignature: "bm9uZQ=="}}

	layers := slices.Concat(byA, byB, againA, transplanted, []ocispec.Descriptor{garbage, {}})
	joined, ids, err := JoinSignatures(t.Context(), store, d, keys, layers)
	require.NoError(t, err)
	require.Len(t, ids, 2)
	slices.Reverse(layers)
	other, _, err := JoinSignatures(t.Context(), store, d, keys, layers)
	require.NoError(t, err)
	require.Equal(t, joined, other)

	for _, blob := range append(joined.Blobs, joined.Manifest) {
		if there, _ := store.Exists(t.Context(), blob.Descriptor); !there {
			require.NoError(t, store.Push(t.Context(), blob.Descriptor, bytes.NewReader(blob.Data)))
		}
	}
	require.NoError(t, store.Tag(t.Context(), joined.Manifest.Descriptor, SignatureTag(d)))
	found, err := VerifySignature(t.Context(), store, d, Trust{Keys: keys, Threshold: 2})
	require.NoError(t, err)
	require.Equal(t, ids, found)
	require.Len(t, joinedLayers(t, store, d), 3, "one of each key, and the stranger's")
}

func joinedLayers(t *testing.T, src Source, d digest.Digest) []ocispec.Descriptor {
	layers, _, err := Signatures(t.Context(), src, SignatureTag(d))
	require.NoError(t, err)
	return layers
}

func TestSignaturesOfUnknownKeysDoNotFillAManifest(t *testing.T) {
	store, d := memory.New(), digest.FromString("manifest")
	ours, key := newKey(t)
	layers := signaturesBy(t, store, d, "r", ours)
	stranger, _ := newKey(t)
	for range 2 * maxOtherSignatures {
		layers = append(layers, signaturesBy(t, store, d, "r", stranger)...)
	}
	joined, ids, err := JoinSignatures(t.Context(), store, d, Keys{key}, layers)
	require.NoError(t, err)
	require.Len(t, ids, 1)
	require.NoError(t, store.Push(t.Context(), joined.Manifest.Descriptor, bytes.NewReader(joined.Manifest.Data)))
	require.NoError(t, store.Tag(t.Context(), joined.Manifest.Descriptor, SignatureTag(d)))
	require.Len(t, joinedLayers(t, store, d), 1+maxOtherSignatures)

	none, there, err := Signatures(context.Background(), memory.New(), "nothing")
	require.NoError(t, err)
	require.Empty(t, none)
	require.Empty(t, there)
}
