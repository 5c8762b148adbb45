//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/agenttest"
	ownregistry "github.com/wherry-dev/wherry/airgap/registry"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/e2e/harness"
	"github.com/wherry-dev/wherry/e2e/harness/wire"
)

const (
	wireAssignments = 200
	// wireLayer is the size of the layer that is cut in half: some times what may come twice, and nothing that gzip
	// makes smaller.
	wireLayer = 8 << 20
	// wireQuiet is the time without traffic after which an exchange counts as over, including acknowledgements by
	// HTTP/2 that come after a response.
	wireQuiet = 300 * time.Millisecond
	// wireHost is this machine, by an address for which neither wherry nor Flux uses plain HTTP.
	wireHost = "0.0.0.0"
)

// BenchmarkWire prints what agent and, beside it, Flux's source-controller send and receive for the same content:
// each as a program of its own, by a counting proxy, from a registry with TLS in this process.
func BenchmarkWire(b *testing.B) {
	f := newWireBench(b)
	f.sayContent()

	p := f.place(clusterType, "cosign.pub", "state")
	f.figures("first-sync", true, f.measure(func() { f.once(p) }))
	f.figures("poll-cold", false, f.measure(func() { f.once(p) }))
	p.more = []string{"--interval", "80s"} // the longest for which the connection stays open
	a := follow(b, p)
	a.sync()
	resumed := f.measure(func() { f.proxy.Sever(); a.sync() })
	a.sync() // the header fields of a poll are in the connection's table from here
	warm := f.measure(a.sync)
	figure("poll-requests", warm.requests, "count")
	f.figures("poll-warm", false, warm)
	f.figures("poll-resumed", false, resumed)
	for _, n := range []int{1, 10} {
		f.publish(n)
		f.figures(fmt.Sprintf("update%dof200", n), true, f.measure(a.sync))
	}
	a.stop()

	p.more = []string{"--tls-post-quantum=false"}
	a = follow(b, p)
	a.sync()
	f.figures("poll-resumed-classic", false, f.measure(func() { f.proxy.Sever(); a.sync() }))
	a.stop()

	figure("cut-link-repeated-bytes", f.repeatedAfterCut(), "bytes")
	f.flux()
	f.sayMonths()
}

func figure(name string, value int64, unit string) {
	fmt.Printf("figure %s %d %s\n", name, value, unit)
}

// wireBench is a platform of 200 assignments, a registry, and the proxy before it.
type wireBench struct {
	tb       testing.TB
	dir      string
	plain    string // HOST:PORT of the registry without TLS and without the proxy, to publish to
	server   *wire.Server
	proxy    *wire.Proxy
	versions [wireAssignments]int // of the images
	seen     map[string]traffic   // what figures were printed of
}

func newWireBench(tb testing.TB) *wireBench {
	f := &wireBench{tb: tb, dir: tb.TempDir(), seen: map[string]traffic{}}
	require.NoError(tb, os.CopyFS(f.dir, os.DirFS("testdata")))
	require.NoError(tb, os.Rename(f.path("wire/templates.yaml"), f.path("platform/templates.yaml")))
	f.program("wherry", "keys", "generate", "-o", "cosign")

	registry, err := ownregistry.Open(f.path("registry"), ownregistry.Options{})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, registry.Close()) })
	plain := httptest.NewServer(registry.Handler())
	tb.Cleanup(plain.Close)
	f.plain = strings.TrimPrefix(plain.URL, "http://")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	f.server, err = wire.Serve(l, net.ParseIP(wireHost), registry.Handler())
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, f.server.Close()) })
	f.proxy, err = wire.Forward("127.0.0.1:0", l.Addr().String())
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, f.proxy.Close()) })
	require.NoError(tb, os.WriteFile(f.path("authority.pem"), f.server.Authority, 0o600))
	tb.Setenv("SSL_CERT_FILE", f.path("authority.pem")) // the agent and source-controller trust it
	f.publish(0)
	return f
}

func (f *wireBench) path(name string) string { return filepath.Join(f.dir, filepath.FromSlash(name)) }

// host is the registry as agent and Flux see it.
func (f *wireBench) host() string { return fmt.Sprintf("%s:%d", wireHost, f.proxy.Port()) }

// program runs wherry or wherry-agent to its end and returns its output.
func (f *wireBench) program(name string, args ...string) string {
	f.tb.Helper()
	ctx, cancel := context.WithTimeout(f.tb.Context(), programTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(os.Getenv(harness.ProgramsEnv), name), args...)
	cmd.Dir, cmd.Env = f.dir, append(os.Environ(), "COSIGN_PASSWORD="+password)
	out, err := cmd.CombinedOutput()
	require.NoError(f.tb, err, "%s %v\n%s", name, args, out)
	return string(out)
}

