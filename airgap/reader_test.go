package airgap_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/graph"
)

// sitePackage returns a package with a list of contents and these further blobs.
func sitePackage(t *testing.T, c airgap.Contents, more ...bundle.Blob) []byte {
	t.Helper()
	list, err := c.Marshal()
	require.NoError(t, err)
	layer, config := bundle.NewBlob(airgap.MediaTypeContents, list), bundle.NewBlob(ocispec.MediaTypeEmptyJSON, []byte("{}"))
	data, err := json.Marshal(ocispec.Manifest{
		MediaType: ocispec.MediaTypeImageManifest, ArtifactType: airgap.MediaTypeContents, Config: config.Descriptor, Layers: []ocispec.Descriptor{layer.Descriptor},
	})
	require.NoError(t, err)
	manifest := bundle.NewBlob(ocispec.MediaTypeImageManifest, data)
	named := manifest.Descriptor
	named.Annotations = map[string]string{ocispec.AnnotationRefName: airgap.ContentsName}
	var out bytes.Buffer
	w := airgap.NewWriter(&out)
	require.NoError(t, w.Index([]ocispec.Descriptor{named}))
	for _, b := range append([]bundle.Blob{manifest, config, layer}, more...) {
		require.NoError(t, w.Blob(b.Descriptor, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Data)), nil }))
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

func TestAPackageIsReadFromFrontToBack(t *testing.T) {
	c := airgap.Contents{Schema: airgap.ContentsSchema, Platform: "coffee", ImagePlatforms: graph.Platforms{"linux/arm64"}, Blobs: 4, Bytes: 9}
	c.Releases = []airgap.ContentsRelease{{Environment: "dev", ClusterType: "shop", Number: 12, Tag: "s0-12", Digest: digest.FromString("m")}}
	first, second := bundle.NewBlob("application/x", []byte("first")), bundle.NewBlob("application/x", []byte("second"))
	data := sitePackage(t, c, first, second, first)
	require.Equal(t, data, sitePackage(t, c, first, second), "each blob once, and the same bytes for the same input")

	r, err := airgap.NewReader(io.MultiReader(bytes.NewReader(data))) // no Seeker
	require.NoError(t, err)
	require.Equal(t, &c, r.Contents())
	require.Len(t, r.Index().Manifests, 1)
	var got []string
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		content, err := io.ReadAll(e.Content)
		require.NoError(t, err)
		require.Equal(t, e.Digest, digest.FromBytes(content))
		got = append(got, string(content))
	}
	require.Equal(t, []string{"first", "second"}, got[3:])

	cut, err := airgap.NewReader(bytes.NewReader(data[:len(data)-2560]))
	require.NoError(t, err)
	for err == nil {
		var e airgap.Entry
		if e, err = cut.Next(); err == nil {
			_, err = io.Copy(io.Discard, e.Content)
		}
	}
	require.ErrorIs(t, err, airgap.ErrFormat)
	require.ErrorContains(t, err, "cut short")
}

func TestAPackageIsRefusedAtItsBeginning(t *testing.T) {
	good := sitePackage(t, airgap.Contents{Platform: "coffee"})
	for name, data := range map[string][]byte{
		"it holds":    {},
		"cut short":   good[:700],
		"another":     bytes.Replace(good, []byte(`"platform":"coffee"`), []byte(`"platform":"coffin"`), 1),
		"invalid tar": bytes.Repeat([]byte("x"), 1024),
	} {
		_, err := airgap.NewReader(bytes.NewReader(data))
		require.Error(t, err, name)
		t.Log(name, err)
	}
	var out bytes.Buffer
	w := airgap.NewWriter(&out)
	b := bundle.NewBlob("application/x", []byte("x"))
	require.NoError(t, w.Blob(b.Descriptor, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Data)), nil }))
	require.NoError(t, w.Index(nil))
	require.NoError(t, w.Close())
	_, err := airgap.NewReader(strings.NewReader(""))
	require.ErrorIs(t, err, airgap.ErrFormat)
	require.ErrorContains(t, err, "it holds nothing")
	_, err = airgap.NewReader(&out)
	require.ErrorIs(t, err, airgap.ErrOrder)
	require.ErrorIs(t, err, airgap.ErrFormat)
}
