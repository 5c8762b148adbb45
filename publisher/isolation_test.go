package publisher

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/child/childtest"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/artifacts"
	"github.com/wherry-dev/wherry/publisher/egress"
	"github.com/wherry-dev/wherry/publisher/embed"
	"github.com/wherry-dev/wherry/publisher/gittest"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/keytest"
	"github.com/wherry-dev/wherry/publisher/meter"
	"github.com/wherry-dev/wherry/publisher/pack"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
)

var (
	isolationSeeds = flag.Int("isolation.seeds", 8, "how many hostile teams TestAHostileTeamChangesNothingForOthers makes")
	isolationFirst = flag.Uint64("isolation.first", 8, "the seed of the first hostile team")
)

const (
	// isolationTime and isolationBytes bound the cost of one hostile team: its time, even on a busy machine, and
	// all bytes that are allocated.
	isolationTime  = 2 * time.Minute
	isolationBytes = 8 << 30
	// isolationMemory bounds what the process takes more at any time, and isolationDisk the temporary files of the team's sources.
	isolationMemory = 512 << 20
	isolationDisk   = 8 << 20
)

// TestAHostileTeamChangesNothingForOthers publishes a platform of five teams, and then again with a sixth one that
// does its worst. The release that follows has, of the five, the same bytes.
func TestAHostileTeamChangesNothingForOthers(t *testing.T) {
	key := keytest.New(t)
	first := t.TempDir()
	publishTeams(t, key, oci.Location{Dir: first}, nil)
	before := honestContent(t, key, oci.Location{Dir: first})
	require.Len(t, before, 2*16, "what the five teams have")
	host := hostileHost(t)
	for seed := *isolationFirst; seed < *isolationFirst+uint64(*isolationSeeds); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			team := hostileTeam(rand.New(rand.NewPCG(seed, 15)), host)
			loc := oci.Location{Dir: t.TempDir()}
			require.NoError(t, os.CopyFS(loc.Dir, os.DirFS(first)))
			allocated, peak := allocatedBytes(), childtest.Memory(t)
			disk := publishTeams(t, key, loc, team)
			own, _ := peak()
			t.Logf("peak memory: %d MiB, disk: %d KiB, after %s", own>>20, disk>>10, team.tricks)
			require.Less(t, own, int64(isolationMemory), "memory because of %s", team.tricks)
			require.Less(t, disk, int64(isolationDisk+1<<20), "disk because of %s", team.tricks)
			require.Less(t, allocatedBytes()-allocated, uint64(isolationBytes), "bytes allocated because of %s", team.tricks)
			after := honestContent(t, key, loc)
			for _, name := range slices.Sorted(maps.Keys(before)) {
				require.Equal(t, before[name], after[name], "%s, after %s", name, team.tricks)
			}
		})
	}
}

func allocatedBytes() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// publishTeams renders and publishes the five teams and, unless it is nil, the hostile one, as "wherry publish" does.
func publishTeams(t *testing.T, key *keys.Key, loc oci.Location, team *hostile) (disk int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), isolationTime)
	defer cancel()
	m := scheduler.NewModel("dev")
	require.NoError(t, m.Load(ctx, scheduler.Source{FS: fstest.MapFS{"platform.yaml": {Data: []byte(isolationPlatform)}}}))
	loaded := &platform.Loaded{Model: m}
	for name, text := range honestTeams() {
		require.NoError(t, m.Load(ctx, scheduler.Source{FS: fstest.MapFS{"w.yaml": {Data: []byte(text)}}, Registration: name}))
	}
	if team != nil {
		if err := m.Load(ctx, scheduler.Source{FS: team.files, Registration: "evil"}); err != nil {
			require.NoError(t, ctx.Err(), team.tricks)
			loaded.Unread = []platform.Unread{{Registration: "evil", Err: err}}
		}
	}
	opts := PublishOptions{Unread: loaded.Unread}
	render := scheduler.Options{
		RefuseMissing: true, Incomplete: len(loaded.Unread) > 0, LastRelease: LastReleases(loaded, loc, published.Signers{}, []*keys.Key{key}, opts),
	}
	if len(loaded.Unread) == 0 {
		opts.Packed = pack.NewPacker(nil, "dev")
		render.Each = opts.Packed.Take
	}
	result, err := m.Render(ctx, render)
	require.NoError(t, err, "%v", team)
	access := egress.New()
	access.Allow("127.0.0.1")
	resolver := sources.NewResolver(sources.Options{Access: access, Timeout: time.Second, Meters: meter.NewSet(meter.Budget{Time: 2 * time.Second, Bytes: 64 << 20, Disk: isolationDisk})})
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	defer func() {
		disk = bytesIn(t, temp) // all that was written: temporary files stay until the end
		require.NoError(t, resolver.Close())
		require.Zero(t, bytesIn(t, temp))
	}()
	content, err := embed.Read(ctx, result, embed.Options{Resolver: resolver, Own: func(_ context.Context, registration string, do func(fs.FS) error) error {
		if registration == "evil" {
			return do(team.embedded)
		}
		return do(fstest.MapFS{"files/x.yaml": {Data: []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + registration + "}\n")}})
	}})
	require.NoError(t, err, "%v", team)
	require.NoError(t, artifacts.Pin(ctx, result, resolver, nil), "%v", team)
	content.AddTo(result)
	done, err := Publish(ctx, result, loc, []*keys.Key{key}, opts)
	require.NoError(t, err, "%v", team)
	for _, ct := range done.ClusterTypes {
		require.NotEqual(t, releases.OutcomeFailed, ct.Result, "%s: %s, after %v", ct.ClusterType, ct.Reason, team)
	}
	return disk
}

