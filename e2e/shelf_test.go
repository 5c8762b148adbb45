//go:build e2e

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/agenttest"
	ownregistry "github.com/wherry-dev/wherry/airgap/registry"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// shelf is a registry of a test's own, whose releases hold one file each. Which way agents reach it is the test's to
// say: by serving its handler.
type shelf struct {
	t        *testing.T
	dir      string // for what the test needs
	handler  http.Handler
	address  string // HOST:PORT of the registry itself, without TLS
	stream   bundle.Stream
	bundles  oci.Target
	key      *ecdsa.PrivateKey
	sequence int64
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	f := &shelf{t: t, dir: t.TempDir(), stream: bundle.Stream{Platform: "default", Environment: "dev", ClusterType: "ship"}}
	var err error
	f.key, err = ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	require.NoError(t, err)
	public, err := bundle.MarshalPublicKey(f.key.Public())
	require.NoError(t, err)
	f.write("cosign.pub", public)

	registry, err := ownregistry.Open(f.path("registry"), ownregistry.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, registry.Close()) })
	f.handler = registry.Handler()
	server := httptest.NewServer(f.handler)
	t.Cleanup(server.Close)
	f.address = strings.TrimPrefix(server.URL, "http://")
	location, err := oci.Parse("oci://" + f.address + "/edge")
	require.NoError(t, err)
	f.bundles, err = location.Repository(f.stream.Repository(), oci.Options{})
	require.NoError(t, err)
	return f
}

func (f *shelf) path(name string) string { return filepath.Join(f.dir, name) }

func (f *shelf) write(name string, data []byte) string {
	f.t.Helper()
	require.NoError(f.t, os.WriteFile(f.path(name), data, 0o600))
	return f.path(name)
}

// place is that of an agent which reaches the registry at this location.
func (f *shelf) place(registry string) place {
	return place{registry: registry, clusterType: f.stream.ClusterType, key: f.path("cosign.pub"), state: f.path("state")}
}

// publish publishes a release that holds one file.
func (f *shelf) publish(content string) {
	f.t.Helper()
	f.sequence++
	_, err := agenttest.New(f.stream, f.sequence, time.Now(), map[string]string{"charts-main/file": content}, f.key).Publish(f.t.Context(), f.bundles)
	require.NoError(f.t, err)
}

// requireApplied requires that the file is this content as a whole.
func (f *shelf) requireApplied(content string) {
	f.t.Helper()
	got, err := os.ReadFile(filepath.Join(f.place("").applied(), "charts-main", "file"))
	require.NoError(f.t, err)
	require.True(f.t, content == string(got), "%d bytes, and not the %d that were published", len(got), len(content))
}

// noise is text that does not compress, the same for each seed.
func noise(seed byte, size int) string {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(data)
	return string(data)
}
