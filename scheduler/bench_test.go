package scheduler_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/rendercache"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/platformtest"
)

// benchPlatform writes a platform of size × size assignments to a folder.
func benchPlatform(tb testing.TB, size int) string {
	dir := tb.TempDir()
	require.NoError(tb, platformtest.Write(dir, size))
	return dir
}

func benchModel(tb testing.TB, dir string) *scheduler.Model {
	m := scheduler.NewModel("dev")
	require.NoError(tb, m.Load(context.Background(), scheduler.Source{FS: os.DirFS(dir)}))
	return m
}

func benchRender(tb testing.TB, m *scheduler.Model, assignments int, cache scheduler.Cache) {
	result, err := m.Render(context.Background(), scheduler.Options{Cache: cache})
	require.NoError(tb, err)
	found := 0
	for _, ct := range result.ClusterTypes {
		found += len(ct.Assignments)
	}
	require.Equal(tb, assignments, found)
}

// BenchmarkRender prints the figures of `make bench-render`.
func BenchmarkRender(b *testing.B) {
	for _, size := range []struct {
		name string
		edge int
	}{{"1k", 32}, {"10k", 100}, {"100k", 316}} {
		b.Run(size.name, func(b *testing.B) {
			assignments := size.edge * size.edge
			dir := benchPlatform(b, size.edge)
			m := benchModel(b, dir)
			if size.name == "100k" { // before all else, since a peak stays
				_, err := m.Render(context.Background(), scheduler.Options{Each: takeFiles})
				require.NoError(b, err)
				figure("render-100k-peak-bytes", peakBytes(), "bytes")
			}
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			cpu := cpuTime()
			for b.Loop() {
				benchRender(b, m, assignments, nil)
			}
			cpu = cpuTime() - cpu
			runtime.ReadMemStats(&after)
			figure("render-"+size.name+"-ns-per-assignment", b.Elapsed().Nanoseconds()/int64(b.N*assignments), "ns")
			figure("render-"+size.name+"-cpu-ns-per-assignment", cpu.Nanoseconds()/int64(b.N*assignments), "ns")
			if size.name != "100k" {
				return
			}
			figure("render-100k-bytes-per-assignment", int64(after.TotalAlloc-before.TotalAlloc)/int64(b.N*assignments), "bytes")
			benchChanges(b, dir, assignments)
			figure("render-100k-whole-peak-bytes", peakBytes(), "bytes")
		})
	}
}

// benchChecks are three rules: about objects that no assignment has, and about two that each of them has.
const benchChecks = `apiVersion: wherry.dev/v1alpha1
kind: PlatformCheck
metadata: {name: no-loadbalancer}
spec:
  objects: {kinds: [Service]}
  expression: "!has(object.spec.type) || object.spec.type != 'LoadBalancer'"
---
apiVersion: wherry.dev/v1alpha1
kind: PlatformCheck
metadata: {name: namespaces-are-named-by-environment}
spec:
  objects: {kinds: [Namespace]}
  expression: object.metadata.name.startsWith(environment + '-')
---
apiVersion: wherry.dev/v1alpha1
kind: PlatformCheck
metadata: {name: sources-are-ours}
spec:
  objects: {kinds: [GitRepository]}
  expression: object.spec.url.startsWith('https://')
`

// BenchmarkChecks prints what 100,000 assignments cost without and with three PlatformChecks: rendered for the first time, and
// again when nothing has changed. Run it with -benchtime 1x.
func BenchmarkChecks(b *testing.B) {
	const edge = 316
	for _, name := range []string{"without", "with"} {
		b.Run(name, func(b *testing.B) {
			dir := benchPlatform(b, edge)
			if name == "with" {
				require.NoError(b, os.WriteFile(filepath.Join(dir, "checks.yaml"), []byte(benchChecks), 0o644))
			}
			cacheDir := b.TempDir()
			for _, run := range []string{"first", "unchanged"} {
				runtime.GC()
				start, cpu := time.Now(), cpuTime()
				cache, err := rendercache.Open(cacheDir, rendercache.Options{})
				require.NoError(b, err)
				benchRender(b, benchModel(b, dir), edge*edge, cache)
				figure("checks-100k-"+name+"-"+run+"-ms", time.Since(start).Milliseconds(), "ms")
				figure("checks-100k-"+name+"-"+run+"-cpu-ms", (cpuTime() - cpu).Milliseconds(), "ms")
			}
		})
	}
}

// takeFiles reads a cluster type's files and drops them, as one does who works by cluster type.
func takeFiles(ct *scheduler.ClusterTypeResult) error {
	sum := sha256.New()
	for i := range ct.Assignments {
		for _, f := range ct.Assignments[i].Files {
			_, _ = sum.Write(f.Data)
		}
		ct.Assignments[i].Files = nil
	}
	return nil
}

// benchChanges times loading and rendering with a cache of files: the first time, after nothing has
// changed, and after one ConfigMap has that applies to five or six assignments of each cluster type. The
// shortest of three is printed, and the CPU time of that.
func benchChanges(b *testing.B, dir string, assignments int) {
	cacheDir := b.TempDir()
	run := func() (taken, cpu time.Duration) {
		runtime.GC()
		start, cpuStart := time.Now(), cpuTime()
		cache, err := rendercache.Open(cacheDir, rendercache.Options{})
		require.NoError(b, err)
		benchRender(b, benchModel(b, dir), assignments, cache)
		cache.Trim()
		return time.Since(start), cpuTime() - cpuStart
	}
	best := func(what string, times int, change func(i int)) {
		taken, cpu := time.Hour, time.Hour
		for i := range times {
			change(i)
			if t, c := run(); t < taken {
				taken, cpu = t, c
			}
		}
		figure("render-100k-"+what+"-ms", taken.Milliseconds(), "ms")
		figure("render-100k-"+what+"-cpu-ms", cpu.Milliseconds(), "ms")
	}
	best("first", 1, func(int) {})
	best("no-change", 3, func(int) {})
	best("one-change", 3, func(i int) {
		require.NoError(b, platformtest.ChangeGroup(dir, fmt.Sprintf("changed %d", i)))
	})
}

func figure(name string, value int64, unit string) {
	fmt.Printf("figure %s %d %s\n", name, value, unit)
}

// cpuTime is what the process has used, to 10 ms, or nothing where the system does not tell. It says more
// than the time that passes on a machine that others use too.
func cpuTime() time.Duration {
	stat, _ := os.ReadFile("/proc/self/stat")
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// peakBytes is the most memory that the process was resident with or, where the system does not tell,
// the memory that Go has obtained.
func peakBytes() int64 {
	status, _ := os.ReadFile("/proc/self/status")
	if _, rest, ok := strings.Cut(string(status), "VmHWM:"); ok {
		if kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64); err == nil {
			return kb << 10
		}
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.Sys)
}
