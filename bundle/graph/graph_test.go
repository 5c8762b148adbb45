package graph

import (
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
)

func TestPlatforms(t *testing.T) {
	for _, c := range []struct {
		of   *ocispec.Platform
		want bool
	}{
		{nil, true},
		{&ocispec.Platform{}, true},
		{&ocispec.Platform{OS: "linux", Architecture: "amd64"}, true},
		{&ocispec.Platform{OS: "linux", Architecture: "amd64", Variant: "v3"}, true},
		{&ocispec.Platform{OS: "windows", Architecture: "amd64"}, false},
		{&ocispec.Platform{OS: "multi", Architecture: "amd64"}, true},
		{&ocispec.Platform{OS: "linux", Architecture: "arm64", Variant: "v8"}, false},
		{&ocispec.Platform{OS: "linux", Architecture: "arm", Variant: "v7"}, true},
		{&ocispec.Platform{OS: "linux", Architecture: "arm", Variant: "v6"}, false},
		{&ocispec.Platform{OS: "linux", Architecture: "arm"}, true},
		{&ocispec.Platform{OS: "unknown", Architecture: "unknown"}, false},
	} {
		require.Equal(t, c.want, Platforms{"linux/amd64", "linux/arm/v7"}.has(c.of), c.of)
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"config":{"digest":"sha256:1","size":1}}`))
	f.Add([]byte(`{"manifests":[{"platform":{"os":"linux"}}]}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		root := ocispec.Descriptor{Digest: digest.FromBytes(data), Size: int64(len(data))}
		_, _ = Walk(root, Platforms{"linux/amd64"}, func(ocispec.Descriptor) ([]byte, error) { return data, nil })
	})
}
