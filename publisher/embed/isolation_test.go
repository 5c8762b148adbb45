package embed

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/child/childtest"
	"github.com/wherry-dev/wherry/publisher/meter"
	"github.com/wherry-dev/wherry/publisher/rendercache"
	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
)

var (
	isolationSeeds = flag.Int("isolation.seeds", 1, "how many hostile teams TestAHostileTeamsContentHoldsItselfAlone makes")
	isolationFirst = flag.Uint64("isolation.first", 32, "the seed of the first hostile team")
)

const (
	// isolationMemory bounds the memory that this process takes more, isolationLimit that of a job, and childMemory what the program of
	// a child takes by itself. There are no more children than processors.
	isolationMemory = 256 << 20
	isolationLimit  = 96 << 20
	childMemory     = 160 << 20
)

const teamChart = "apiVersion: v2\nname: web\nversion: 1.2.3\n"

func filesAt(files map[string]string) fstest.MapFS {
	all := fstest.MapFS{}
	for name, text := range files {
		all[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return all
}

// honest has a folder of each method.
func honest(team int) fs.FS {
	object := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %%s-%d}\n", team)
	return filesAt(map[string]string{
		"plain/one.yaml": fmt.Sprintf(object, "plain"), "kustomized/kustomization.yaml": "namePrefix: my-\nresources: [one.yaml]", "kustomized/one.yaml": fmt.Sprintf(object, "kustomized"),
		"chart/Chart.yaml": teamChart, "chart/templates/one.yaml": fmt.Sprintf(object, "{{ .Release.Name }}"),
	})
}

// The worst that charts and kustomizations can have, each with a size that the seed chooses.
var worst = map[string]func(r *rand.Rand) map[string]string{
	"many objects": func(r *rand.Rand) map[string]string {
		var all strings.Builder
		for i := range 8_000 + r.IntN(2_000) {
			fmt.Fprintf(&all, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d}\n---\n", i)
		}
		return map[string]string{"kustomization.yaml": "resources: [all.yaml]", "all.yaml": all.String()}
	},
	"much memory": func(r *rand.Rand) map[string]string {
		return map[string]string{"Chart.yaml": teamChart, "templates/a.yaml": fmt.Sprintf(`{{ $all := list }}{{ range until %d }}{{ $all = append $all (repeat (int (add 20000000 .)) "a") }}{{ end }}`, 10+r.IntN(10))}
	},
	"much time": func(r *rand.Rand) map[string]string {
		return map[string]string{"Chart.yaml": teamChart, "templates/a.yaml": fmt.Sprintf(`{{ range until 1000 }}{{ range until 1000 }}{{ $_ := regexMatch "(a?){%d}b" "aaaaaaaaaaaaaaaaaaaaaaaa" }}{{ end }}{{ end }}`, 10+r.IntN(80))}
	},
	"a schema that takes years": func(r *rand.Rand) map[string]string {
		deep := fmt.Sprintf(`{"$defs": {"d0": {"type": "string"}%s}, "$ref": "#/$defs/d%d"}`, doubling(30), 30)
		return map[string]string{"Chart.yaml": teamChart, "values.schema.json": deep, "values.yaml": "a: 1", "templates/a.yaml": fmt.Sprint("a: ", r.IntN(9))}
	},
	"aliases": func(r *rand.Rand) map[string]string {
		text := "a0: &a0 [x]\n"
		for i := range 20 + r.IntN(10) {
			text += fmt.Sprintf("a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
		}
		return map[string]string{"Chart.yaml": teamChart, "values.yaml": text, "templates/a.yaml": "a: {{ toYaml .Values | quote }}"}
	},
	"deep templates": func(r *rand.Rand) map[string]string {
		n := 10_000 + r.IntN(10_000)
		return map[string]string{"Chart.yaml": teamChart, "templates/a.yaml": strings.Repeat("{{ if true }}", n) + strings.Repeat("{{ end }}", n)}
	},
}

// doubling are definitions of which each tries the one before twice.
func doubling(n int) string {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, `, "d%d": {"anyOf": [{"$ref": "#/$defs/d%d"}, {"$ref": "#/$defs/d%d"}]}`, i+1, i, i)
	}
	return all.String()
}

