package artifacts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/egress"
	"github.com/wherry-dev/wherry/publisher/gittest"
	"github.com/wherry-dev/wherry/publisher/registrytest"
	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
)

// servers are those of what assignments need.
type servers struct {
	t        *testing.T
	repo     string // on disk
	git      string // its URL
	registry string // HOST
	charts   string // the URL of a chart repository
}

func newSources(t *testing.T) *servers {
	s := &servers{t: t, repo: filepath.Join(t.TempDir(), "app.git")}
	s.git = gittest.Serve(t, gittest.FullServer(s.repo))
	s.registry = strings.TrimPrefix(gittest.Serve(t, registrytest.New(t, "", "")), "http://")
	s.registry = strings.TrimSuffix(s.registry, "/platform")
	s.charts = strings.TrimSuffix(gittest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/charts/index.yaml" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte("entries:\n  db:\n  - {version: 1.2.0, digest: aa12}\n  - {version: 1.10.0, digest: bb}\n  - {version: 2.0.0-rc.1, digest: cc}\n  - {version: 0.1.0}\n"))
	})), "/platform") + "/charts"
	return s
}

// tag names a commit.
func (s *servers) tag(name, commit string) {
	repo, err := git.PlainOpen(s.repo)
	require.NoError(s.t, err)
	require.NoError(s.t, repo.Storer.SetReference(plumbing.NewHashReference(plumbing.NewTagReferenceName(name), plumbing.NewHash(commit))))
}

// push puts an artifact of one layer into the registry and returns its digest and the size of all of it.
func (s *servers) push(repository, tag, content string, annotations map[string]string) (digest.Digest, int64) {
	repo, err := oci.Location{Host: s.registry}.Repository(repository, oci.Options{})
	require.NoError(s.t, err)
	layer, config := bundle.NewBlob(ocispec.MediaTypeImageLayer, []byte(content)), bundle.NewBlob(ocispec.MediaTypeImageConfig, []byte("{}"))
	data, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: config.Descriptor, Layers: []ocispec.Descriptor{layer.Descriptor}, Annotations: annotations,
	})
	require.NoError(s.t, err)
	manifest := bundle.NewBlob(ocispec.MediaTypeImageManifest, data)
	for _, b := range []bundle.Blob{layer, config, manifest} {
		require.NoError(s.t, repo.Push(s.t.Context(), b.Descriptor, bytes.NewReader(b.Data)))
	}
	require.NoError(s.t, repo.Tag(s.t.Context(), manifest.Descriptor, tag))
	return manifest.Descriptor.Digest, int64(len(content) + 2 + len(data))
}

// pin is Pin with a resolver of its own.
func pin(ctx context.Context, result *scheduler.Result, opts sources.Options) error {
	opts.Access = egress.New()
	opts.Access.Allow("127.0.0.1")
	resolver := sources.NewResolver(opts)
	return errors.Join(Pin(ctx, result, resolver, nil), resolver.Close())
}

// pinned pins assignments of one cluster type.
func pinned(t *testing.T, opts sources.Options, assignments ...scheduler.Assignment) scheduler.ClusterTypeResult {
	t.Helper()
	result := &scheduler.Result{ClusterTypes: []scheduler.ClusterTypeResult{{
		Name: "edge", Assignments: assignments, Annotations: map[string]string{scheduler.PinAnnotation: scheduler.PinCommit},
	}}}
	require.NoError(t, pin(t.Context(), result, opts))
	return result.ClusterTypes[0]
}

// onlyPinned pins one file and returns it with its assignment.
func onlyPinned(t *testing.T, file string) (string, scheduler.Assignment) {
	t.Helper()
	ct := pinned(t, sources.Options{}, rendered(file))
	require.Empty(t, ct.Failures)
	require.Len(t, ct.Assignments, 1)
	return string(ct.Assignments[0].Files[1].Data), ct.Assignments[0]
}

