//go:build e2e && pods

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"math/rand/v2"
	"net"
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
	"github.com/wherry-dev/wherry/e2e/harness/wire"
)

// satellite is how it is to be behind one that hangs above the equator: 600 ms there and back, and 256 kbit/s.
var satellite = wire.Weather{Delay: 300 * time.Millisecond, Loss: 0.02, Rate: 32_000}

// behindLink is an agent in a network namespace, and its registry in another one. They speak TLS.
type behindLink struct {
	t        *testing.T
	link     *wire.Link
	server   *wire.Server
	bundles  oci.Target // where releases are published, beside the link
	key      *ecdsa.PrivateKey
	place    place
	sequence int64
}

func newBehindLink(t *testing.T) *behindLink {
	t.Helper()
	f := &behindLink{t: t}
	var err error
	f.key, err = ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	require.NoError(t, err)
	public, err := bundle.MarshalPublicKey(f.key.Public())
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		return path
	}

	registry, err := ownregistry.Open(filepath.Join(dir, "registry"), ownregistry.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, registry.Close()) })
	beside := httptest.NewServer(registry.Handler())
	t.Cleanup(beside.Close)
	location, err := oci.Parse("oci://" + strings.TrimPrefix(beside.URL, "http://") + "/edge")
	require.NoError(t, err)
	f.bundles, err = location.Repository(bundle.Stream{Environment: "dev", ClusterType: "ship"}.Repository(), oci.Options{})
	require.NoError(t, err)

	f.link, err = wire.NewLink()
	require.NoError(t, err, "this takes root and /dev/net/tun: make e2e E2E_TAGS=e2e leaves it out")
	t.Cleanup(func() { require.NoError(t, f.link.Close()) })
	far, err := f.link.Far.Listen()
	require.NoError(t, err)
	f.server, err = wire.Serve(far, net.IP(f.link.Far.Address.AsSlice()), registry.Handler())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.server.Close()) })
	f.place = place{
		registry: "oci://" + far.Addr().String() + "/edge", clusterType: "ship", key: write("cosign.pub", public),
		state: filepath.Join(dir, "state"), start: f.link.Near.Start, env: []string{"SSL_CERT_FILE=" + write("authority.pem", f.server.Authority)},
	}
	return f
}

// publish publishes a release that holds one file.
func (f *behindLink) publish(content string) {
	f.t.Helper()
	f.sequence++
	stream := bundle.Stream{Platform: "default", Environment: "dev", ClusterType: "ship"}
	_, err := agenttest.New(stream, f.sequence, time.Now(), map[string]string{"charts-main/file": content}, f.key).Publish(f.t.Context(), f.bundles)
	require.NoError(f.t, err)
}

// requireApplied requires that the file is this content as a whole.
func (f *behindLink) requireApplied(content string) {
	f.t.Helper()
	got, err := os.ReadFile(filepath.Join(f.place.applied(), "charts-main", "file"))
	require.NoError(f.t, err)
	require.True(f.t, content == string(got), "%d bytes, and not the %d that were published", len(got), len(content))
}

// noise is text that does not compress, the same for each seed.
func noise(seed byte, size int) string {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(data)
	return string(data)
}

// awaitDown waits until so many bytes more have come down than before.
func (f *behindLink) awaitDown(before wire.Arrived, bytes int64) {
	f.t.Helper()
	require.Eventually(f.t, func() bool { return f.link.Arrived().Down-before.Down >= bytes }, followerTime, 5*time.Millisecond)
}

func TestAnAgentBehindASatellite(t *testing.T) {
	t.Parallel()
	f := newBehindLink(t)
	f.link.Set(satellite)
	f.publish("first")
	a := follow(t, f.place)
	a.syncUntilDone()
	f.requireApplied("first")
	for i := range byte(2) {
		content := noise(i, 100_000)
		f.publish(content)
		a.syncUntilDone()
		f.requireApplied(content)
	}
	require.NotZero(t, f.link.Lost())

	// A short cut: the connection outlives it.
	content, before := noise(9, 200_000), f.link.Arrived()
	f.publish(content)
	done := make(chan error)
	go func() { done <- a.trySync() }()
	f.awaitDown(before, 100_000)
	require.NoError(t, f.link.Up(false))
	time.Sleep(2 * time.Second) // some of TCP's own attempts fail
	require.NoError(t, f.link.Up(true))
	if err := <-done; err != nil {
		a.syncUntilDone()
	}
	f.requireApplied(content)
}

// The link goes in the middle of a transfer, and the power as well.
func TestATransferThatIsCutGoesOn(t *testing.T) {
	const (
		size = 6 << 20
		// headers is what IP, TCP and TLS add to the layer at most, and requests and handshakes beside it.
		headers = size/10 + 64<<10
		// again is how much of a layer may come a second time: what was not yet synced to the disk.
		again = 1 << 20
	)
	t.Parallel()
	f := newBehindLink(t)
	f.link.Set(wire.Weather{Delay: 20 * time.Millisecond, Rate: 2 << 20})
	f.publish("old")
	a := follow(t, f.place)
	a.sync()

	content, before := noise(1, size), f.link.Arrived()
	f.publish(content)
	cut := make(chan error)
	go func() { cut <- a.trySync() }()
	f.awaitDown(before, size/2)
	require.NoError(t, f.link.Up(false))
	a.kill()
	require.Error(t, <-cut)
	f.requireApplied("old")
	require.NoError(t, f.link.Up(true))
	f.requireApplied("old")

	a = follow(t, f.place)
	a.syncUntilDone()
	f.requireApplied(content)
	came := f.link.Arrived().Down - before.Down
	t.Logf("%d bytes came down for a layer of %d", came, size)
	require.Less(t, came, int64(size+again+headers))
	require.Greater(t, came, int64(size))
}

// What a poll costs on the link is what docs/edge-links.md reckons with: a connection that nobody uses any more is
// closed, and nothing passes before the next poll.
func TestAPollLeavesNothingOnTheLink(t *testing.T) {
	t.Parallel()
	f := newBehindLink(t)
	f.link.Set(wire.Weather{Delay: satellite.Delay})
	f.publish("first")
	a := follow(t, f.place)
	a.sync()
	before := f.awaitQuiet()
	a.sync()
	after := f.awaitQuiet()
	t.Logf("%d packets, %d bytes up and %d down", after.Packets-before.Packets, after.Up-before.Up, after.Down-before.Down)
	require.NotEqual(t, before, after)
	require.LessOrEqual(t, after.Packets-before.Packets, int64(newPackets))
}

// awaitQuiet waits until no connection is open and no packet under way, and returns what has come by then.
func (f *behindLink) awaitQuiet() (arrived wire.Arrived) {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		last := arrived
		arrived = f.link.Arrived()
		return f.server.Open() == 0 && arrived == last
	}, followerTime, 5*satellite.Delay)
	return arrived
}