// bytesIn returns the length of all files in a folder.
func bytesIn(t *testing.T, dir string) (n int64) {
	require.NoError(t, filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		n += info.Size()
		return err
	}))
	return n
}

// honestContent returns, for each assignment of the five teams, its line and its files.
func honestContent(t *testing.T, key *keys.Key, loc oci.Location) map[string]string {
	t.Helper()
	content := map[string]string{}
	for _, clusterType := range []string{"cluster", "host"} {
		repo, err := loc.Repository("bundles/dev/"+clusterType, oci.Options{})
		require.NoError(t, err)
		desc, err := repo.Resolve(t.Context(), bundle.LatestTag)
		require.NoError(t, err)
		v, err := bundle.Verify(t.Context(), repo, desc, trustIn(key))
		require.NoError(t, err)
		tree, err := published.OpenTree(t.Context(), repo, v.Tree, v.Release.Content)
		require.NoError(t, err)
		list, err := tree.ReadFile(bundle.AssignmentsPath)
		require.NoError(t, err)
		lines := strings.Split(string(list), "\n")
		for i, a := range tree.Assignments {
			if a.Registration == "evil" {
				continue
			}
			files, err := tree.Files(a)
			require.NoError(t, err)
			text := lines[i]
			for _, f := range files {
				text += fmt.Sprintf("\n%s %v\n%s", f.Path, f.Executable, f.Data)
			}
			content[clusterType+"/"+a.Name] = text
		}
		require.NoError(t, tree.Close())
	}
	return content
}

const isolationPlatform = `apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: ns}
spec: {manifests: ["apiVersion: v1\nkind: Namespace\nmetadata: {name: '{{ .Namespace }}', labels: {workspace: '{{ .Workspace }}'}}\n"]}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: rec}
spec:
  manifests:
    - |
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ .DeploymentTargetName }}"}
      data:
        team: "{{ index .Labels "team" }}"
      {{- range $k, $v := .Manifests }}
        {{ $k }}: {{ $v }}
      {{- end }}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata: {name: cluster, labels: {kind: cluster}}
spec: {reconciler: rec, namespaceService: ns, configType: configMap}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata: {name: host, labels: {kind: host}, annotations: {wherry.dev/adapter: directory}}
spec: {reconciler: rec, namespaceService: ns, configType: envFile}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: SchedulingPolicy
metadata: {name: everything}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: SchedulingPolicy
metadata: {name: gold}
spec: {deploymentTargetSelector: {labelSelector: {matchLabels: {grade: gold}}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: common, labels: {platform-config: "true"}}
data: {LEVEL: info, WHO: "{{ .Workload }}", TEAM: '{{ index .Labels "team" }}'}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: gold, labels: {platform-config: "true", grade: gold}}
data: {GRADE: gold, LEVEL: debug}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: ConfigSchema
metadata: {name: level}
spec: {schema: '{"type": "object", "required": ["LEVEL"]}'}
---
apiVersion: wherry.dev/v1alpha1
kind: Platform
metadata: {name: edge}
spec: {workspaces: [{name: team-1}, {name: evil-team}]}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: WorkloadRegistration
metadata: {name: evil}
spec: {workspace: evil-team}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: WorkloadRegistration
metadata: {name: team-1}
spec: {workspace: team-1}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: WorkloadRegistration
metadata: {name: team-2}
spec: {workspace: team-2}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: WorkloadRegistration
metadata: {name: team-3}
spec: {workspace: team-3}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: WorkloadRegistration
metadata: {name: team-4}
spec: {workspace: team-4}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: WorkloadRegistration
metadata: {name: team-5}
spec: {workspace: team-5}
`

