package embed

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/artifacts"
	"github.com/wherry-dev/wherry/publisher/egress"
	"github.com/wherry-dev/wherry/publisher/gittest"
	"github.com/wherry-dev/wherry/publisher/meter"
	"github.com/wherry-dev/wherry/publisher/registrytest"
	"github.com/wherry-dev/wherry/publisher/rendercache"
	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
)

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n"

// embedded is an assignment with embedded delivery and these manifests.
func embedded(target string, manifests map[string]string) scheduler.Assignment {
	return scheduler.Assignment{
		Name: "app-" + target, ClusterType: "box", Workload: "app", Target: target, Namespace: "dev-box-app-" + target, Adapter: "kubernetes", Manifests: manifests,
		Settings: scheduler.Settings{Delivery: scheduler.Embedded}, Files: []scheduler.File{{Path: "namespace.yaml"}, {Path: "reconciler.yaml"}},
	}
}

// publish embeds and pins as a publication does.
func publish(t *testing.T, opts Options, assignments ...scheduler.Assignment) *scheduler.ClusterTypeResult {
	t.Helper()
	result := &scheduler.Result{ClusterTypes: []scheduler.ClusterTypeResult{{Name: "box", Annotations: map[string]string{"wherry.dev/kube-version": "1.33"}, Assignments: assignments}}}
	if opts.Resolver == nil {
		opts.Resolver = sources.NewResolver(sources.Options{Access: thisMachine()})
		defer opts.Resolver.Close()
	}
	opts.Sandbox = ownSandbox()
	content, err := Read(t.Context(), result, opts)
	require.NoError(t, err)
	require.NoError(t, artifacts.Pin(t.Context(), result, opts.Resolver, nil))
	content.AddTo(result)
	return &result.ClusterTypes[0]
}

// only returns the one assignment of ct, which must not have failed.
func only(t *testing.T, ct *scheduler.ClusterTypeResult) scheduler.Assignment {
	t.Helper()
	for _, f := range ct.Failures {
		require.NoError(t, f.Err)
	}
	require.Len(t, ct.Assignments, 1)
	return ct.Assignments[0]
}

// filesOf returns the embedded files of an assignment by their paths.
func filesOf(a scheduler.Assignment) map[string]string {
	files := map[string]string{}
	for _, f := range a.Files {
		if artifacts.IsEmbeddedPath(f.Path) {
			files[f.Path] = string(f.Data)
		}
	}
	return files
}

func failureOf(t *testing.T, ct *scheduler.ClusterTypeResult) string {
	t.Helper()
	require.Empty(t, ct.Assignments)
	require.Len(t, ct.Failures, 1)
	require.Equal(t, scheduler.EmbedFailed, ct.Failures[0].Reason)
	return ct.Failures[0].Err.Error()
}

// registry is an empty registry in this process.
type registry struct {
	t    *testing.T
	host string
}

func newRegistry(t *testing.T) registry {
	host := strings.TrimPrefix(gittest.Serve(t, registrytest.New(t, "", "")), "http://")
	return registry{t, strings.TrimSuffix(host, "/platform")}
}

// push puts an artifact of one layer into the registry.
func (r registry) push(repository, tag, configType, layerType string, layer []byte) digest.Digest {
	r.t.Helper()
	repo, err := oci.Location{Host: r.host}.Repository(repository, oci.Options{})
	require.NoError(r.t, err)
	content, config := bundle.NewBlob(layerType, layer), bundle.NewBlob(configType, []byte("{}"))
	data, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: config.Descriptor, Layers: []ocispec.Descriptor{content.Descriptor},
	})
	require.NoError(r.t, err)
	manifest := bundle.NewBlob(ocispec.MediaTypeImageManifest, data)
	for _, b := range []bundle.Blob{content, config, manifest} {
		require.NoError(r.t, repo.Push(r.t.Context(), b.Descriptor, bytes.NewReader(b.Data)))
	}
	require.NoError(r.t, repo.Tag(r.t.Context(), manifest.Descriptor, tag))
	return manifest.Descriptor.Digest
}

// tgz packs files, by path.
func tgz(t *testing.T, files map[string]string, more ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	for _, h := range more {
		require.NoError(t, w.WriteHeader(&h))
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(files[name]))}))
		_, err := w.Write([]byte(files[name]))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, zip.Close())
	return out.Bytes()
}

