//go:build e2e && pods

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/serve"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/e2e/harness"
)

// Debian's containerd takes images of registries that it cannot reach from an agent's endpoint, by tag and by digest.
func TestContainerdPullsFromTheEndpointAsAMirror(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	layout := oci.NewLayout(filepath.Join(dir, "store"))
	listed, next := pushRandomImage(t, layout), pushRandomImage(t, layout)
	require.NoError(t, layout.SetRefs([]oci.Retained{
		{Repository: "registry.example:5000/team/app", Tag: "1", Manifest: listed, All: true},
		{Repository: "registry.example:5000/team/app", Manifest: next, All: true},
	}, nil))
	url, ca := serveStore(t, dir)

	c, err := harness.StartContainerd(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Stop()) })
	hosts := filepath.Join(c.Hosts, "registry.example:5000")
	require.NoError(t, os.MkdirAll(hosts, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(hosts, "ca.pem"), ca, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(hosts, "hosts.toml"), fmt.Appendf(nil,
		"server = \"https://registry.example:5000\"\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n  ca = %q\n", url, filepath.Join(hosts, "ca.pem")), 0o644))

	byTag, byDigest := "registry.example:5000/team/app:1", "registry.example:5000/team/app@"+next.Digest.String()
	require.NoError(t, c.Pull(t.Context(), byTag))
	require.NoError(t, c.Pull(t.Context(), byDigest))
	images, err := c.Images(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]string{byTag: listed.Digest.String(), byDigest: next.Digest.String()}, images)

	require.Error(t, c.Pull(t.Context(), "registry.example:5000/team/app:2"), "no release lists the tag")
	require.Error(t, c.Pull(t.Context(), "registry.example:5000/team/other@"+next.Digest.String()), "the image of another repository")
}

// serveStore serves the layout in the folder store of dir until the test ends, and returns the URL and the CA.
func serveStore(t *testing.T, dir string) (url string, ca []byte) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	endpoint, err := serve.Open(serve.Options{Address: address, StateDir: dir})
	require.NoError(t, err)
	server, err := endpoint.Listen(filepath.Join(dir, "store"), "default")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() { server.Serve(ctx) })
	t.Cleanup(func() {
		cancel()
		served.Wait()
	})
	return endpoint.Served().URL, endpoint.Served().CA
}

// pushRandomImage writes an image with two layers to a layout, and returns its manifest.
func pushRandomImage(t *testing.T, layout *oci.Layout) ocispec.Descriptor {
	t.Helper()
	image, err := random.Image(64<<10, 2)
	require.NoError(t, err)
	repo, err := layout.Repository("blobs")
	require.NoError(t, err)
	push := func(mediaType string, data []byte) ocispec.Descriptor {
		b := bundle.NewBlob(mediaType, data)
		require.NoError(t, repo.Push(t.Context(), b.Descriptor, bytes.NewReader(b.Data)))
		return b.Descriptor
	}
	layers, err := image.Layers()
	require.NoError(t, err)
	for _, layer := range layers {
		body, err := layer.Compressed()
		require.NoError(t, err)
		size, err := layer.Size()
		require.NoError(t, err)
		d, err := layer.Digest()
		require.NoError(t, err)
		require.NoError(t, repo.Push(t.Context(), ocispec.Descriptor{Digest: digest.Digest(d.String()), Size: size}, body))
		require.NoError(t, body.Close())
	}
	config, err := image.RawConfigFile()
	require.NoError(t, err)
	push("application/vnd.docker.container.image.v1+json", config)
	manifest, err := image.RawManifest()
	require.NoError(t, err)
	mediaType, err := image.MediaType()
	require.NoError(t, err)
	return push(string(mediaType), manifest)
}