// honestTeams returns the sources of the five: each has a service and a database, the services wait for the databases
// of others, and one of them has text that looks like a template.
func honestTeams() map[string]string {
	teams := map[string]string{}
	for i := 1; i <= 5; i++ {
		teams[fmt.Sprintf("team-%d", i)] = fmt.Sprintf(`apiVersion: scheduler.kalypso.io/v1alpha1
kind: Workload
metadata: {name: web-%[1]d, labels: {team: t%[1]d}, annotations: {wherry.dev/depends-on: "db-%[2]d", wherry.dev/wave: "3"}}
spec:
  configSchemas: ['{"type": "object", "required": ["WHO"]}']
  deploymentTargets: [{name: live, environment: dev, labels: {grade: gold}, manifests: {image: "registry.example/web:%[1]d"}}]
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Workload
metadata: {name: db-%[1]d, labels: {team: t%[1]d}}
spec: {deploymentTargets: [{name: live, environment: dev, manifests: {image: "registry.example/db:%[1]d"}}]}
`, i, i%5+1)
	}
	teams["team-5"] += "---\n" + strings.NewReplacer("db-1", "text", "t1", "t5", `"registry.example/db:1"`, `"'{{ .Labels }}'"`).Replace(teams["team-1"][strings.Index(teams["team-1"], "---\n")+4:])
	for i := 1; i <= 5; i++ {
		teams[fmt.Sprintf("team-%d", i)] += fmt.Sprintf(`---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Workload
metadata: {name: own-%[1]d, labels: {team: t%[1]d}, annotations: {wherry.dev/delivery: embedded}}
spec: {deploymentTargets: [{name: live, environment: dev, manifests: {path: files}}]}
`, i)
	}
	return teams
}

// hostile is a generated team.
type hostile struct {
	files    fstest.MapFS
	embedded fstest.MapFS // what its targets with embedded delivery name
	host     string       // of its sources
	tricks   []string
	r        *rand.Rand
}

func (h *hostile) String() string { return fmt.Sprint(h.tricks) }

func hostileTeam(r *rand.Rand, host string) *hostile {
	h := &hostile{files: fstest.MapFS{}, embedded: fstest.MapFS{}, host: host, r: r}
	for range 1 + r.IntN(4) {
		trick := tricks[r.IntN(len(tricks))]
		if r.IntN(12) == 0 {
			trick = heavyTricks[r.IntN(len(heavyTricks))]
		}
		h.tricks = append(h.tricks, trick.name)
		h.file(trick.file(h))
	}
	return h
}

func (h *hostile) file(text string) {
	name := one(h, "a", "-", "..x", "ÿ", "sub/dir/b", "A", "con") + fmt.Sprint(len(h.files)) + one(h, ".yaml", ".yml", ".json", ".yaml")
	h.files[name] = &fstest.MapFile{Data: []byte(text)}
}

func one[T any](h *hostile, of ...T) T { return of[h.r.IntN(len(of))] }

// text is one that somebody may not expect, as YAML.
func (h *hostile) text() string {
	text := one(h, "", "x", "{{ .Labels }}", "{{ toYaml .ConfigData }}", "{{", "}}", "{{ template \"rec\" . }}", "{{ range $i := until 1000000000 }}x{{ end }}",
		"a\nb", "a\r\nb: c", "x\n---\nkind: Secret\n", "' \"", "&a *a", "<<: *x", "\u2028\u202e", "\x1b[2J", "::error::x", "!!binary x", "| \n  x", "# x",
		"../../../etc/passwd", strings.Repeat("x", 300_000), strings.Repeat("{{", 5_000), strings.Repeat("[", 5_000), strings.Repeat("- ", 4_000),
		"oci://h/r:tag", "oci://h/r@sha256:00", "oci://", "git://\n", "https://u:p@h/x#y", "registry.example/web:1", "null", "~", "1e999", "0x10", "on")
	data, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(data)
}