func TestPinWritesCommitsWhereSourcesNameBranches(t *testing.T) {
	t.Parallel()
	s := newSources(t)
	one := gittest.CommitFiles(t, s.repo, "main", map[string]string{"a.yaml": "1"})
	s.tag("v1.2.0", one)
	two := gittest.CommitFiles(t, s.repo, "main", map[string]string{"a.yaml": "2"})
	s.tag("v1.10.0", two)
	dev := gittest.CommitFiles(t, s.repo, "dev", map[string]string{"a.yaml": "3"})
	const head = "# who: ünïcode\napiVersion: source.toolkit.fluxcd.io/v1beta2\nkind: GitRepository\nmetadata:\n  name: \"app\"\nspec:\n"
	argo := func(source string) string {
		return "apiVersion: argoproj.io/v1alpha1\nkind: Application\nspec:\n  " + source
	}
	for name, c := range map[string]struct{ file, want string }{
		"a branch": {
			head + "  interval: 30s\n  url: \"GITURL\"\n  ref:\n    branch: \"dev\"   \n  secretRef:\n    name: x\n",
			head + "  interval: 30s\n  url: \"GITURL\"\n  ref:\n    commit: \"" + dev + "\"\n    branch: \"dev\"   \n  secretRef:\n    name: x\n",
		},
		"a branch in flow style": {head + "  ref: {branch: dev}\n  url: GITURL\n", head + "  ref: {\"commit\": \"" + dev + "\", branch: dev}\n  url: GITURL\n"},
		"a tag":                  {head + "  ref:\n    tag: v1.2.0\n  url: GITURL\n", head + "  ref:\n    commit: \"" + one + "\"\n    tag: v1.2.0\n  url: GITURL\n"},
		"a range of tags":        {head + "  ref:\n    semver: 1.x\n  url: GITURL\n", head + "  ref:\n    commit: \"" + two + "\"\n    semver: 1.x\n  url: GITURL\n"},
		"a reference in full":    {head + "  ref:\n    name: refs/heads/dev\n  url: GITURL\n", head + "  ref:\n    commit: \"" + dev + "\"\n    name: refs/heads/dev\n  url: GITURL\n"},
		"a commit stays":         {head + "  ref: {commit: " + one + "}\n  url: GITURL\n", head + "  ref: {commit: " + one + "}\n  url: GITURL\n"},
		"JSON":                   {`{"apiVersion":"source.toolkit.fluxcd.io/v1","kind":"GitRepository","spec":{"url":"GITURL","ref":{"branch":"dev"}}}`, `{"apiVersion":"source.toolkit.fluxcd.io/v1","kind":"GitRepository","spec":{"url":"GITURL","ref":{"commit": "` + dev + `", "branch":"dev"}}}`},
		"Argo CD's branch":       {argo("source: {repoURL: GITURL, targetRevision: dev, path: ./x}\n"), argo("source: {repoURL: GITURL, targetRevision: \"" + dev + "\", path: ./x}\n")},
		"Argo CD's default":      {argo("sources:\n  - repoURL: 'GITURL'\n    path: x\n"), argo("sources:\n  - targetRevision: \"" + two + "\"\n    repoURL: 'GITURL'\n    path: x\n")},
		"Argo CD's range":        {argo("source:\n    repoURL: GITURL\n    targetRevision: 'v1.2.*' # not later\n"), argo("source:\n    repoURL: GITURL\n    targetRevision: '" + one + "' # not later\n")},
		"a block text":           {argo("source:\n    repoURL: GITURL\n    targetRevision: >- # newest\n      dev\n    path: x\n"), argo("source:\n    repoURL: GITURL\n    targetRevision: \"" + dev + "\" # newest\n    path: x\n")},
		"two objects":            {head + "  ref: {branch: dev}\n  url: GITURL\n---\n" + head + "  ref: {branch: main}\n  url: GITURL\n", head + "  ref: {\"commit\": \"" + dev + "\", branch: dev}\n  url: GITURL\n---\n" + head + "  ref: {\"commit\": \"" + two + "\", branch: main}\n  url: GITURL\n"},
		"an anchor": {
			"kind: List\nitems:\n- apiVersion: source.toolkit.fluxcd.io/v1\n  kind: GitRepository\n  spec: &s {url: GITURL, ref: {branch: dev}}\n- apiVersion: source.toolkit.fluxcd.io/v1\n  kind: GitRepository\n  spec: *s\n",
			"kind: List\nitems:\n- apiVersion: source.toolkit.fluxcd.io/v1\n  kind: GitRepository\n  spec: &s {url: GITURL, ref: {\"commit\": \"" + dev + "\", branch: dev}}\n- apiVersion: source.toolkit.fluxcd.io/v1\n  kind: GitRepository\n  spec: *s\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, a := onlyPinned(t, strings.ReplaceAll(c.file, "GITURL", s.git))
			require.Equal(t, strings.ReplaceAll(c.want, "GITURL", s.git), got)
			for _, artifact := range Of([]scheduler.Assignment{a}) {
				require.False(t, artifact.Unresolved)
			}
			again, _ := onlyPinned(t, got)
			require.Equal(t, got, again, "what is pinned stays as it is")
		})
	}
}

