package airgap_test

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/airgap"
)

// What a layer holds is the application's: it names nothing, even if it looks like a manifest.
func TestALayerThatLooksLikeAManifestNamesNothing(t *testing.T) {
	describe := func(mediaType string, data []byte) ocispec.Descriptor {
		return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	}
	manifest := func(layer ocispec.Descriptor) []byte {
		data, err := json.Marshal(ocispec.Manifest{
			Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
			Config: ocispec.DescriptorEmptyJSON, Layers: []ocispec.Descriptor{layer},
		})
		require.NoError(t, err)
		return data
	}
	layer := manifest(describe("text/plain", []byte("nowhere")))
	check := func(blobs ...[]byte) airgap.Checked {
		var file bytes.Buffer
		root := describe(ocispec.MediaTypeImageManifest, manifest(describe("application/json", layer)))
		root.Annotations = map[string]string{ocispec.AnnotationRefName: "host/app/1"}
		w := airgap.NewWriter(&file)
		require.NoError(t, w.Index([]ocispec.Descriptor{root}))
		for _, b := range blobs {
			require.NoError(t, w.Blob(describe("", b), func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }))
		}
		require.NoError(t, w.Close())
		r, err := airgap.NewReader(&file)
		require.NoError(t, err)
		checked, err := airgap.Check(t.Context(), r, nil)
		require.NoError(t, err)
		return checked
	}
	require.Empty(t, check(manifest(describe("application/json", layer)), layer).Faults)
	require.Equal(t, []airgap.Fault{{Digest: digest.FromBytes(layer), Text: "it is missing", NeededBy: []string{"host/app/1"}}},
		check(manifest(describe("application/json", layer))).Faults)
}