func (h *hostile) workloadName() string {
	return one(h, "web-1", "web-2", "db-1", "db-3", "text", "web", "db", "evil", "a", "a-b", "web-1-live")
}

func (h *hostile) targetName() string {
	return one(h, "live", "1-live", "3-live", "x", "live-live", "b-c", "c", "evil")
}

// pairs is a flow mapping of n texts by the keys.
func (h *hostile) pairs(n int, keys ...string) string {
	all := map[string]string{}
	for range n {
		all[one(h, keys...)] = h.text()
	}
	var list []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		list = append(list, fmt.Sprintf("%q: %s", key, all[key]))
	}
	return "{" + strings.Join(list, ", ") + "}"
}

func (h *hostile) labels() string {
	return h.pairs(h.r.IntN(6), "grade", "team", "workspace", "workload", "kustomize.toolkit.fluxcd.io/name", "kustomize.toolkit.fluxcd.io/namespace", "cluster-type", "deployment-target", "x", "", "a/b/c", "{{ x }}")
}

func (h *hostile) target() string {
	return fmt.Sprintf("{name: %s, environment: %s, labels: %s, manifests: %s, configSchemas: [%s]}",
		h.targetName(), one(h, "dev", "dev", "dev", "prod", "DEV"), h.labels(),
		h.pairs(h.r.IntN(5), "image", "repo", "url", "repoURL", "type", "digest", "branch", "tag", "chart", "version", "package", "x\ny", "&a"), h.schema())
}

func (h *hostile) schema() string {
	if h.r.IntN(3) > 0 {
		return ""
	}
	return one(h, `"{"`, `"true"`, `"false"`, `'{"$ref": "#"}'`, `'{"$ref": "http://127.0.0.1:1/x"}'`, `'{"$ref": "file:///etc/passwd"}'`, `'{"pattern": "(a+)+$"}'`,
		`'{"required": ["NOPE"]}'`, `'{"properties": {"LEVEL": {"type": "integer"}}}'`, `'{"type": 7}'`, `'[]'`, fmt.Sprintf("'%s'", strings.Repeat(`{"not":`, 400)+"{}"+strings.Repeat("}", 400)))
}

func (h *hostile) annotations() string {
	return h.pairs(h.r.IntN(4), "wherry.dev/adapter", "wherry.dev/delivery", "wherry.dev/depends-on", "wherry.dev/drift", "wherry.dev/health", "wherry.dev/on-failure",
		"wherry.dev/wave", "live.wherry.dev/adapter", "wherry.dev/pin", "x")
}

// workload is one with some hostile targets.
func (h *hostile) workload() string {
	var targets []string
	for range h.r.IntN(5) {
		targets = append(targets, h.target())
	}
	return fmt.Sprintf("---\napiVersion: scheduler.kalypso.io/v1alpha1\nkind: Workload\nmetadata: {name: %s, labels: %s, annotations: %s}\nspec: {deploymentTargets: [%s]}\n",
		h.workloadName(), h.labels(), h.annotations(), strings.Join(targets, ", "))
}

// manyNamed is a workload with an annotation and n targets, of which each has more.
func manyNamed(name, annotation string, n int, more func(i int) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\napiVersion: scheduler.kalypso.io/v1alpha1\nkind: Workload\nmetadata: {name: %s, annotations: {%s}}\nspec:\n  deploymentTargets:\n", name, annotation)
	for i := range n {
		fmt.Fprintf(&b, "    - {name: t%d, environment: dev%s}\n", i, more(i))
	}
	return b.String()
}

// embeddedTarget is a workload with embedded delivery.
func embeddedTarget(name, manifests string) string {
	return fmt.Sprintf("---\napiVersion: scheduler.kalypso.io/v1alpha1\nkind: Workload\nmetadata: {name: emb-%s, annotations: {wherry.dev/delivery: embedded}}\nspec: {deploymentTargets: [{name: x, environment: dev, manifests: {%s}}]}\n", name, manifests)
}