// publish publishes the platform after new versions of some images, spread over all targets.
func (f *wireBench) publish(changed int) {
	f.tb.Helper()
	for i := range changed {
		f.versions[i*wireAssignments/changed]++
	}
	var text bytes.Buffer
	text.WriteString("apiVersion: scheduler.kalypso.io/v1alpha1\nkind: Workload\nmetadata:\n  name: shop\nspec:\n  deploymentTargets:\n")
	for i, version := range f.versions {
		fmt.Fprintf(&text, "    - name: service-%03d\n      environment: dev\n      labels: {purpose: web}\n"+
			"      manifests: {image: \"registry.example.com/shop/service-%03d:1.%d.0\"}\n", i, i, version)
	}
	require.NoError(f.tb, os.WriteFile(f.path("workloads/shop/workload.yaml"), text.Bytes(), 0o600))
	f.program("wherry", "publish", "platform", "--environment", "dev", "--workload", "shop=workloads/shop", "--to", "oci://"+f.plain+"/edge", "--key", "cosign.key")
}

// sayContent prints the sizes of the content to transfer, of which the figures are made.
func (f *wireBench) sayContent() {
	f.tb.Helper()
	repository := f.repository(clusterType)
	latest, err := repository.Resolve(f.tb.Context(), bundle.LatestTag)
	require.NoError(f.tb, err)
	release, err := bundle.Read(f.tb.Context(), repository, latest)
	require.NoError(f.tb, err)
	fmt.Printf("%d assignments in a layer of %d bytes; certificates of %d bytes, without which a chain from a public authority would be some 2 KB longer\n",
		wireAssignments, release.Tree.Size, f.server.ChainBytes)
	fmt.Println("bytes are the payload of TCP with the records of TLS, without headers of TCP and IP")
}

func (f *wireBench) repository(clusterType string) oci.Target {
	f.tb.Helper()
	location, err := oci.Parse("oci://" + f.plain + "/edge")
	require.NoError(f.tb, err)
	repository, err := location.Repository(bundle.Stream{Environment: "dev", ClusterType: clusterType}.Repository(), oci.Options{})
	require.NoError(f.tb, err)
	return repository
}

// traffic is what something cost.
type traffic struct {
	requests int64
	wire.Count
}

func (f *wireBench) measure(do func()) traffic {
	f.tb.Helper()
	before, asked := f.proxy.Settle(wireQuiet), f.server.Requests()
	do()
	return traffic{f.server.Requests() - asked, f.proxy.Settle(wireQuiet).Since(before)}
}

// figures prints what something cost, with or without its requests.
func (f *wireBench) figures(name string, requests bool, t traffic) {
	f.seen[name] = t
	if requests {
		figure(name+"-requests", t.requests, "count")
	}
	figure(name+"-bytes-down", t.Down, "bytes")
	figure(name+"-bytes-up", t.Up, "bytes")
}

// place is that of an agent of a cluster type.
func (f *wireBench) place(clusterType, key, state string) place {
	return place{registry: "oci://" + f.host() + "/edge", clusterType: clusterType, key: f.path(key), state: f.path(state)}
}

// once has a process make one pass and end, and returns its log and status.
func (f *wireBench) once(p place) string {
	f.tb.Helper()
	return f.program("wherry-agent", append([]string{"once", "--wait", followerTime.String()}, p.flags()...)...)
}

// repeatedAfterCut is how many bytes more come down when the connection is cut in the middle of a layer: what of
// the layer is sent again, and the handshake and the headers of another connection.
func (f *wireBench) repeatedAfterCut() int64 {
	f.tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	require.NoError(f.tb, err)
	public, err := bundle.MarshalPublicKey(key.Public())
	require.NoError(f.tb, err)
	require.NoError(f.tb, os.WriteFile(f.path("large.pub"), public, 0o600))
	f.publishLarge(1, key)
	a := follow(f.tb, f.place("large", "large.pub", "large"))
	a.sync()

	f.publishLarge(2, key)
	whole := f.measure(func() { f.proxy.Sever(); a.sync() })
	require.Greater(f.tb, whole.Down, int64(wireLayer))
	f.publishLarge(3, key)
	cut := f.measure(func() {
		// No faster than the agent reads: what waits in its machine when a connection breaks is lost to it.
		f.proxy.Behave(wire.Behaviour{CutAt: whole.Down / 2, Rate: wireLayer / 2, Connections: 1})
		f.proxy.Sever()
		a.syncUntilDone()
	})
	require.Equal(f.tb, 1, f.proxy.Cuts())
	a.stop()
	return max(0, cut.Down-whole.Down)
}

func (f *wireBench) publishLarge(sequence int64, key crypto.Signer) {
	f.tb.Helper()
	content := make([]byte, wireLayer)
	_, _ = rand.NewChaCha8([32]byte{byte(sequence)}).Read(content)
	stream := bundle.Stream{Platform: "default", Environment: "dev", ClusterType: "large"}
	_, err := agenttest.New(stream, sequence, time.Now(), map[string]string{"model-main/weights": string(content)}, key).
		Publish(f.tb.Context(), f.repository("large"))
	require.NoError(f.tb, err)
}