func TestAnArtifactOfARegistryIsEmbedded(t *testing.T) {
	r := newRegistry(t)
	const fluxConfig, fluxContent = "application/vnd.cncf.flux.config.v1+json", "application/vnd.cncf.flux.content.v1.tar+gzip"
	layer := tgz(t, map[string]string{"./app/one.yaml": configMap, "./other.yaml": configMap})
	pushed := r.push("app", "v1", fluxConfig, fluxContent, layer)
	a := only(t, publish(t, Options{}, embedded("t1", map[string]string{"repo": "oci://" + r.host + "/app", "tag": "v1", "path": "./app"})))
	require.Equal(t, map[string]string{"manifests/one.yaml": configMap}, filesOf(a))
	require.Equal(t, []scheduler.ContentSource{{Type: "oci", Name: r.host + "/app", Revision: pushed.String(), Path: "app"}}, a.Sources)
	require.Empty(t, artifacts.Of([]scheduler.Assignment{a}), "nothing of it is needed from outside")

	for name, c := range map[string]struct {
		layer     []byte
		mediaType string
		want      string
	}{
		"no archive":                {[]byte("text"), fluxContent, "unexpected EOF"},
		"another type":              {layer, "application/json", "neither a chart nor an artifact with one gzipped tar"},
		"a path out of the archive": {tgz(t, map[string]string{"../x.yaml": configMap}), fluxContent, `tree entry "../x.yaml" is not a relative, clean path`},
		"too much of it":            {tgz(t, map[string]string{"app/one.yaml": strings.Repeat("#", 5<<20)}), fluxContent, "app/one.yaml: too large: 5242880 bytes, at most 4194304 are embedded"},
		"links":                     {tgz(t, nil, tar.Header{Typeflag: tar.TypeSymlink, Name: "app", Linkname: "/etc"}), fluxContent, `there is no folder "app"`},
	} {
		t.Run(name, func(t *testing.T) {
			r.push("bad", "v1", fluxConfig, c.mediaType, c.layer)
			ct := publish(t, Options{}, embedded("t1", map[string]string{"repo": "oci://" + r.host + "/bad:v1", "path": "app"}))
			require.Contains(t, failureOf(t, ct), c.want)
		})
	}
}

func TestImagesOfEmbeddedObjectsGetTheirDigests(t *testing.T) {
	r := newRegistry(t)
	pushed := r.push("web", "1", ocispec.MediaTypeImageConfig, ocispec.MediaTypeImageLayerGzip, []byte("layer"))
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - {name: a, image: '" + r.host + "/web:1'} # ours\n  - {name: b, image: " + r.host + "/gone:1}\n"
	repo := filepath.Join(t.TempDir(), "app.git")
	gittest.CommitFiles(t, repo, "main", map[string]string{"pod.yaml": pod})
	url := gittest.Serve(t, gittest.FullServer(repo))
	a := only(t, publish(t, Options{}, embedded("t1", map[string]string{"repo": url, "branch": "main"})))
	want := strings.Replace(pod, "/web:1'", "/web:1@"+pushed.String()+"'", 1)
	require.Equal(t, map[string]string{"manifests/pod.yaml": want}, filesOf(a))
	list := artifacts.Of([]scheduler.Assignment{a})
	require.Len(t, list, 2)
	require.Equal(t, r.host+"/gone:1", list[0].Reference)
	require.True(t, list[0].Unresolved)
	require.Equal(t, pushed.String(), list[1].Digest)
	require.NotZero(t, list[1].Size)
}

// The digest that was proved is gone from the registry. What its tag names now is not what was proved.
func TestAnImageThatWasWithdrawnFailsItsAssignment(t *testing.T) {
	r := newRegistry(t)
	r.push("web", "1", ocispec.MediaTypeImageConfig, ocispec.MediaTypeImageLayerGzip, []byte("another one"))
	repo := filepath.Join(t.TempDir(), "app.git")
	gittest.CommitFiles(t, repo, "main", map[string]string{"pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a, image: '" + r.host + "/web:1'}]}\n"})
	proved := digest.FromString("proved").String()
	resolver := sources.NewResolver(sources.Options{Access: thisMachine(), At: func(_ string, s sources.Source) sources.Source {
		if s.Kind == bundle.ArtifactImage {
			s.Revision = proved
		}
		return s
	}})
	defer resolver.Close()
	ct := publish(t, Options{Resolver: resolver}, embedded("t1", map[string]string{"repo": gittest.Serve(t, gittest.FullServer(repo)), "branch": "main"}))
	require.Contains(t, failureOf(t, ct), "image "+r.host+"/web:1: there is no "+proved)
}