// hostileManifest is a file of manifests at the bounds of a reader.
func hostileManifest(h *hostile) string {
	begin := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: evil}\n"
	keys := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	aliases := strings.TrimSuffix(strings.Repeat("*a,", 4_000), ",")
	return one(h,
		begin+"data:\n"+keys(200_000, " k%x:\n"), begin+"data:\n"+strings.Repeat(" k: v\n", 200_000),
		begin+"data: {a: &a '"+strings.Repeat("x", 1<<20)+"'}\nspec: ["+aliases+"]\n", begin+"a: &a {x: 1}\nb: {<<: ["+aliases+"]}\n", begin+"a: &a [*a]\n",
		begin+"a: ["+strings.Repeat("[],", 1<<20)+"]\n", begin+"a: "+strings.Repeat("[", 20_000), strings.Repeat("---\na: [\n", 200_000), strings.Repeat("---\n"+begin, 30_000),
		strings.Repeat("x", 5<<20), "\x00", h.text())
}

// hostileHost is a server of repositories that hang, reset the connection, crawl, send without end, or are large, as their names say.
func hostileHost(t *testing.T) string {
	repo, large := t.TempDir(), make([]byte, 3<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(large)
	gittest.CommitFiles(t, repo, "main", map[string]string{"large": string(large)})
	packs := gittest.FullServer(repo)
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wait := func(d time.Duration) bool {
			select {
			case <-r.Context().Done():
			case <-ended:
			case <-time.After(d):
				return true
			}
			return false
		}
		switch path := r.URL.Path; {
		case strings.Contains(path, "reset"):
			panic(http.ErrAbortHandler)
		case strings.Contains(path, "crawl"):
			for wait(20 * time.Millisecond) {
				_, _ = w.Write([]byte("0"))
				w.(http.Flusher).Flush()
			}
		case strings.Contains(path, "pack"):
			packs.ServeHTTP(w, r)
		case strings.Contains(path, "huge"):
			for part := make([]byte, 1<<20); r.Context().Err() == nil && r.Method == http.MethodGet; {
				if _, err := w.Write(part); err != nil {
					return
				}
			}
		default:
			wait(time.Hour)
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(ended) })
	return server.URL
}

func nothing(int) string { return "" }

type trick struct {
	name string
	file func(h *hostile) string
}

var tricks = []trick{
	{"workloads", func(h *hostile) string {
		return strings.Repeat(h.workload(), 1) + h.workload() + h.workload()
	}},
	{"others' names", func(h *hostile) string {
		return fmt.Sprintf("---\napiVersion: scheduler.kalypso.io/v1alpha1\nkind: Workload\nmetadata: {name: %s, annotations: {wherry.dev/depends-on: %s}}\nspec: {deploymentTargets: [{name: live, environment: dev}, {name: %s, environment: dev}]}\n",
			one(h, "web-1", "db-1", "db-2", "text"), one(h, "web-1", "web-5", "db-1", "web-2/live"), h.targetName())
	}},
	{"a name divided otherwise", func(*hostile) string {
		return "---\napiVersion: scheduler.kalypso.io/v1alpha1\nkind: Workload\nmetadata: {name: web}\nspec: {deploymentTargets: [{name: 1-live, environment: dev}, {name: 2-live, environment: dev}]}\n"
	}},
	{"a circle", func(h *hostile) string {
		return manyNamed(one(h, "db-2", "db-1", "text"), "wherry.dev/depends-on: "+one(h, "web-1", "web-5", "web-2"), 2, nothing)
	}},
	{"other kinds", func(h *hostile) string {
		kind := one(h, "ClusterType", "SchedulingPolicy", "Template", "WorkloadRegistration", "ConfigSchema", "Environment", "BaseRepo", "GitOpsRepo", "Nonsense")
		return "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: " + kind + "\nmetadata: {name: " + one(h, "cluster", "everything", "rec", "evil", "team-1", "main") + "}\n---\n" +
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: common, labels: {platform-config: 'true'}}\ndata: {LEVEL: evil}\n---\n" +
			"apiVersion: wherry.dev/v1alpha1\nkind: Platform\nmetadata: {name: evil}\nspec: {workspaces: [{name: evil-team, limits: {targets: 100000}}]}\n" + h.workload()
	}},
	{"the same twice", func(h *hostile) string { w := h.workload(); return w + w }},
	{"no YAML", func(h *hostile) string {
		return one(h, "{", "\x00", "\xff\xfe", "a: b: c", "\t- x", "%YAML 9.9\n---\n", "--- !!x\n", strings.Repeat("[", 20_000), strings.Repeat("{a: ", 20_000), "&a [*a]", "? ? ?", "\ufeff")
	}},
	{"an alias bomb", func(*hostile) string {
		text := "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
		for i := range 9 {
			text += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d,", i), 8), i)
		}
		return "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: Workload\nmetadata: {name: bomb, x: *a}\n" + text
	}},
	{"aliases and merges", func(h *hostile) string {
		return "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: Workload\nmetadata: {name: evil, labels: &l {a: b, <<: *l}}\nspec: {deploymentTargets: [&t {name: x, environment: dev, labels: *l}, *t, {<<: *t, name: y1}]}\n"
	}},
	{"a long health", func(*hostile) string {
		return manyNamed("evil", fmt.Sprintf("wherry.dev/health: %q", "{.status.x} == "+strings.Repeat("x", 1_500_000)), 1, nothing)
	}},
	{"an artifact without a digest", func(h *hostile) string {
		return manyNamed("evil", one(h, "", "wherry.dev/adapter: directory"), 2, func(int) string {
			return ", manifests: {type: oci, repo: " + h.text() + ", digest: " + h.text() + "}"
		})
	}},
	{"embedded content", func(h *hostile) string {
		folder := fmt.Sprintf("e%d", len(h.embedded))
		h.embedded[folder+"/x.yaml"] = &fstest.MapFile{Data: []byte(hostileManifest(h))}
		return embeddedTarget(folder, "path: "+folder)
	}},
	{"sources", func(h *hostile) string {
		var text string
		for i := range 1 + h.r.IntN(20) {
			kind := one(h, "hang", "reset", "crawl", "huge", "pack")
			text += embeddedTarget(fmt.Sprintf("s%d", i), one(h, "repo: "+h.host+"/"+kind+fmt.Sprint(i), "repo: oci://"+strings.TrimPrefix(h.host, "http://")+"/"+kind+fmt.Sprint(i)+":v1"))
		}
		return text
	}},
	{"a List of Lists", func(h *hostile) string {
		return strings.Repeat("{apiVersion: v1, kind: List, items: [", 200) + strings.Repeat("]}", 200) + "\n" + h.workload()
	}},
}