func TestPinWritesDigestsAndVersions(t *testing.T) {
	t.Parallel()
	s := newSources(t)
	d, size := s.push("org/app", "1.2.0", "files", map[string]string{ocispec.AnnotationVersion: "1.2.0-build7"})
	latest, _ := s.push("org/app", "latest", "newer", nil)
	const object = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: "
	for name, c := range map[string]struct{ file, want, version string }{
		"a tag":       {object + "OCIRepository\nspec:\n  url: oci://HOST/org/app\n  ref:\n    tag: 1.2.0\n", object + "OCIRepository\nspec:\n  url: oci://HOST/org/app\n  ref:\n    digest: \"" + d.String() + "\"\n    tag: 1.2.0\n", "1.2.0-build7"},
		"a range":     {object + "OCIRepository\nspec:\n  url: oci://HOST/org/app\n  ref: {semver: '>=1.0'}\n", object + "OCIRepository\nspec:\n  url: oci://HOST/org/app\n  ref: {\"digest\": \"" + d.String() + "\", semver: '>=1.0'}\n", "1.2.0-build7"},
		"the default": {object + "OCIRepository\nspec:\n  url: oci://HOST/org/app\n", object + "OCIRepository\nspec:\n  ref: {\"digest\": \"" + latest.String() + "\"}\n  url: oci://HOST/org/app\n", ""},
		"images": {
			"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: HOST/org/app:1.2.0 # x\n  - {image: \"HOST/org/app\"}\n",
			"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: HOST/org/app:1.2.0@" + d.String() + " # x\n  - {image: \"HOST/org/app@" + latest.String() + "\"}\n", "1.2.0-build7",
		},
		"a chart of a registry": {
			object + "HelmRepository\nmetadata: {name: r}\nspec: {type: oci, url: 'oci://HOST/org'}\n---\n" + object + "HelmChart\nspec:\n  chart: app\n  version: 1.x\n  sourceRef: {kind: HelmRepository, name: r}\n",
			object + "HelmRepository\nmetadata: {name: r}\nspec: {type: oci, url: 'oci://HOST/org'}\n---\n" + object + "HelmChart\nspec:\n  chart: app\n  version: \"1.2.0\"\n  sourceRef: {kind: HelmRepository, name: r}\n", "1.2.0-build7",
		},
		"a chart of a chart repository": {
			object + "HelmRepository\nmetadata: {name: r}\nspec: {url: CHARTS}\n---\n" + object + "HelmChart\nspec:\n  chart: db\n  sourceRef: {kind: HelmRepository, name: r}\n",
			object + "HelmRepository\nmetadata: {name: r}\nspec: {url: CHARTS}\n---\n" + object + "HelmChart\nspec:\n  version: \"1.10.0\"\n  chart: db\n  sourceRef: {kind: HelmRepository, name: r}\n", "1.10.0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			fill := strings.NewReplacer("HOST", s.registry, "CHARTS", s.charts).Replace
			got, a := onlyPinned(t, fill(c.file))
			require.Equal(t, fill(c.want), got)
			require.Equal(t, c.version, a.Version)
			for _, artifact := range Of([]scheduler.Assignment{a}) {
				require.False(t, artifact.Unresolved)
				if artifact.Digest == d.String() {
					require.Equal(t, size, artifact.Size)
				}
			}
		})
	}
}

