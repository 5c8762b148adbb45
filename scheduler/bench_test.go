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
)

// A benchmark platform: size cluster types, size targets, all selected by one policy; 200 ConfigMaps of
// 5 keys (one of them a list of maps) of which 4 apply to each assignment; the three Templates of
// Kalypso's own platform; one schema.
const (
	commonMaps   = 2
	regionMaps   = 80
	purposeMaps  = 60
	workloadMaps = 58
)

const benchTemplates = `
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: arc-flux}
spec:
  type: reconciler
  manifests:
    - |
      apiVersion: source.toolkit.fluxcd.io/v1
      kind: GitRepository
      metadata:
        name: "{{ .DeploymentTargetName}}"
        namespace: flux-system
      spec:
        interval: 30s
        url: "{{ .Manifests.repo}}"
        ref:
          branch: "{{ .Manifests.branch}}"
    - |
      apiVersion: kustomize.toolkit.fluxcd.io/v1
      kind: Kustomization
      metadata:
        name: "{{ .DeploymentTargetName}}"
        namespace: flux-system
      spec:
        interval: 30s
        targetNamespace: "{{ .Namespace}}"
        sourceRef:
          kind: GitRepository
          name: "{{ .DeploymentTargetName}}"
        path: "{{ .Manifests.path}}"
        prune: true
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: default}
spec:
  type: namespace
  manifests:
    - |
      apiVersion: v1
      kind: Namespace
      metadata:
        name: "{{ .Namespace}}"
        labels:
          environment: "{{ .Environment}}"
          workspace: "{{ .Workspace}}"
          workload: "{{ .Workload}}"
          deploymentTarget: "{{ .DeploymentTargetName}}"
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: configmap}
spec:
  type: config
  manifests:
    - |
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: platform-config
        namespace: {{ .Namespace}}
      data:
      {{ toYaml .ConfigData | indent 2}}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: SchedulingPolicy
metadata: {name: all}
spec:
  deploymentTargetSelector: {labelSelector: {matchLabels: {tier: edge, fleet: main}}}
  clusterTypeSelector: {labelSelector: {matchLabels: {kind: line, fleet: main}}}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: ConfigSchema
metadata: {name: ports}
spec:
  schema: '{"type": "object", "required": ["PORT_0"], "properties": {"PORT_0": {"type": "integer"}, "NAME_0": {"type": "string"}, "URL_0": {"type": "string"}, "ON_0": {"type": "boolean"}}}'
`

// benchPlatform writes a platform of size × size assignments, a file for each object, to a folder.
func benchPlatform(tb testing.TB, size int) string {
	dir := tb.TempDir()
	write := func(name, content string) {
		require.NoError(tb, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(tb, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	write("common.yaml", benchTemplates)
	for i := range size {
		write(fmt.Sprintf("types/%d.yaml", i), fmt.Sprintf(`apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata: {name: type-%d, labels: {kind: line, fleet: main, region: region-%d}}
spec: {reconciler: arc-flux, namespaceService: default, configType: configmap}
`, i, i%regionMaps))
		write(fmt.Sprintf("workloads/%d.yaml", i), fmt.Sprintf(`apiVersion: scheduler.kalypso.io/v1alpha1
kind: Workload
metadata: {name: work-%d}
spec:
  deploymentTargets:
    - name: t%d
      labels: {tier: edge, fleet: main, purpose: purpose-%d, group: group-%d}
      environment: dev
      manifests: {repo: "https://example.com/apps/work-%d", branch: dev, path: ./t%d}
`, i, i, i%purposeMaps, i%workloadMaps, i, i))
	}
	for kind, n := range map[string]int{"common": commonMaps, "region": regionMaps, "purpose": purposeMaps, "group": workloadMaps} {
		for i := range n {
			condition := fmt.Sprintf(", %s: %s-%d", kind, kind, i)
			if kind == "common" {
				condition = ""
			}
			write(fmt.Sprintf("config/%s-%d.yaml", kind, i), benchMap(kind, condition, i))
		}
	}
	return dir
}

func benchMap(kind, condition string, i int) string {
	return fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata: {name: %s-%d, labels: {platform-config: "true"%s}}
data:
  NAME_%d: %s %d
  PORT_%d: "%d"
  URL_%d: https://example.com/%s/%d
  ON_%d: "true"
  LIST: |
    - name: %s
      value: %d
`, kind, i, condition, i, kind, i, i, 8000+i, i, kind, i, i, kind, i)
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
		changed := strings.Replace(benchMap("group", ", group: group-7", 7), "NAME_7: group 7", fmt.Sprintf("NAME_7: changed %d", i), 1)
		require.NoError(b, os.WriteFile(filepath.Join(dir, "config/group-7.yaml"), []byte(changed), 0o600))
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
