//go:build e2e

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	memoryregistry "github.com/google/go-containerregistry/pkg/registry"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/e2e/harness"
)

const (
	benchAssignments = 200 // with two objects each
	benchUpdates     = 7
	// benchPoll is the interval at which agent and source-controller poll the registry, and benchApply the one at
	// which kustomize-controller applies.
	benchPoll, benchApply = 10 * time.Second, time.Minute
	// benchRest is the time for a process to come to rest after work, and benchIdle the time of the measurement.
	benchRest, benchIdle = 5 * time.Second, time.Minute
)

// BenchmarkAgent prints figures of the agent and, beside them, of Flux's two controllers, which apply the same
// objects from the same registry to the same API server, one after the other.
func BenchmarkAgent(b *testing.B) {
	f := newAgentBench(b)
	fmt.Printf("%d objects in %d assignments; updates: median of %d; idle: a minute with a look at the registry every %s, after %s of rest\n",
		2*benchAssignments, benchAssignments, benchUpdates, benchPoll, benchRest)
	info, err := os.Stat(filepath.Join(os.Getenv(harness.ProgramsEnv), "wherry-agent"))
	require.NoError(b, err)
	figure("agent-binary-bytes", info.Size(), "bytes")

	f.publish(nil)
	a := f.follow()
	a.sync()
	m := f.meter("agent", f.proxy.requests.Load, a.cmd.Process.Pid)
	m.converge(func() { f.publish(f.files()) }, a.sync)
	m.updates("update1of200", func() { f.value++; f.publish(f.files()) }, a.sync)
	m.idle()
	before := f.proxy.requests.Load()
	a.sync()
	figure("drift-pass-api-requests", f.proxy.requests.Load()-before, "count")
	f.publish(nil)
	a.sync()
	a.stop()

	f.flux()
}

// agentBench is a registry with one stream, an API server, and a proxy before it that counts requests.
type agentBench struct {
	b        *testing.B
	dir      string
	handler  http.Handler // of the registry
	registry string       // HOST:PORT, as the agent is told
	repo     oci.Target
	key      *ecdsa.PrivateKey
	latest   ocispec.Descriptor
	sequence int64
	value    int
	proxy    *apiProxy
}

func newAgentBench(b *testing.B) *agentBench {
	f := &agentBench{b: b, dir: b.TempDir()}
	var err error
	f.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(b, err)
	public, err := bundle.MarshalPublicKey(f.key.Public())
	require.NoError(b, err)
	require.NoError(b, os.WriteFile(f.path("cosign.pub"), public, 0o600))
	f.handler = memoryregistry.New(memoryregistry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)))
	server := httptest.NewServer(f.handler)
	b.Cleanup(server.Close)
	f.registry = strings.TrimPrefix(server.URL, "http://")
	location, err := oci.Parse("oci://" + f.registry + "/edge")
	require.NoError(b, err)
	f.repo, err = location.Repository(bundle.Stream{Environment: "dev", ClusterType: "bench"}.Repository(), oci.Options{})
	require.NoError(b, err)
	f.proxy = newAPIProxy(b, f.path("kubeconfig"))
	return f
}

func (f *agentBench) path(name string) string { return filepath.Join(f.dir, name) }

// files are two objects for each assignment. The first assignment holds the value that updates change.
func (f *agentBench) files() map[string]string {
	files := map[string]string{}
	for i := range benchAssignments {
		value := 0
		if i == 0 {
			value = f.value
		}
		for _, kind := range []string{"config", "extra"} {
			files[fmt.Sprintf("bench%03d-main/%s.yaml", i, kind)] = fmt.Sprintf(
				"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: wherry-bench-%03d-%s\n  namespace: default\ndata:\n  value: \"%d\"\n  region: north\n", i, kind, value)
		}
	}
	return files
}

func (f *agentBench) publish(files map[string]string) {
	f.b.Helper()
	f.sequence++
	stream := bundle.Stream{Platform: "default", Environment: "dev", ClusterType: "bench"}
	var err error
	f.latest, err = agenttest.New(stream, f.sequence, time.Now(), files, f.key).Publish(f.b.Context(), f.repo)
	require.NoError(f.b, err)
}

func (f *agentBench) follow(more ...string) *follower {
	f.b.Helper()
	return follow(f.b, place{
		registry: "oci://" + f.registry + "/edge", clusterType: "bench", key: f.path("cosign.pub"), state: f.path("state"),
		more: append([]string{
			"--adapter", "kubernetes", "--kubeconfig", f.path("kubeconfig"), "--interval", benchPoll.String(),
			"--memory", fmt.Sprintf("wherry-system/bench-%d", os.Getpid()), // sequences begin at 1 in each run
		}, more...),
	})
}

