package scheduler

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/sweeptest"
)

// memoryCache is a Cache in memory.
type memoryCache struct {
	mu      sync.Mutex
	entries map[string][]byte
	puts    int
}

func newMemoryCache() *memoryCache { return &memoryCache{entries: map[string][]byte{}} }

func (c *memoryCache) Get(key string) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[key]
}

func (c *memoryCache) Put(key string, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries[key] = slices.Clone(data)
	c.puts++
}

// identities are those of the assignments that are kept.
func (c *memoryCache) identities(t *testing.T) map[identity]bool {
	t.Helper()
	all := map[identity]bool{}
	for key, data := range c.entries {
		for id := range keptIn(t, key, data) {
			all[id] = true
		}
	}
	return all
}

// keptIn reads an entry of a memo.
func keptIn(t *testing.T, key string, data []byte) map[identity][]byte {
	t.Helper()
	all := map[identity][]byte{}
	for strings.HasPrefix(key, "memo-rendered ") && len(data) > 0 {
		id := identity(data[:len(identity{})])
		n, size := binary.Uvarint(data[len(id):])
		require.Positive(t, size)
		from := len(id) + size
		all[id], data = data[from:from+int(n)], data[from+int(n):]
	}
	return all
}

// cachePlatform is a platform of one file per object, in which something of every sort is read.
func cachePlatform() map[string]string {
	files := map[string]string{
		"ns":      templateYAML("ns", "{{ .Namespace }}"),
		"rec":     templateYAML("rec", "kind: {{ .Labels.purpose }}\nrepo: {{ .Manifests.repo }} {{ .Workspace }} {{ .Environment }}"),
		"cfg":     templateYAML("cfg", "name: config-{{ hash .ConfigData }}\ndata:\n{{ toYaml .ConfigData | indent 2 }}"),
		"nested":  templateYAML("nested", "{{ range $k, $v := .ConfigData }}{{ $k }}: {{ $v }} {{ end }}{{ .Workload }}"),
		"objects": "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: Template\nmetadata: {name: objects}\nspec:\n  manifests:\n    - {kind: Thing, name: \"{{ .DeploymentTargetName }}\", list: [&a x, *a]}\n",
		"reg":     "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: WorkloadRegistration\nmetadata: {name: reg}\nspec: {workspace: team}\n",
		"schema":  "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: ConfigSchema\nmetadata: {name: s, labels: {region: north}}\nspec:\n  schema: '{\"properties\": {\"PORT\": {\"maximum\": 9}}}'\n",
		"all":     "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: SchedulingPolicy\nmetadata: {name: all}\nspec: {deploymentTargetSelector: {labelSelector: {matchLabels: {edge: \"true\"}}}}\n",
		"north":   "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: SchedulingPolicy\nmetadata: {name: north}\nspec: {clusterTypeSelector: {labelSelector: {matchLabels: {region: north}}}}\n",
		"common":  configMapYAML("common", "  PORT: \"8\"\n  LIST: \"[{name: a, v: 1}]\"\n  URL: \"https://{{ .Workload }}.{{ .Environment }}\""),
		"list":    configMapYAML("list", "  LIST: \"[{name: a, w: 2}, {name: b}]\"\n  MAP: \"{x: 1}\""),
		"region":  labelled("region", ", region: north", "  REGION: north\n  PORT: \"9\""),
		"purpose": labelled("purpose", ", purpose: x", "  PURPOSE: x"),
		"azure":   "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: azure-app-config-1}\ndata: {region.south.AZURE: \"1\", MAP: \"{y: 2}\"}\n",
	}
	files["check"] = checkYAML("check", "clusterTypeSelector: {labelSelector: {matchLabels: {region: north}}}\n  expression: object.kind != 'never'\n  message: nope")
	for i, c := range []string{"cfg", "nested", "objects", "", "envFile"} {
		region := []string{"north", "south"}[i%2]
		files[fmt.Sprintf("type-%d", i)] = fmt.Sprintf("apiVersion: scheduler.kalypso.io/v1alpha1\nkind: ClusterType\nmetadata: {name: type-%d, labels: {region: %s}}\nspec: {reconciler: rec, namespaceService: ns, configType: %s}\n", i, region, c)
	}
	for i := range 4 {
		files[fmt.Sprintf("workload/app-%d", i)] = fmt.Sprintf(`apiVersion: scheduler.kalypso.io/v1alpha1
kind: Workload
metadata: {name: app-%d, labels: {type: application}, annotations: {wherry.dev/adapter: flux}}
spec:
  deploymentTargets:
    - name: t1
      labels: {purpose: x, edge: "true"}
      environment: dev
      manifests: {repo: "https://example.com/app"}
    - name: t2
      labels: {purpose: z, edge: "%t", odd: "{{ x }"}
      environment: dev
      manifests: {repo: "https://example.com/odd"}
`, i, i%2 == 0)
	}
	return files
}