// TestAHostileTeamsContentHoldsItselfAlone embeds the content of five teams, and then again beside a sixth one that does its
// worst. The five have the same bytes, their results are there before the hostile ones need be, and nothing goes on after.
func TestAHostileTeamsContentHoldsItselfAlone(t *testing.T) {
	teams := map[string]fs.FS{}
	var assignments []scheduler.Assignment
	add := func(team, dir string) {
		a := embedded(fmt.Sprintf("%s-%s", team, strings.ReplaceAll(dir, " ", "-")), map[string]string{"path": dir})
		a.Registration = team
		assignments = append(assignments, a)
	}
	for i := range 5 {
		name := fmt.Sprint("team-", i)
		teams[name] = honest(i)
		for _, dir := range []string{"plain", "kustomized", "chart"} {
			add(name, dir)
		}
	}
	var mu sync.Mutex
	var begun []string // registrations, as often as one of their contents is begun
	read := func(opts Options) (*scheduler.ClusterTypeResult, map[string]map[string]string) {
		begun = nil
		opts.Own = func(_ context.Context, registration string, do func(fs.FS) error) error {
			mu.Lock()
			begun = append(begun, registration)
			mu.Unlock()
			return do(teams[registration])
		}
		opts.Resolver = sources.NewResolver(sources.Options{})
		defer opts.Resolver.Close()
		result := &scheduler.Result{ClusterTypes: []scheduler.ClusterTypeResult{{Name: "box", Assignments: append([]scheduler.Assignment(nil), assignments...)}}}
		opts.Sandbox = ownSandbox()
		opts.Sandbox.Memory, opts.Sandbox.CPU, opts.Sandbox.Meters = isolationLimit, 500*time.Millisecond, meter.NewSet(meter.Budget{})
		content, err := Read(t.Context(), result, opts)
		require.NoError(t, err)
		content.AddTo(result)
		got := map[string]map[string]string{}
		for _, a := range result.ClusterTypes[0].Assignments {
			if a.Registration != "evil" {
				got[a.Name] = filesOf(a)
			}
		}
		return &result.ClusterTypes[0], got
	}
	peak := childtest.Memory(t)
	ct, want := read(Options{})
	honestOwn, honestChildren := peak()
	require.Empty(t, ct.Failures)
	require.Len(t, want, 15)
	for seed := *isolationFirst; seed < *isolationFirst+uint64(*isolationSeeds); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 32))
			evil := map[string]string{}
			teams["evil"] = nil
			before := len(assignments)
			defer func() { assignments = assignments[:before] }()
			for trick, files := range worst {
				for name, text := range files(r) {
					evil[trick+"/"+name] = text
				}
				add("evil", trick)
			}
			teams["evil"] = filesAt(evil)
			settled, peak := childtest.Settled(t), childtest.Memory(t)
			cache, err := rendercache.Open(t.TempDir(), rendercache.Options{})
			require.NoError(t, err)
			for range 2 { // what a limit holds is not cached
				ct, got := read(Options{Cache: cache})
				require.Equal(t, want, got)
				require.Len(t, ct.Failures, len(worst))
				require.Equal(t, "evil", begun[len(begun)-1], "the others need not wait for its end")
				for _, f := range ct.Failures {
					require.Equal(t, scheduler.EmbedFailed, f.Reason)
					t.Log(f.Err)
				}
			}
			own, children := peak()
			t.Logf("peak memory: %d MiB and %d MiB in children; without the hostile team %d and %d", own>>20, children>>20, honestOwn>>20, honestChildren>>20)
			require.Less(t, own, int64(isolationMemory))
			require.Less(t, children, int64(runtime.GOMAXPROCS(0)*(childMemory+isolationLimit)))
			settled()
		})
	}
}

