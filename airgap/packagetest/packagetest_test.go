package packagetest

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
)

// small is a package of one image: its index, its manifest, its config and a layer.
func small(t *testing.T) []byte {
	t.Helper()
	blob := func(mediaType string, v any) bundle.Blob {
		data, err := json.Marshal(v)
		require.NoError(t, err)
		return bundle.NewBlob(mediaType, data)
	}
	layer, config := bundle.NewBlob(ocispec.MediaTypeImageLayer, []byte("layer")), bundle.NewBlob(ocispec.MediaTypeImageConfig, []byte("{}"))
	manifest := blob(ocispec.MediaTypeImageManifest, ocispec.Manifest{Config: config.Descriptor, Layers: []ocispec.Descriptor{layer.Descriptor}})
	index := blob(ocispec.MediaTypeImageIndex, ocispec.Index{Manifests: []ocispec.Descriptor{manifest.Descriptor}})
	named := index.Descriptor
	named.Annotations = map[string]string{ocispec.AnnotationRefName: "ghcr.io/coffee/shop/1"}
	var out bytes.Buffer
	w := airgap.NewWriter(&out)
	require.NoError(t, w.Index([]ocispec.Descriptor{named}))
	for _, b := range []bundle.Blob{index, manifest, config, layer} {
		require.NoError(t, w.Blob(b.Descriptor, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Data)), nil }))
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

func TestAPackageIsTakenApartAndWrittenAgain(t *testing.T) {
	data := small(t)
	p, err := Parse(data)
	require.NoError(t, err)
	require.Equal(t, data, p.Bytes())
	var roles []string
	for _, part := range p.Parts() {
		roles = append(roles, part.Role)
	}
	const image = "ghcr.io/coffee/shop/1 "
	require.Equal(t, []string{"oci-layout", "index", image + "index of images", image + "image manifest", image + "config", image + "layer"}, roles)
	require.Panics(t, func() { p.Part("another") })
}

func TestAReplacedBlobIsNamedByWhatNamedTheFormer(t *testing.T) {
	p, err := Parse(small(t))
	require.NoError(t, err)
	before := p.Clone()
	p.Replace(p.Part("ghcr.io/coffee/shop/1 layer"), []byte("another layer"))

	require.Equal(t, []byte("another layer"), p.Get(p.Part("ghcr.io/coffee/shop/1 layer")))
	for _, e := range p.Entries[2:] {
		require.Equal(t, BlobName(digest.FromBytes(e.Data)), e.Name)
	}
	require.Equal(t, before.Get(before.Part("ghcr.io/coffee/shop/1 config")), p.Get(p.Part("ghcr.io/coffee/shop/1 config")))
	require.NotEqual(t, before.Index().Manifests[0].Digest, p.Index().Manifests[0].Digest)
	require.EqualValues(t, len(p.Get(p.Part("ghcr.io/coffee/shop/1 index of images"))), p.Index().Manifests[0].Size)
}