func loadFiles(files map[string]string) (*Model, error) {
	platform, workloads := fstest.MapFS{}, fstest.MapFS{}
	for name, content := range files {
		if rest, ok := strings.CutPrefix(name, "workload/"); ok {
			workloads[rest+".yaml"] = &fstest.MapFile{Data: []byte(content)}
		} else {
			platform[name+".yaml"] = &fstest.MapFile{Data: []byte(content)}
		}
	}
	m := NewModel("dev")
	if err := m.Load(context.Background(), Source{FS: platform}); err != nil {
		return nil, err
	}
	return m, m.Load(context.Background(), Source{FS: workloads, Registration: "reg"})
}

// renderBoth renders with and without cache, requires that both do the same, and says whether it worked.
func renderBoth(t *testing.T, files map[string]string, cache Cache) (*Result, bool) {
	t.Helper()
	m, err := loadFiles(files)
	if err != nil {
		return nil, false
	}
	full, err := m.Render(context.Background(), Options{})
	cached, cachedErr := m.Render(context.Background(), Options{Cache: cache})
	if err != nil {
		require.EqualError(t, cachedErr, err.Error())
		return nil, false
	}
	require.NoError(t, cachedErr)
	require.Equal(t, flat(full), flat(cached))
	return cached, true
}

// flat is a result in which failures are texts.
func flat(r *Result) any {
	texts, copied := []string{}, *r
	copied.Checks = nil // compiled
	copied.ClusterTypes = slices.Clone(r.ClusterTypes)
	for i := range copied.ClusterTypes {
		ct := &copied.ClusterTypes[i]
		for _, f := range ct.Failures {
			texts = append(texts, f.ClusterType+" "+f.Name+" "+f.Err.Error())
		}
		ct.Failures = nil
		if len(ct.Assignments) == 0 {
			ct.Assignments = nil
		}
	}
	return []any{copied, texts}
}

func TestChangesRenderWhatTheyTouch(t *testing.T) {
	for name, c := range map[string]struct {
		file, old, new string
		rendered       int // of 36 assignments: each of 3 types of region north has 8, each of 2 of region south has 6
	}{
		"nothing":                             {"common", "8", "8", 0},
		"a comment above":                     {"common", "apiVersion", "# new\napiVersion", 0},
		"a policy that selects the same":      {"all", "name: all", "name: every", 0},
		"a ConfigMap for all":                 {"common", `"8"`, `"7"`, 36},
		"a ConfigMap for a region":            {"region", "REGION: north", "REGION: upper", 24},
		"a ConfigMap for a purpose":           {"purpose", "PURPOSE: x", "PURPOSE: z", 20},
		"one key of an Azure ConfigMap":       {"azure", `"1"`, `"2"`, 12},
		"a label that moves a ConfigMap":      {"region", "region: north", "region: south", 36},
		"a Template of all types":             {"rec", "repo:", "from:", 36},
		"a Template of one type":              {"nested", "range", "range ", 6},
		"a Template of objects":               {"objects", "&a x", "&a z", 8},
		"a schema":                            {"schema", `9`, `10`, 24},
		"a schema that moves away":            {"schema", `north`, `elsewhere`, 24},
		"a target's label":                    {"workload/app-1", "purpose: x", "purpose: w", 5},
		"a target's manifests":                {"workload/app-1", "com/app", "com/other", 5},
		"a workload's label":                  {"workload/app-1", "application", "other", 8},
		"a workload's annotation":             {"workload/app-1", "flux", "argo", 8},
		"a new name":                          {"workload/app-1", "name: app-1", "name: app-9", 8},
		"a cluster type's label that is read": {"type-0", "region: north", "region: south", 6},
		"a cluster type's configuration":      {"type-4", "envFile", "configMap", 8},
		"a workspace":                         {"reg", "team", "crew", 36},
		"a check of some types":               {"check", "never", "ever", 24},
		"a check's message":                   {"check", "message: nope", "message: other", 0},
		"a check's place":                     {"check", "apiVersion", "# above\napiVersion", 0},
		"a check for other types":             {"check", "region: north", "region: west", 24},
		"a check for another environment":     {"check", "expression", "environments: [prod]\n  expression", 24},
	} {
		t.Run(name, func(t *testing.T) {
			files, cache := cachePlatform(), newMemoryCache()
			_, ok := renderBoth(t, files, cache)
			require.True(t, ok)
			before := cache.identities(t)
			require.Len(t, before, 36)

			require.Contains(t, files[c.file], c.old)
			files[c.file] = strings.Replace(files[c.file], c.old, c.new, 1)
			_, ok = renderBoth(t, files, cache)
			require.True(t, ok)
			after := cache.identities(t)
			maps.DeleteFunc(after, func(id identity, _ bool) bool { return before[id] })
			require.Len(t, after, c.rendered)

			puts := cache.puts
			_, ok = renderBoth(t, files, cache)
			require.True(t, ok)
			require.Equal(t, puts, cache.puts, "what is unchanged is not written again")
		})
	}
}