// An environment takes the version that was proved. Without a version in the file, clusters would follow the newest chart.
func TestPinWritesTheVersionOfAChartThatIsSettled(t *testing.T) {
	t.Parallel()
	s := newSources(t)
	proved, _ := s.push("org/app", "1.2.0", "files", nil)
	s.push("org/app", "1.3.0", "newer", nil)
	chart := func(version string) scheduler.Assignment {
		return rendered("apiVersion: source.toolkit.fluxcd.io/v1\nkind: HelmRepository\nmetadata: {name: r}\nspec: {type: oci, url: 'oci://" + s.registry + "/org'}\n---\n" +
			"apiVersion: source.toolkit.fluxcd.io/v1\nkind: HelmChart\nspec:\n  chart: app\n  version: " + version + "\n  sourceRef: {kind: HelmRepository, name: r}\n")
	}
	pinAt := func(version string, settled sources.Source) scheduler.ClusterTypeResult {
		return pinned(t, sources.Options{At: func(_ string, of sources.Source) sources.Source {
			of.Version, of.Revision = settled.Version, settled.Revision
			return of
		}}, chart(version))
	}

	for version, settled := range map[string]sources.Source{
		"1.2.0": {Revision: proved.String()}, // a ledger keeps no version beside an exact one
		"1.x":   {Revision: proved.String(), Version: "1.2.0"},
	} {
		ct := pinAt(version, settled)
		require.Empty(t, ct.Failures, version)
		a := ct.Assignments[0]
		require.Regexp(t, `\n  version: "?1.2.0"?\n`, string(a.Files[1].Data), version)
		require.Equal(t, "1.2.0", a.Version, version)
		require.Equal(t, proved.String(), a.Pinned[0].Digest, version)
	}
	short, _ := s.push("org/app", "2.0", "no version in full", nil)
	require.Regexp(t, `\n  version: "?2.0"?\n`, string(pinAt(`"2.0"`, sources.Source{Revision: short.String()}).Assignments[0].Files[1].Data))
	require.Equal(t, []scheduler.Pinned{{
		Type: string(bundle.ArtifactChart), Name: s.registry + "/org/app", Reference: "oci://" + s.registry + "/org/app:1.x", Digest: proved.String(), Version: "1.2.0",
	}}, pinAt("1.x", sources.Source{Revision: proved.String(), Version: "1.2.0"}).Assignments[0].Taken, "the ledger says what a range came to")
	require.ErrorContains(t, pinAt("1.x", sources.Source{Revision: proved.String()}).Failures[0].Err, "the version of "+proved.String()+" is not known")
}