func TestAVersionIsWhatTheContentSays(t *testing.T) {
	pod := func(label, image string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {app.kubernetes.io/version: '" + label + "'}}\nspec: {containers: [{name: c, image: '" + image + "'}]}\n"
	}
	const descriptor = "apiVersion: hub.kalypso.io/v1alpha1\nkind: DeploymentDescriptor\nspec:\n  deploymentTarget: {name: t1}\n  workloadVersion: {version: '9.9'}\n"
	repo := filepath.Join(t.TempDir(), "app.git")
	gittest.CommitFiles(t, repo, "main", map[string]string{
		"described/a.yaml": pod("2.4.1", "shop:1"), "described/b.yaml": descriptor,
		"label/a.yaml": pod("2.4.1", "shop:1"), "tag/a.yaml": pod("", "shop:1.1"), "none/a.yaml": configMap,
		"kustomized/a.yaml": pod("", "shop:1"), "kustomized/kustomization.yaml": "resources: [a.yaml]\nlabels: [{pairs: {app.kubernetes.io/version: '3.0'}}]\n",
		"built/a.yaml": pod("", "shop:1"), "built/kustomization.yaml": "resources: [a.yaml]\n", "built/descriptor.yaml": descriptor,
		"chart/Chart.yaml": "{apiVersion: v2, name: web, version: 1.2.3, appVersion: '7.1'}", "chart/templates/a.yaml": configMap,
		"both/Chart.yaml": "{apiVersion: v2, name: web, version: 1.2.3}", "both/templates/a.yaml": configMap, "both/descriptor.yaml": descriptor,
	})
	url := gittest.Serve(t, gittest.FullServer(repo))
	version := func(path string) string {
		return only(t, publish(t, Options{KeepTags: true}, embedded("t1", map[string]string{"repo": url, "branch": "main", "path": path}))).Version
	}
	for path, want := range map[string]string{"described": "9.9", "label": "2.4.1", "tag": "1.1", "kustomized": "3.0", "built": "9.9", "chart": "7.1", "both": "9.9"} {
		require.Equal(t, want, version(path), path)
	}
	require.Regexp(t, "^[0-9a-f]{12}$", version("none"), "git's digest of the folder")
}

// Images that never answer cost a registration its own budget, and no other registration anything.
func TestImagesThatNeverAnswerFailTheirRegistrationAlone(t *testing.T) {
	hang := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(hang.Close)
	t.Cleanup(hang.CloseClientConnections)
	r := newRegistry(t)
	pushed := r.push("web", "1", ocispec.MediaTypeImageConfig, ocispec.MediaTypeImageLayerGzip, []byte("layer"))
	pod := func(images ...string) *fstest.MapFile {
		text := "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n"
		for i, image := range images {
			text += fmt.Sprintf("  - {name: c%d, image: '%s'}\n", i, image)
		}
		return &fstest.MapFile{Data: []byte(text)}
	}
	var many []string
	for i := range 2_000 {
		many = append(many, fmt.Sprintf("%s/x%d:1", strings.TrimPrefix(hang.URL, "http://"), i))
	}
	files := fstest.MapFS{"evil/x.yaml": pod(many...), "good/x.yaml": pod(r.host + "/web:1")}
	own := func(_ context.Context, _ string, do func(fs.FS) error) error { return do(files) }
	evil, good := embedded("evil", map[string]string{"path": "evil"}), embedded("good", map[string]string{"path": "good"})
	evil.Registration, good.Registration = "evil", "good"
	resolver := sources.NewResolver(sources.Options{Access: thisMachine(), Meters: meter.NewSet(meter.Budget{Time: 2 * time.Second})})
	t.Cleanup(func() { require.NoError(t, resolver.Close()) })
	ct := publish(t, Options{Own: own, Resolver: resolver}, evil, good)
	require.Len(t, ct.Failures, 1)
	require.Equal(t, "app-evil", ct.Failures[0].Name)
	require.Equal(t, scheduler.LimitExceeded, ct.Failures[0].Reason)
	require.ErrorContains(t, ct.Failures[0].Err, `the sources of registration "evil" take more than 2s in one publication`)
	require.Contains(t, filesOf(ct.Assignments[0])["manifests/x.yaml"], "/web:1@"+pushed.String())
}