// Random edits in sequence, some of which make assignments or the whole fail, with one cache for all.
func TestRandomEditsRenderAsFromScratch(t *testing.T) {
	words := []string{
		"north", "south", "x", "z", "true", "false", "app", "team", "dev", "type", "PORT", "LIST", "MAP", "name", "purpose", "region", "9", "8", "7", "100",
		"{{ .Workload }}", "{{ .Nope }}", "{{ toYaml .ConfigData }}", "{{ .ConfigData.PORT }}", "cfg", "nested", "objects", "envFile", "rec", "ns", "flux", "argo", "[1, 2]", "a: b", "edge",
	}
	worked, failures, seeds := 0, 0, 0
	for seed := uint64(0); seed < 12; seed += uint64(sweeptest.Every(3)) {
		seeds++
		r := rand.New(rand.NewPCG(seed, 3))
		files, cache := cachePlatform(), newMemoryCache()
		for range 40 {
			name := slices.Sorted(maps.Keys(files))[r.IntN(len(files))]
			before, content := maps.Clone(files), files[name]
			switch lines := strings.SplitAfter(content, "\n"); r.IntN(8) {
			case 0:
				delete(files, name)
			case 1:
				files[name] = "# a line\n" + content
			case 2:
				copied := fmt.Sprintf("%s-%d", name, r.IntN(3))
				files[copied] = strings.Replace(content, "name: ", "name: c-", 1)
			case 3:
				i := r.IntN(len(lines))
				files[name] = strings.Join(slices.Delete(lines, i, i+1), "")
			default:
				old := words[r.IntN(len(words))]
				if at := strings.LastIndex(content, old); at >= 0 {
					files[name] = content[:at] + words[r.IntN(len(words))] + content[at+len(old):]
				}
			}
			if result, ok := renderBoth(t, files, cache); !ok {
				files = before
			} else {
				worked++
				for _, ct := range result.ClusterTypes {
					failures += len(ct.Failures)
				}
			}
		}
	}
	require.Greater(t, worked, 17*seeds)
	require.Greater(t, failures, 4*seeds)
}

func TestCacheThatForgetsOrLies(t *testing.T) {
	files, cache := cachePlatform(), newMemoryCache()
	_, ok := renderBoth(t, files, cache)
	require.True(t, ok)
	sound := maps.Clone(cache.entries)
	for name, damage := range map[string]func(key string, data []byte) []byte{
		"lost": func(string, []byte) []byte { return nil },
		"cut":  func(_ string, data []byte) []byte { return data[:len(data)/2] },
		"foreign": func(key string, data []byte) (foreign []byte) {
			for id := range keptIn(t, key, data) {
				foreign = append(append(foreign, id[:]...), 1, 255)
			}
			return foreign
		},
	} {
		t.Run(name, func(t *testing.T) {
			cache.entries = maps.Clone(sound)
			for key, data := range sound {
				cache.entries[key] = damage(key, data)
			}
			for _, written := range []bool{true, false} {
				puts := cache.puts
				_, ok := renderBoth(t, files, cache)
				require.True(t, ok)
				require.Equal(t, written, cache.puts > puts, "what is damaged is written again, once")
			}
		})
	}
}

// A rendering that is broken off forgets nothing.
func TestCacheAfterAnInterrupt(t *testing.T) {
	files, cache := cachePlatform(), newMemoryCache()
	_, ok := renderBoth(t, files, cache)
	require.True(t, ok)
	before := maps.Clone(cache.entries)
	m, err := loadFiles(files)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = m.Render(ctx, Options{Cache: cache})
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, maps.EqualFunc(before, cache.entries, slices.Equal))
}

func TestOneCacheForSeveralAtOnce(t *testing.T) {
	cache := newMemoryCache()
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			files := cachePlatform()
			files["common"] = strings.Replace(files["common"], `"8"`, fmt.Sprintf(`"%d"`, i/2), 1)
			for range 3 {
				renderBoth(t, files, cache)
			}
		})
	}
	group.Wait()
}

// FuzzKept gives foreign bytes as an assignment that was kept: it is read or refused.
func FuzzKept(f *testing.F) {
	f.Add((&Assignment{Adapter: "flux", ConfigDigest: "sha256:x", Files: []File{{Path: "x", Data: []byte("y")}, {Path: "z"}}}).pack())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		var a, again Assignment
		if a.unpack(data) {
			require.True(t, again.unpack(a.pack()))
			require.Equal(t, a, again)
		}
	})
}

func TestCacheWithoutConfiguration(t *testing.T) {
	files, cache := cachePlatform(), newMemoryCache()
	for _, name := range []string{"common", "list", "region", "purpose", "azure"} {
		delete(files, name)
	}
	for range 2 {
		_, ok := renderBoth(t, files, cache)
		require.True(t, ok)
	}
}