// heavyTricks take some time.
var heavyTricks = []trick{
	{"36,000 targets", func(*hostile) string { return manyNamed("many", "", 36_000, nothing) }},
	{"36,000 targets of one name", func(*hostile) string {
		return "---\napiVersion: scheduler.kalypso.io/v1alpha1\nkind: Workload\nmetadata: {name: db-1}\nspec: {deploymentTargets: [" + strings.Repeat("{name: live, environment: dev},", 36_000) + "]}\n"
	}},
	{"2,000 targets", func(*hostile) string { return manyNamed("many", "", 2_000, nothing) }},
	{"2,000 targets that depend on each other", func(*hostile) string {
		return manyNamed("many", "wherry.dev/depends-on: many", 2_000, nothing)
	}},
	{"2,000 targets that depend on nobody", func(h *hostile) string {
		return manyNamed("many", "wherry.dev/depends-on: nobody-"+strings.Repeat("x", h.r.IntN(40)), 2_000, nothing)
	}},
	{"2,000 labels each", func(*hostile) string {
		return manyNamed("many", "", 200, func(i int) string {
			var b strings.Builder
			for k := range 2_000 {
				fmt.Fprintf(&b, "l%d: v%d, ", k, i)
			}
			return ", labels: {" + b.String() + "}"
		})
	}},
	{"1 MB in each of 200 by an alias", func(*hostile) string {
		return manyNamed("many", "", 200, func(i int) string {
			if i == 0 {
				return ", manifests: &m {x: " + strings.Repeat("x", 1_000_000) + "}"
			}
			return ", manifests: *m"
		})
	}},
	{"36,000 documents", func(*hostile) string { return strings.Repeat("---\nkind: X\napiVersion: v1\n", 36_000) }},
	{"36,000 labels", func(*hostile) string {
		return manyNamed("many", "", 1, func(int) string {
			var b strings.Builder
			for k := range 36_000 {
				fmt.Fprintf(&b, "l%d: v, ", k)
			}
			return ", labels: {" + b.String() + "}"
		})
	}},
	{"36,000 images", func(*hostile) string {
		return manyNamed("many", "", 1, func(int) string {
			var b strings.Builder
			for k := range 36_000 {
				fmt.Fprintf(&b, `image: i%d\n`, k)
			}
			return `, manifests: {x: "|\n` + b.String() + `"}`
		})
	}},
	{"9 MB", func(*hostile) string { return "# " + strings.Repeat("x", 9<<20) }},
}