// moving serves a repository whose branch gets a commit after each request for its references.
func moving(t *testing.T, repo string, next func()) string {
	serve := gittest.FullServer(repo)
	return gittest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serve.ServeHTTP(w, r)
		if strings.HasSuffix(r.URL.Path, "git-upload-pack") {
			next()
		}
	}))
}

func TestASourceThatChangesMeanwhileIsReadAtOneCommit(t *testing.T) {
	repo, n := filepath.Join(t.TempDir(), "app.git"), 0
	commit := func() {
		n++
		text := configMap + fmt.Sprintf("data: {n: '%d'}\n", n)
		gittest.CommitFiles(t, repo, "main", map[string]string{"a/x.yaml": text, "b/x.yaml": text})
	}
	commit()
	url := moving(t, repo, commit)
	var all []scheduler.Assignment
	for i, as := range []string{url, url + ".git", url + "/"} { // each another way to write the same
		for _, dir := range []string{"a", "b"} {
			all = append(all, embedded(fmt.Sprint(dir, i), map[string]string{"repo": as, "branch": "main", "path": dir}))
		}
	}
	ct := publish(t, Options{}, all...)
	require.Empty(t, ct.Failures)
	require.Len(t, ct.Assignments, len(all))
	for _, a := range ct.Assignments {
		require.Equal(t, filesOf(ct.Assignments[0]), filesOf(a))
		require.Equal(t, ct.Assignments[0].Sources[0].Revision, a.Sources[0].Revision)
	}
	require.GreaterOrEqual(t, n, 2, "it did change")
}

func TestContentIsBuiltAgainOnlyIfItsFilesChange(t *testing.T) {
	repo := filepath.Join(t.TempDir(), "app.git")
	files := map[string]string{
		"plain/x.yaml": configMap, "base/kustomization.yaml": "resources: [x.yaml]\n", "base/x.yaml": configMap, "over/kustomization.yaml": "namePrefix: p-\nresources: [../base]\n",
		"chart/Chart.yaml": "apiVersion: v2\nname: c\nversion: 1.0.0\n", "chart/templates/x.yaml": configMap,
	}
	gittest.CommitFiles(t, repo, "main", files)
	url := gittest.Serve(t, gittest.FullServer(repo))
	disk, err := rendercache.Open(t.TempDir(), rendercache.Options{})
	require.NoError(t, err)
	cache := &countingCache{Cache: disk}
	run := func() []map[string]string {
		cache.puts = 0
		var all []scheduler.Assignment
		for _, dir := range []string{"plain", "over", "chart"} {
			all = append(all, embedded(dir, map[string]string{"repo": url, "branch": "main", "path": dir}))
		}
		ct := publish(t, Options{Cache: cache}, all...)
		require.Empty(t, ct.Failures)
		var got []map[string]string
		for _, a := range ct.Assignments {
			got = append(got, filesOf(a))
		}
		return got
	}
	first := run()
	require.Equal(t, 3, cache.puts)
	require.Contains(t, first[1]["manifests/manifests.yaml"], "name: p-one")
	require.Contains(t, first[2]["manifests/templates/x.yaml"], "name: one")
	require.Equal(t, first, run())
	require.Zero(t, cache.puts)

	files["unrelated.yaml"] = configMap
	gittest.CommitFiles(t, repo, "main", files)
	require.Equal(t, first, run())
	require.Zero(t, cache.puts, "another commit with the same folders")

	files["base/x.yaml"] = strings.Replace(configMap, "one", "two", 1)
	gittest.CommitFiles(t, repo, "main", files)
	changed := run()
	require.Equal(t, 1, cache.puts, "a file outside of the folder that a kustomization reads")
	require.Contains(t, changed[1]["manifests/manifests.yaml"], "name: p-two")
	require.Equal(t, first[0], changed[0])
}

type countingCache struct {
	*rendercache.Cache
	puts int
}

func (c *countingCache) Put(key string, data []byte) {
	c.puts++
	c.Cache.Put(key, data)
}

