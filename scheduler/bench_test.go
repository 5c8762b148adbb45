package scheduler

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
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

// benchPlatform writes a platform of size × size assignments. changed is a value of one ConfigMap.
func benchPlatform(size int, changed string) fstest.MapFS {
	var b strings.Builder
	b.WriteString(benchTemplates)
	for i := range size {
		fmt.Fprintf(&b, `---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata: {name: type-%d, labels: {kind: line, fleet: main, region: region-%d}}
spec: {reconciler: arc-flux, namespaceService: default, configType: configmap}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Workload
metadata: {name: work-%d}
spec:
  deploymentTargets:
    - name: t%d
      labels: {tier: edge, fleet: main, purpose: purpose-%d, group: group-%d}
      environment: dev
      manifests: {repo: "https://example.com/apps/work-%d", branch: dev, path: ./t%d}
`, i, i%regionMaps, i, i, i%purposeMaps, i%workloadMaps, i, i)
	}
	writeMap := func(i int, kind, labels string) {
		fmt.Fprintf(&b, `---
apiVersion: v1
kind: ConfigMap
metadata: {name: %s-%d, labels: {platform-config: "true"%s}}
data:
  NAME_%d: %s %d%s
  PORT_%d: "%d"
  URL_%d: https://example.com/%s/%d
  ON_%d: "true"
  LIST: |
    - name: %s
      value: %d
`, kind, i, labels, i, kind, i, changed, i, 8000+i, i, kind, i, i, kind, i)
	}
	for i := range commonMaps {
		writeMap(i, "common", "")
	}
	for i := range regionMaps {
		writeMap(i, "region", fmt.Sprintf(", region: region-%d", i))
	}
	for i := range purposeMaps {
		writeMap(i, "purpose", fmt.Sprintf(", purpose: purpose-%d", i))
	}
	for i := range workloadMaps {
		writeMap(i, "group", fmt.Sprintf(", group: group-%d", i))
	}
	return fstest.MapFS{"all.yaml": {Data: []byte(b.String())}}
}

func benchModel(tb testing.TB, size int, changed string) *Model {
	m := NewModel("dev")
	require.NoError(tb, m.Load(context.Background(), Source{FS: benchPlatform(size, changed)}))
	return m
}

func benchRender(tb testing.TB, m *Model, assignments int) {
	benchRenderCached(tb, m, assignments, nil)
}

func benchRenderCached(tb testing.TB, m *Model, assignments int, cache Cache) {
	result, err := m.Render(context.Background(), Options{Cache: cache})
	require.NoError(tb, err)
	found := 0
	for _, ct := range result.ClusterTypes {
		found += len(ct.Assignments)
	}
	require.Equal(tb, assignments, found)
}

// BenchmarkRender prints the figures of `make bench-render`. Nothing is kept between two renderings yet,
// so the figure of one change is that of loading and rendering everything again.
func BenchmarkRender(b *testing.B) {
	for _, size := range []struct {
		name string
		edge int
	}{{"1k", 32}, {"10k", 100}, {"100k", 316}} {
		b.Run(size.name, func(b *testing.B) {
			assignments := size.edge * size.edge
			m := benchModel(b, size.edge, "")
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			cpu := cpuTime()
			for b.Loop() {
				benchRender(b, m, assignments)
			}
			cpu = cpuTime() - cpu
			runtime.ReadMemStats(&after)
			figure("render-"+size.name+"-ns-per-assignment", b.Elapsed().Nanoseconds()/int64(b.N*assignments), "ns")
			figure("render-"+size.name+"-cpu-ns-per-assignment", cpu.Nanoseconds()/int64(b.N*assignments), "ns")
			if size.name != "100k" {
				return
			}
			figure("render-100k-bytes-per-assignment", int64(after.TotalAlloc-before.TotalAlloc)/int64(b.N*assignments), "bytes")
			start := time.Now()
			benchRender(b, benchModel(b, size.edge, " (changed)"), assignments)
			figure("render-100k-one-change-ms", time.Since(start).Milliseconds(), "ms")
			figure("render-100k-peak-bytes", peakBytes(), "bytes")
		})
	}
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