func TestPinFailsTheAssignmentsThatItCannotResolve(t *testing.T) {
	t.Parallel()
	s := newSources(t)
	gittest.CommitFiles(t, s.repo, "main", map[string]string{"a.yaml": "1"})
	s.push("org/app", "1.2.0", "files", nil)
	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	for name, c := range map[string]struct{ file, want string }{
		"no such branch": {fluxGit("GITURL", "branch: prod"), `pin: reconciler.yaml:8: GitRepository "app": resolve GITURL#prod: branch "prod": not in the repository`},
		"no such tag":    {fluxGit("GITURL", "tag: v9"), `branch "refs/tags/v9": not in the repository`},
		"no such range":  {fluxGit("GITURL", "semver: 9.x"), `no version meets "9.x"`},
		"no server":      {fluxGit(dead.URL+"/x", "branch: main"), `reconciler.yaml:8: GitRepository "app": resolve ` + dead.URL + `/x#main: `},
		"a local file":   {fluxGit("file://"+s.repo, "branch: main"), "not the URL of a remote repository"},
		"a local path":   {fluxGit(s.repo, "branch: main"), "not the URL of a remote repository"},
		"no such image":  {"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{image: 'HOST/org/app:9'}]}\n", `reconciler.yaml:4: Pod "p": resolve HOST/org/app:9: there is no 9`},
		"no image":       {"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{image: '${X}'}]}\n", `Pod "p": image "${X}"`},
		"no such chart":  {"apiVersion: argoproj.io/v1alpha1\nkind: Application\nspec: {source: {repoURL: CHARTS, chart: mq, targetRevision: 1.x}}\n", `the repository has no chart "mq"`},
		"no digest":      {"apiVersion: argoproj.io/v1alpha1\nkind: Application\nspec: {source: {repoURL: CHARTS, chart: db, targetRevision: 0.1.0}}\n", `the repository gives no digest for version 0.1.0`},
		"a HelmRepository that is elsewhere": {
			"apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: h}\nspec: {chart: {spec: {chart: db, sourceRef: {kind: HelmRepository, name: r}}}}\n",
			`HelmRelease "h": the HelmRepository "r" is not among the rendered objects`,
		},
		"a bucket":    {"apiVersion: source.toolkit.fluxcd.io/v1\nkind: Bucket\nspec: {endpoint: x}\n", "a Bucket has no revision to name"},
		"broken YAML": {"image: b\n c: d\n", "reconciler.yaml: yaml: line 2"},
	} {
		t.Run(name, func(t *testing.T) {
			fill := strings.NewReplacer("GITURL", s.git, "HOST", s.registry, "CHARTS", s.charts).Replace
			good := rendered(fluxGit(s.git, "branch: main"))
			good.Name = "app-t0"
			ct := pinned(t, sources.Options{}, good, rendered(fill(c.file)))
			require.Len(t, ct.Assignments, 1, "the others are pinned all the same")
			require.Len(t, ct.Failures, 1)
			require.Equal(t, "app-t1", ct.Failures[0].Name)
			require.Equal(t, scheduler.PinFailed, ct.Failures[0].Reason)
			require.Contains(t, ct.Failures[0].Err.Error(), fill(c.want))
		})
	}
	t.Run("a repository that only a playbook names", func(t *testing.T) {
		a := rendered("- hosts: all\n  tasks:\n  - command: ansible-pull -U " + s.git + " -C main\n")
		a.Manifests = map[string]string{"repo": s.git, "branch": "main"}
		require.ErrorContains(t, pinned(t, sources.Options{}, a).Failures[0].Err, "manifests.repo of the workload: the rendered files name "+s.git+" where no commit can be written")
	})
}

// A target that names a whole commit is pinned by its author, wherever the files repeat it.
func TestPinTakesAWholeCommitThatATargetNames(t *testing.T) {
	s := newSources(t)
	commit := gittest.CommitFiles(t, s.repo, "main", map[string]string{"a.yaml": "1"})
	playbook := "- hosts: all\n  tasks:\n  - ansible.builtin.git: {repo: " + s.git + ", version: " + commit + ", dest: /srv}\n"
	for name, manifests := range map[string]map[string]string{
		"as a commit":             {"repo": s.git, "commit": commit},
		"as a commit of a branch": {"repo": s.git, "branch": "main", "commit": commit},
		"as a branch":             {"repo": s.git, "branch": commit},
	} {
		t.Run(name, func(t *testing.T) {
			a := rendered(playbook)
			a.Manifests = manifests
			ct := pinned(t, sources.Options{}, a)
			require.Empty(t, ct.Failures)
			require.Equal(t, playbook, string(ct.Assignments[0].Files[1].Data))
			require.Len(t, ct.Assignments[0].Pinned, 1)
		})
	}
	t.Run("and Flux asks for no branch", func(t *testing.T) {
		require.Empty(t, pinned(t, sources.Options{}, rendered(fluxGit(s.git, "commit: "+commit))).Failures)
	})
}