// endless is a folder with 200 MB of manifests, which it makes as they are read.
func endless() fs.FS {
	files := fstest.MapFS{}
	part := []byte(configMap + strings.Repeat("# padding of a manifest\n", 80_000)) // some 2 MB, shared by all
	for i := range 100 {
		files[fmt.Sprintf("big/%03d.yaml", i)] = &fstest.MapFile{Data: part}
	}
	return files
}

func TestAPathBesideTheWorkloadSaysWhatItIsRelativeTo(t *testing.T) {
	own := func(_ context.Context, _ string, do func(fs.FS) error) error { return do(fstest.MapFS{}) }
	ct := publish(t, Options{Own: own}, embedded("t1", map[string]string{"path": "none"}))
	require.Equal(t, `embed: manifests.path of the workload: there is no folder "none" beside the workload: the path is relative to the folder of its registration, or, for a workload of the platform itself, to the folder of the environment`, failureOf(t, ct))
}

func TestTooMuchContentIsOneErrorAndLittleMemory(t *testing.T) {
	files := endless()
	own := func(_ context.Context, _ string, do func(fs.FS) error) error { return do(files) }
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	ct := publish(t, Options{Own: own}, embedded("t1", map[string]string{"path": "big"}))
	runtime.ReadMemStats(&after)
	require.Equal(t, `embed: manifests.path of the workload: folder "big": too large: more than 16777216 bytes of manifests`, failureOf(t, ct))
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(200<<20))
}

// Each key of the first was compared with each other one, which took minutes; the aliases of the last stand for 4 GiB.
func TestManifestsAreReadInTimeThatGrowsWithTheirLength(t *testing.T) {
	keys := func(n int) []byte {
		text := []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata:\n")
		for i := range n {
			text = fmt.Appendf(text, " %x:\n", i)
		}
		return text
	}
	aliases := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata:\n  a: &a \"" + strings.Repeat("x", 1<<20) + "\"\nspec: [" + strings.Repeat("*a,", 4000) + "]\n"
	files := fstest.MapFS{"many/x.yaml": {Data: keys(300_000)}, "more/x.yaml": {Data: keys(500_000)}, "aliases/x.yaml": {Data: []byte(aliases)}}
	own := func(_ context.Context, _ string, do func(fs.FS) error) error { return do(files) }
	target := func(dir string) scheduler.Assignment { return embedded(dir, map[string]string{"path": dir}) }

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	ct := publish(t, Options{Own: own}, target("more"), target("aliases"))
	runtime.ReadMemStats(&after)
	require.Len(t, ct.Failures, 2)
	for _, f := range ct.Failures {
		require.ErrorContains(t, f.Err, "too large for agents: the manifests come to more than 33554432 bytes, with each YAML alias counted as what it stands for")
	}
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
	require.Len(t, publish(t, Options{Own: own}, target("many")).Assignments, 1)
}

func TestOneBrokenTargetFailsAlone(t *testing.T) {
	files := fstest.MapFS{"good/x.yaml": {Data: []byte(configMap)}, "bad/x.yaml": {Data: []byte("a: [")}, "list/x.yaml": {Data: []byte("- a\n")}, "empty/x.txt": {Data: nil}}
	own := func(_ context.Context, registration string, do func(fs.FS) error) error {
		if registration != "" {
			return fs.ErrNotExist
		}
		return do(files)
	}
	for dir, want := range map[string]string{
		"bad": "bad/x.yaml: yaml: line 1", "list": "list/x.yaml:1: no Kubernetes object", "empty": `folder "empty" has no manifests`, "none": `there is no folder "none"`, "../x": `path "../x" leads out of the repository`,
	} {
		t.Run(dir, func(t *testing.T) {
			ct := publish(t, Options{Own: own}, embedded("good", map[string]string{"path": "good"}), embedded("bad", map[string]string{"path": dir}))
			require.Len(t, ct.Assignments, 1)
			require.Equal(t, map[string]string{"manifests/x.yaml": configMap}, filesOf(ct.Assignments[0]))
			require.Len(t, ct.Failures, 1)
			require.ErrorContains(t, ct.Failures[0].Err, want)
		})
	}
}

