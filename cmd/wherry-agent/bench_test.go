package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

const (
	benchAssignments = 200 // with two objects each
	benchUpdates     = 7
	// ticks is how many of /proc's units of CPU time make a second, on every Linux there is.
	ticks = 100
)

// BenchmarkAgent prints figures of the real binary, run as a process of its own against a registry in
// this one: by the adapter directory or, where WHERRY_E2E_KUBECONFIG names a cluster, by kubernetes.
func BenchmarkAgent(b *testing.B) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		b.Fatal("memory and CPU time are read from /proc, which is not here: run this on Linux")
	}
	f := newBench(b)
	adapter := "directory"
	if f.kubeconfig != "" {
		adapter = "kubernetes"
	}
	fmt.Printf("measured with the adapter %s, %d objects in %d assignments; updates: median time, mean CPU of %d\n",
		adapter, 2*benchAssignments, benchAssignments, benchUpdates)
	info, err := os.Stat(f.binary)
	require.NoError(b, err)
	figure("agent-binary-bytes", info.Size(), "bytes")

	f.publish(nil)
	f.start()
	f.sync()
	time.Sleep(2 * time.Second)
	figure("agent-rss-idle-bytes", f.rss(), "bytes")

	f.publish(f.files())
	figure("converge-400-ms", f.sync().Milliseconds(), "ms")
	figure("agent-rss-400-bytes", f.rss(), "bytes")

	var times []time.Duration
	before := f.cpu()
	for range benchUpdates {
		f.value++
		f.publish(f.files())
		times = append(times, f.sync())
	}
	slices.Sort(times)
	figure("update1of200-ms", times[len(times)/2].Milliseconds(), "ms")
	figure("update1of200-cpu-ms", (f.cpu()-before).Milliseconds()/benchUpdates, "ms")

	f.publish(nil) // leaves nothing on the cluster
	f.sync()
}

func figure(name string, value int64, unit string) {
	fmt.Printf("figure %s %d %s\n", name, value, unit)
}

// bench is one agent process and what it follows.
type bench struct {
	b          *testing.B
	binary     string
	kubeconfig string
	dir        string
	repo       oci.Target
	location   string
	key        *ecdsa.PrivateKey
	sequence   int64
	value      int
	pid        int
}

func newBench(b *testing.B) *bench {
	f := &bench{b: b, dir: b.TempDir(), kubeconfig: os.Getenv("WHERRY_E2E_KUBECONFIG")}
	var err error
	f.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(b, err)
	public, err := bundle.MarshalPublicKey(f.key.Public())
	require.NoError(b, err)
	require.NoError(b, os.WriteFile(f.path("cosign.pub"), public, 0o600))

	server := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug))))
	b.Cleanup(server.Close)
	f.location = "oci://" + strings.TrimPrefix(server.URL, "http://") + "/edge"
	loc, err := oci.Parse(f.location)
	require.NoError(b, err)
	f.repo, err = loc.Repository("bundles/dev/bench", oci.Options{})
	require.NoError(b, err)

	f.binary = f.path("wherry-agent")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", f.binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(b, err, "%s", out)
	return f
}

func (f *bench) path(name string) string { return filepath.Join(f.dir, name) }

// files are two objects for each assignment. The first assignment holds the value that updates change.
func (f *bench) files() map[string]string {
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

func (f *bench) publish(files map[string]string) {
	f.b.Helper()
	f.sequence++
	stream := bundle.Stream{Platform: "default", Environment: "dev", ClusterType: "bench"}
	_, err := agenttest.New(stream, f.sequence, time.Now(), files, f.key).Publish(context.Background(), f.repo)
	require.NoError(f.b, err)
}

// start starts the agent and waits until it answers.
func (f *bench) start() {
	f.b.Helper()
	args := []string{
		"run", "--registry", f.location, "--environment", "dev", "--cluster-type", "bench", "--key", f.path("cosign.pub"),
		"--state-dir", f.path("state"), "--interval", "1h",
	}
	if f.kubeconfig != "" {
		args = append(args, "--adapter", "kubernetes", "--kubeconfig", f.kubeconfig)
	} else {
		args = append(args, "--adapter", "directory", "--directory-root", f.path("host"))
	}
	log, err := os.Create(f.path("log"))
	require.NoError(f.b, err)
	cmd := exec.Command(f.binary, args...)
	cmd.Stderr = log
	require.NoError(f.b, cmd.Start())
	f.pid = cmd.Process.Pid
	f.b.Cleanup(func() {
		require.NoError(f.b, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(f.b, cmd.Wait())
		require.NoError(f.b, log.Close())
	})
	require.Eventually(f.b, func() bool {
		_, err := agent.NewClient(f.path("state")).Status(context.Background())
		return err == nil
	}, 30*time.Second, 10*time.Millisecond)
}

// sync has the agent make a pass and returns how long it took until all was compliant.
func (f *bench) sync() time.Duration {
	f.b.Helper()
	begun := time.Now()
	r, err := agent.NewClient(f.path("state")).Sync(context.Background(), time.Minute)
	took := time.Since(begun)
	require.NoError(f.b, err)
	require.Equal(f.b, bundle.Compliant, r.Status.State, "%s %v", r.Error, r.Status.Items)
	return took
}

// rss is the process's resident memory, in bytes.
func (f *bench) rss() int64 {
	f.b.Helper()
	fields := f.proc("statm")
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	require.NoError(f.b, err)
	return pages * int64(os.Getpagesize())
}

// cpu is the time that the process has computed, for itself and in the kernel.
func (f *bench) cpu() time.Duration {
	f.b.Helper()
	fields := f.proc("stat")
	var sum int64
	for _, field := range fields[13:15] { // utime and stime
		n, err := strconv.ParseInt(field, 10, 64)
		require.NoError(f.b, err)
		sum += n
	}
	return time.Duration(sum) * time.Second / ticks
}

func (f *bench) proc(name string) []string {
	f.b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", f.pid, name))
	require.NoError(f.b, err)
	return strings.Fields(string(data))
}