// apiProxy passes requests on to the API server, with the caller's token, over TLS on both sides: the measured program
// uses it like the API server.
type apiProxy struct {
	requests  atomic.Int64
	discovery atomic.Int64 // as many of them ask which kinds there are: the answer may send the client on, where it is stale
}

var isDiscovery = regexp.MustCompile(`^/(api(/[^/]+)?|apis(/[^/]+){0,2})$`)

func newAPIProxy(b testing.TB, kubeconfig string) *apiProxy {
	p := &apiProxy{}
	upstream, err := url.Parse(cluster.Config.Host)
	require.NoError(b, err)
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: cluster.Config.TLSClientConfig})
	require.NoError(b, err)
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(upstream) }, Transport: transport, FlushInterval: -1,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.requests.Add(1)
		if isDiscovery.MatchString(r.URL.Path) {
			p.discovery.Add(1)
		}
		forward.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	b.Cleanup(server.Close)
	b.Cleanup(server.CloseClientConnections)
	config := api.NewConfig()
	config.Clusters["proxy"] = &api.Cluster{Server: server.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}
	config.AuthInfos["admin"] = &api.AuthInfo{Token: cluster.Config.BearerToken}
	config.Contexts["proxy"] = &api.Context{Cluster: "proxy", AuthInfo: "admin"}
	config.CurrentContext = "proxy"
	require.NoError(b, clientcmd.WriteToFile(*config, kubeconfig))
	return p
}

// meter measures processes that do one thing together.
type meter struct {
	b        *testing.B
	name     string
	pids     []int
	requests func() int64 // to the API server, so far
}

func (f *agentBench) meter(name string, requests func() int64, pids ...int) meter {
	return meter{f.b, name, pids, requests}
}

// prefix is before the name of a figure that does not name the agent.
func (m meter) prefix() string {
	if m.name == "agent" {
		return ""
	}
	return m.name + "-"
}

// converge prints the memory before and after the first objects are applied, and how long that took.
func (m meter) converge(publish, apply func()) {
	m.b.Helper()
	time.Sleep(benchRest)
	figure(m.name+"-rss-idle-bytes", m.memory("VmRSS"), "bytes")
	publish()
	begun := time.Now()
	apply()
	figure(m.prefix()+"converge-400-ms", time.Since(begun).Milliseconds(), "ms")
	time.Sleep(benchRest)
	figure(m.name+"-rss-400-bytes", m.memory("VmRSS"), "bytes")
	figure(m.name+"-peak-400-bytes", m.memory("VmHWM"), "bytes")
}

// updates prints medians of what an update costs until the processes are at rest again.
func (m meter) updates(name string, publish, apply func()) {
	m.b.Helper()
	var times, cpu, requests []int64
	for range benchUpdates {
		publish()
		beforeCPU, beforeRequests, begun := m.cpu(), m.requests(), time.Now()
		apply()
		times = append(times, time.Since(begun).Milliseconds())
		time.Sleep(time.Second)
		cpu, requests = append(cpu, (m.cpu()-beforeCPU).Milliseconds()), append(requests, m.requests()-beforeRequests)
	}
	figure(m.prefix()+name+"-ms", median(times), "ms")
	figure(m.prefix()+name+"-cpu-ms", median(cpu), "ms")
	figure(m.prefix()+name+"-api-requests", median(requests), "count")
}

// idle prints what a minute costs in which nothing changes.
func (m meter) idle() {
	m.b.Helper()
	time.Sleep(benchRest)
	cpu, requests := m.cpu(), m.requests()
	time.Sleep(benchIdle)
	figure(m.prefix()+"idle-cpu-ms-per-minute", (m.cpu() - cpu).Milliseconds(), "ms")
	figure(m.prefix()+"idle-api-requests-per-minute", m.requests()-requests, "count")
}

func median(values []int64) int64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// memory is a line of /proc's status of all processes together, in bytes.
func (m meter) memory(line string) (sum int64) {
	m.b.Helper()
	for _, pid := range m.pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		require.NoError(m.b, err)
		_, rest, found := strings.Cut(string(data), "\n"+line+":")
		require.True(m.b, found)
		kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		require.NoError(m.b, err)
		sum += kib << 10
	}
	return sum
}

// cpu is the time that the processes have computed, for themselves and in the kernel, with threads that have ended:
// in nanoseconds, where /proc has ticks of 10 ms.
func (m meter) cpu() (sum time.Duration) {
	m.b.Helper()
	for _, pid := range m.pids {
		// The clock of a process as clock_getcpuclockid(3) makes it: CPUCLOCK_SCHED of all its threads.
		var t unix.Timespec
		require.NoError(m.b, unix.ClockGettime(int32(^pid<<3|2), &t))
		sum += time.Duration(t.Nano())
	}
	return sum
}