func TestAKustomizationTakesAPinnedBaseOfAnotherRepository(t *testing.T) {
	dir := t.TempDir()
	commit := gittest.CommitFiles(t, filepath.Join(dir, "base.git"), "main", map[string]string{"deep/kustomization.yaml": "resources: [x.yaml]\n", "deep/x.yaml": configMap})
	gittest.CommitFiles(t, filepath.Join(dir, "app.git"), "main", map[string]string{
		"kustomization.yaml": "namePrefix: far-\nresources: ['https://git.example/team/base//deep?ref=" + commit + "']\n",
	})
	resolver := sources.NewResolver(sources.Options{Mirrors: map[string]string{"https://git.example/team": dir}})
	defer resolver.Close()
	a := only(t, publish(t, Options{Resolver: resolver}, embedded("t1", map[string]string{"repo": "https://git.example/team/app", "branch": "main"})))
	require.Contains(t, filesOf(a)["manifests/manifests.yaml"], "name: far-one")
	require.Len(t, a.Sources, 2)
	require.Equal(t, scheduler.ContentSource{Type: "git", Name: "git.example/team/base", Revision: commit}, a.Sources[1])
}

// chartFiles are those of a chart with one Pod.
func chartFiles(host string) map[string]string {
	return map[string]string{
		"web/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.2.3\nappVersion: '7.1'\n", "web/values.yaml": "replicas: 1\n",
		"web/templates/pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: {{ .Release.Name }}, namespace: {{ .Release.Namespace }}}\nspec: {containers: [{name: c, image: '" + host + "/web:{{ .Values.tag | default 1 }}'}]}\n",
	}
}

const helmConfig, helmContent = "application/vnd.cncf.helm.config.v1+json", "application/vnd.cncf.helm.chart.content.v1.tar+gzip"

func TestAChartOfARegistryIsRenderedWithTheValuesOfTheConfiguration(t *testing.T) {
	r := newRegistry(t)
	pushed := r.push("charts/web", "1.2.3", helmConfig, helmContent, tgz(t, chartFiles(r.host)))
	a := embedded("t1", map[string]string{"repo": "oci://" + r.host + "/charts", "chart": "web", "version": "1.x"})
	a.ChartValues = "web"
	value := func(_ context.Context, clusterType, target, key string) (string, bool, error) {
		return "tag: '7'\n", clusterType == "box" && target == "app-t1" && key == "web", nil
	}
	got := only(t, publish(t, Options{Value: value}, a))
	require.Equal(t, "7.1", got.Version, "that of the application, and neither the chart's nor the image's")
	require.Contains(t, filesOf(got)["manifests/templates/pod.yaml"], r.host+"/web:7'")
	require.Contains(t, filesOf(got)["manifests/templates/pod.yaml"], "{name: app-t1, namespace: dev-box-app-t1}")
	require.Equal(t, []scheduler.ContentSource{{Type: "chart", Name: r.host + "/charts/web", Revision: pushed.String(), Chart: "web", Version: "1.2.3"}}, got.Sources)
}

func TestAChartOfAChartRepositoryIsComparedWithItsIndex(t *testing.T) {
	archive, served := tgz(t, chartFiles("registry.example")), []byte(nil)
	charts := strings.TrimSuffix(gittest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/charts/index.yaml":
			fmt.Fprintf(w, "entries:\n  web:\n  - {version: 1.2.3, digest: %s, urls: [web-1.2.3.tgz]}\n", digest.FromBytes(archive).Encoded())
		case "/charts/web-1.2.3.tgz":
			_, _ = w.Write(served)
		default:
			http.NotFound(w, r)
		}
	})), "/platform") + "/charts"
	manifests := map[string]string{"repo": charts, "chart": "web", "version": "1.2.3"}
	served = archive
	a := only(t, publish(t, Options{KeepTags: true}, embedded("t1", manifests)))
	require.Contains(t, filesOf(a)["manifests/templates/pod.yaml"], "registry.example/web:1")
	require.Equal(t, digest.FromBytes(archive).String(), a.Sources[0].Revision)

	served = tgz(t, chartFiles("attacker.example"))
	require.Contains(t, failureOf(t, publish(t, Options{KeepTags: true}, embedded("t1", manifests))), "the archive of version 1.2.3 does not have the digest")
}