func TestPinGivesUpOnServersThatHang(t *testing.T) {
	t.Parallel()
	hang := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(hang.Close)
	t.Cleanup(hang.CloseClientConnections)
	ct := pinned(t, sources.Options{Timeout: 50 * time.Millisecond}, rendered(fluxGit(hang.URL+"/x", "branch: main")))
	require.ErrorContains(t, ct.Failures[0].Err, "no complete answer within 50ms")

	var many []scheduler.Assignment
	for i := range 4 * sources.MaxAtOnce {
		a := rendered(fluxGit(fmt.Sprintf("%s/%d", hang.URL, i), "branch: main"))
		a.Name = fmt.Sprint(i)
		many = append(many, a)
	}
	ct = pinned(t, sources.Options{Timeout: 50 * time.Millisecond}, many...)
	require.Len(t, ct.Failures, len(many))
	waited := 0
	for _, f := range ct.Failures {
		if strings.Contains(f.Err.Error(), "within 50ms") {
			waited++
		} else {
			require.Regexp(t, "127.0.0.1 has not answered (in time )?before", f.Err.Error())
		}
	}
	require.LessOrEqual(t, waited, 2*sources.MaxAtOnce, "a host is not waited for again and again")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	result := &scheduler.Result{ClusterTypes: []scheduler.ClusterTypeResult{{
		Assignments: []scheduler.Assignment{rendered(fluxGit(hang.URL+"/x", "branch: main"))}, Annotations: map[string]string{scheduler.PinAnnotation: scheduler.PinCommit},
	}}}
	require.ErrorIs(t, pin(ctx, result, sources.Options{}), context.Canceled)
}

func TestWithoutPinNothingIsAsked(t *testing.T) {
	file := fluxGit("https://nobody.invalid/app", "branch: main")
	result := &scheduler.Result{ClusterTypes: []scheduler.ClusterTypeResult{{Name: "edge", Assignments: []scheduler.Assignment{rendered(file)}}}}
	require.NoError(t, pin(t.Context(), result, sources.Options{}))
	require.Equal(t, []scheduler.Assignment{rendered(file)}, result.ClusterTypes[0].Assignments)
}

func TestAVersionIsWhatTheWorkloadSays(t *testing.T) {
	t.Parallel()
	s := newSources(t)
	const described = "apiVersion: hub.kalypso.io/v1alpha1\nkind: DeploymentDescriptor\nspec:\n  workload: {name: app, application: {name: shop}}\n  deploymentTarget: {name: TARGET}\n  workloadVersion: {version: VERSION}\n"
	descriptor := func(target, version string) string {
		return strings.NewReplacer("TARGET", target, "VERSION", version).Replace(described)
	}
	sha := gittest.CommitFiles(t, s.repo, "main", map[string]string{
		"one/deploy.yaml": "kind: X\n---\n" + descriptor("other", "1.0.0"), "several/a.yaml": descriptor("t0", "0.1") + "---\n" + descriptor("t1", "1.10"),
		"none/a.yaml": "{{ DeploymentDescriptor }}", "odd/a.yaml": descriptor("t1", `"a\nb"`),
		"foreign/a.yaml": strings.ReplaceAll(descriptor("t1", "3.0.0"), "hub.kalypso.io", "example.com"),
		"below/x/a.yaml": descriptor("other", "1.0.0"), "deep/x/a.yaml": descriptor("t1", "5.0.0"),
		"others/a.yaml":    descriptor("t0", "0.1") + "---\n" + descriptor("t2", "0.2"),
		"chart/Chart.yaml": "{name: web, version: 1.2.3, appVersion: '7.1'}", "chart/templates/a.yaml": podOf("shop:9"), "old/Chart.yaml": "{name: web, version: 1.2.3}",
		"labels/a.yaml": labelled("2.4.1") + "---\n" + labelled("2.4.1") + "---\n" + podOf("shop:9"), "unlike/a.yaml": labelled("1.0") + "---\n" + labelled("2.0"),
		"tag/a.yaml": podOf("shop:2.4") + "---\n" + podOf("shop:2.4@"+someDigest), "two/a.yaml": podOf("shop:2.4") + "---\n" + podOf("cart:2.4"), "tags/a.yaml": podOf("shop:1") + "---\n" + podOf("shop:2"),
		"latest/a.yaml": podOf("shop"), "commit/a.yaml": podOf("shop:" + strings.Repeat("3f2a9c1d", 5)), "unknown/a.yaml": podOf("shop:1") + "---\n" + podOf("${IMAGE}"),
		"new/a.yaml": podOf("shop:1"), "new/kustomization.yaml": "resources: [a.yaml]\nimages: [{name: shop, newTag: '5.1'}]\n",
	})
	for path, want := range map[string][2]string{
		"./one": {"1.0.0", "shop"}, "several": {"1.10", "shop"}, "none": {sha[:12], ""}, "odd": {sha[:12], "shop"}, "foreign": {sha[:12], ""},
		"others": {sha[:12], ""}, "below": {sha[:12], ""}, "deep": {"5.0.0", "shop"}, "missing": {sha[:12], ""}, "../..": {sha[:12], ""},
		"chart": {"7.1", ""}, "old": {"1.2.3", ""}, "labels": {"2.4.1", ""}, "unlike": {sha[:12], ""}, "tag": {"2.4", ""}, "two": {sha[:12], ""}, "tags": {sha[:12], ""},
		"latest": {sha[:12], ""}, "commit": {sha[:12], ""}, "unknown": {sha[:12], ""}, "new": {"5.1", ""},
	} {
		t.Run(path, func(t *testing.T) {
			a := rendered(fluxGit(s.git, "branch: main"))
			a.Manifests = map[string]string{"repo": s.git, "branch": "main", "path": path}
			ct := pinned(t, sources.Options{}, a)
			require.Empty(t, ct.Failures)
			require.Equal(t, want, [2]string{ct.Assignments[0].Version, ct.Assignments[0].Application})
		})
	}
}