// slowHost is a server whose repositories hang, crawl, reset the connection or send without end, as their names say.
func slowHost(t *testing.T) string {
	part := []byte(strings.Repeat("# huge\n", 10_000))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		write := func(data []byte, pause time.Duration) {
			for r.Context().Err() == nil {
				if _, err := w.Write(data); err != nil {
					return
				}
				w.(http.Flusher).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(pause):
				}
			}
		}
		switch path := r.URL.Path; {
		case strings.Contains(path, "hang"):
			<-r.Context().Done()
		case strings.Contains(path, "crawl"):
			write([]byte("#"), 10*time.Millisecond)
		case strings.Contains(path, "huge"):
			write(part, 0)
		default:
			panic(http.ErrAbortHandler)
		}
	}))
	server.Config.SetKeepAlivesEnabled(false) // an idle connection is nothing that goes on
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// After each limit, of whatever a registration brings, no goroutine and no process is left.
func TestNothingGoesOnAfterALimit(t *testing.T) {
	host := slowHost(t)
	r := rand.New(rand.NewPCG(*isolationFirst, 33))
	manifests := map[string]map[string]string{}
	files := map[string]string{
		"a large file/x.yaml":    configMap + "data: {a: '" + strings.Repeat("x", maxFileBytes) + "'}\n",
		"large once read/x.yaml": configMap + "data: {a: &a '" + strings.Repeat("x", 1<<20) + "'}\nspec: [" + strings.Repeat("*a,", 4_000) + "]\n",
	}
	for trick, make := range worst {
		for name, text := range make(r) {
			files[trick+"/"+name] = text
		}
	}
	for name := range files {
		dir, _, _ := strings.Cut(name, "/")
		manifests[dir] = map[string]string{"path": dir}
	}
	for _, kind := range []string{"hang", "crawl", "huge", "reset"} {
		manifests["git "+kind] = map[string]string{"repo": host + "/" + kind}
		manifests["chart "+kind] = map[string]string{"repo": host + "/" + kind, "chart": "web", "version": "1.x"}
		manifests["registry "+kind] = map[string]string{"repo": "oci://" + strings.TrimPrefix(host, "http://") + "/" + kind + ":v1"}
	}
	budgets := map[string]meter.Budget{"one source": {}, "time": {Time: 100 * time.Millisecond}, "bytes": {Bytes: 1 << 20}}
	of := fs.FS(filesAt(files))
	for _, trick := range slices.Sorted(maps.Keys(manifests)) {
		for _, budget := range slices.Sorted(maps.Keys(budgets)) {
			if isOwn := manifests[trick]["path"] != ""; isOwn && budget != "one source" {
				continue
			}
			t.Run(trick+", "+budget, func(t *testing.T) {
				settled := childtest.Settled(t)
				meters := meter.NewSet(budgets[budget])
				resolver := sources.NewResolver(sources.Options{Access: thisMachine(), Timeout: time.Duration(100+r.IntN(100)) * time.Millisecond, Meters: meters})
				defer settled()
				defer func() { require.NoError(t, resolver.Close()) }()
				a := embedded("evil", manifests[trick])
				a.Registration = "evil"
				result := &scheduler.Result{ClusterTypes: []scheduler.ClusterTypeResult{{Name: "box", Assignments: []scheduler.Assignment{a}}}}
				limits := ownSandbox()
				limits.Memory, limits.CPU, limits.Meters = int64(64+r.IntN(64))<<20, time.Duration(100+r.IntN(200))*time.Millisecond, meters
				_, err := Read(t.Context(), result, Options{Resolver: resolver, Sandbox: limits, Own: func(_ context.Context, _ string, do func(fs.FS) error) error { return do(of) }})
				require.NoError(t, err)
				require.Len(t, result.ClusterTypes[0].Failures, 1)
				t.Log(result.ClusterTypes[0].Failures[0].Err)
			})
		}
	}
}