func TestAHelmReleaseTakesItsChartAlong(t *testing.T) {
	r := newRegistry(t)
	archive := tgz(t, chartFiles(r.host))
	pushed := r.push("charts/web", "1.2.3", helmConfig, helmContent, archive)
	image := r.push("web", "7", ocispec.MediaTypeImageConfig, ocispec.MediaTypeImageLayerGzip, []byte("layer"))
	a := embedded("t1", map[string]string{"repo": "oci://" + r.host + "/charts", "chart": "web", "version": "1.2.3"})
	a.Adapter = "flux"
	a.Files[1].Data = []byte(`apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: web, namespace: flux-system}
spec: {type: oci, url: "oci://` + r.host + `/charts", interval: 1m}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: web, namespace: flux-system}
spec:
  interval: 1m
  chart: {spec: {chart: web, version: 1.2.3, sourceRef: {kind: HelmRepository, name: web}}}
  values: {tag: "7"}
  valuesFrom: [{kind: Secret, name: passwords}]
`)
	result := &scheduler.Result{ClusterTypes: []scheduler.ClusterTypeResult{{Name: "box", Assignments: []scheduler.Assignment{a}}}}
	resolver := sources.NewResolver(sources.Options{Access: thisMachine()})
	defer resolver.Close()
	content, err := Read(t.Context(), result, Options{Resolver: resolver, Sandbox: ownSandbox()})
	require.NoError(t, err)
	require.NoError(t, artifacts.Pin(t.Context(), result, resolver, nil))
	content.AddTo(result)
	got := only(t, &result.ClusterTypes[0])
	require.Equal(t, map[string]string{"charts/web-1.2.3.tgz": string(archive)}, filesOf(got), "the bytes of its maker")
	require.Equal(t, []scheduler.ContentSource{{
		Type: "chart", Name: r.host + "/charts/web", Revision: pushed.String(), Chart: "web", Version: "1.2.3", Files: []string{"charts/web-1.2.3.tgz"},
	}}, got.Sources)
	require.Equal(t, "7.1", got.Version)
	list := artifacts.Of([]scheduler.Assignment{got})
	require.Len(t, list, 1, "the chart is in the bundle")
	require.Equal(t, image.String(), list[0].Digest)
	warnings := content.Warnings(result)
	require.Len(t, warnings, 1)
	require.Equal(t, "N1702", warnings[0].Code)
	require.Contains(t, warnings[0].Message, "passwords")
}

func TestATeamEmbedsNoRepositoryThatItMayNotUse(t *testing.T) {
	dir, asked := t.TempDir(), []string(nil)
	secret := gittest.CommitFiles(t, filepath.Join(dir, "secret.git"), "main", map[string]string{"kustomization.yaml": "resources: [x.yaml]\n", "x.yaml": configMap})
	gittest.CommitFiles(t, filepath.Join(dir, "app.git"), "main", map[string]string{
		"far/kustomization.yaml": "resources: ['https://git.example/team/secret?ref=" + secret + "']\n", "near/x.yaml": configMap,
	})
	disk, err := rendercache.Open(t.TempDir(), rendercache.Options{})
	require.NoError(t, err)
	forbidden := map[string]bool{}
	allowed := func(registration, workspace, repository string) error {
		asked = append(asked, registration+" "+workspace+" "+repository)
		if forbidden[repository] {
			return fs.ErrPermission
		}
		return nil
	}
	run := func(manifests map[string]string) *scheduler.ClusterTypeResult {
		resolver := sources.NewResolver(sources.Options{Mirrors: map[string]string{"https://git.example/team": dir}})
		defer resolver.Close()
		a := embedded("t1", manifests)
		a.Registration, a.Workspace = "reg", "team"
		return publish(t, Options{Resolver: resolver, Cache: disk, Allowed: allowed}, a)
	}
	const app, other = "https://git.example/team/app", "https://git.example/team/secret"
	only(t, run(map[string]string{"repo": app, "branch": "main", "path": "far"}))
	require.Equal(t, "reg team "+app, asked[0])
	forbidden[other] = true
	require.Contains(t, failureOf(t, run(map[string]string{"repo": other, "branch": "main"})), "permission denied")
	require.Contains(t, failureOf(t, run(map[string]string{"repo": app, "branch": "main", "path": "far"})), "permission denied", "also of a cache")
	only(t, run(map[string]string{"repo": app, "branch": "main", "path": "near"}))
}

// thisMachine returns an access to servers of the test.
func thisMachine() *egress.Access {
	access := egress.New()
	access.Allow("127.0.0.1")
	return access
}