func podOf(image string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: '" + image + "'}]}\n"
}

func labelled(version string) string {
	return "apiVersion: v1\nkind: Service\nmetadata: {name: s, labels: {app.kubernetes.io/version: '" + version + "'}}\n"
}

func TestManifestsThatWereFetchedAreListedToo(t *testing.T) {
	t.Parallel()
	s := newSources(t)
	pod := func(image string) string {
		return "apiVersion: v1\nkind: Pod\nspec: {containers: [{image: '" + image + "'}]}\n"
	}
	sha := gittest.CommitFiles(t, s.repo, "main", map[string]string{
		"live/a.yaml": pod("app"), "live/deep/b.yaml": pod("ghcr.io/b@"+someDigest) + "---\n" + pod("nginx:1"), "live/chart.yaml": "image: {{ .Values.image }}\n",
		"live/kustomization.yaml": "images: [{name: app, newName: ghcr.io/team/app, newTag: v7}, {name: nginx, digest: " + someDigest + "}, {name: '!'}]\n",
		"other/a.yaml":            pod("busybox"),
	})
	a := rendered(fluxGit(s.git, "branch: main"))
	a.Manifests = map[string]string{"repo": s.git, "branch": "main", "path": "live"}
	ct := pinned(t, sources.Options{}, a)
	require.Empty(t, ct.Failures)
	require.NoError(t, CheckPinned(ct), "what an app team's manifests name does not keep it from being published")
	require.Equal(t, strings.Join([]string{
		"git " + strings.TrimPrefix(s.git, "http://") + " " + s.git + "#main sha1:" + sha,
		"image docker.io/library/nginx docker.io/library/nginx@" + someDigest + " " + someDigest,
		"image ghcr.io/b ghcr.io/b@" + someDigest + " " + someDigest,
		"image ghcr.io/team/app ghcr.io/team/app:v7 unresolved",
	}, "\n"), listOf(ct.Assignments[0]))

	big := strings.Repeat("# "+strings.Repeat("x", 1000)+"\n", 1000)
	files := map[string]string{"small/a.yaml": "a: b\n"}
	for i := range 40 {
		files["big/"+strings.Repeat("i", i+1)+".yaml"] = big
	}
	gittest.CommitFiles(t, s.repo, "main", files)
	a.Manifests["path"] = "big"
	require.ErrorContains(t, pinned(t, sources.Options{}, a).Failures[0].Err, `too large: the YAML files in folder "big" hold more than 33554432 bytes`)
}

func TestMirrorsStandInForURLs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sha := gittest.CommitFiles(t, filepath.Join(dir, "app.git"), "main", map[string]string{"a.yaml": "1"})
	ct := pinned(t, sources.Options{Mirrors: map[string]string{"https://example.com/org": dir}}, rendered(fluxGit("https://example.com/org/app.git", "branch: main")))
	require.Empty(t, ct.Failures)
	require.True(t, bytes.Contains(ct.Assignments[0].Files[1].Data, []byte(sha)))
}
