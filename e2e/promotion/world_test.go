//go:build e2e

package promotion

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/child/childtest"
	"github.com/wherry-dev/wherry/e2e/harness"
	"github.com/wherry-dev/wherry/publisher/gittest"
)

// site is a cluster with its agent, whose adapter is directory.
type site struct {
	name, environment, ring string
	// offline is never heard of; medium reports by files alone.
	offline, medium bool
	key             string // the public half of its report key, in PEM
	status          agent.Status
	parts           map[string][]string // that it runs, by workload
}

// sites are ten: a tenth of them is offline throughout.
func sites() []*site {
	return []*site{
		{name: "dev-1", environment: "dev"},
		{name: "dev-2", environment: "dev"},
		{name: "stage-1", environment: "stage"},
		{name: "stage-2", environment: "stage"},
		{name: "stage-3", environment: "stage", medium: true},
		{name: "prod-1", environment: "prod", ring: "canary"},
		{name: "prod-2", environment: "prod", ring: "canary"},
		{name: "prod-3", environment: "prod", ring: "early"},
		{name: "prod-4", environment: "prod", ring: "stable"},
		{name: "prod-5", environment: "prod", ring: "stable", offline: true},
	}
}

// world is all parts of one run of the story.
type world struct {
	t     *testing.T
	dir   string
	to    string // the registry's location, by way of the gate below
	sites []*site
	hub   string // its URL; empty without one

	platform, apps string // repositories
	main           map[string]string
	images         map[string]string // digests of cart's image, by its text
	oracle         oracle

	// What a command that is to be killed writes passes here.
	mu     sync.Mutex
	victim *os.Process
	writes int // two places for each: before and after it
	killAt int

	commands int // that were killed
}

const password = "secret"

func newWorld(t *testing.T) *world {
	t.Helper()
	require.NotEmpty(t, os.Getenv(harness.ProgramsEnv), `%s is not set: run "make e2e"`, harness.ProgramsEnv)
	w := &world{t: t, dir: t.TempDir(), sites: sites()}
	registry, err := harness.StartRegistry(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, registry.Stop()) })
	host, prefix, _ := strings.Cut(registry.Prefix, "/")
	if prefix != "" {
		prefix += "/"
	}
	proxy := httptest.NewServer(w.counting(httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: host})))
	t.Cleanup(proxy.Close)
	w.to = "oci://" + strings.TrimPrefix(proxy.URL, "http://") + "/" + prefix + "story-" + strings.ToLower(rand.Text())
	w.must("keys", "generate", "-o", w.path("release"))
	w.oracle = newOracle(t, w.to, w.path("release.pub"))
	w.makeRepositories(proxy.URL)
	return w
}

func (w *world) path(elem ...string) string {
	return filepath.Join(append([]string{w.dir}, elem...)...)
}

// counting has each write pass a place before and one after it, where the command is killed whose turn it is. Git asks too,
// by hooks.
func (w *world) counting(registry http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/git-hook/") {
			w.pass()
			return
		}
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			registry.ServeHTTP(rw, r)
			return
		}
		if w.pass() {
			panic(http.ErrAbortHandler) // it has never come
		}
		registry.ServeHTTP(rw, r)
		w.pass()
	})
}

// pass counts a place, and reports whether the command was killed there.
func (w *world) pass() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.victim == nil {
		return false
	}
	w.writes++
	if w.writes != w.killAt {
		return false
	}
	_ = w.victim.Kill() // it may have ended
	return true
}

// ran is what a program left behind.
type ran struct {
	code           int // -1 if it was killed
	stdout, stderr string
}

// run runs wherry, and kills it at a place of its writes; zero kills nothing.
func (w *world) run(killAt int, args ...string) ran {
	w.t.Helper()
	return w.program("wherry", killAt, args...)
}

func (w *world) program(name string, killAt int, args ...string) ran {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), filepath.Join(os.Getenv(harness.ProgramsEnv), name), args...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = w.dir, &stdout, &stderr
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "WHERRY_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "COSIGN_PASSWORD="+password, "HOME="+w.dir, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Robot", "GIT_AUTHOR_EMAIL=robot@example.com", "GIT_COMMITTER_NAME=Robot", "GIT_COMMITTER_EMAIL=robot@example.com")
	if w.to != "" && name == "wherry" { // the agent's has other meanings
		cmd.Env = append(cmd.Env, "WHERRY_REGISTRY="+w.to, "WHERRY_SIGN_WITH="+w.path("release.key"), "WHERRY_KEY="+w.path("release.pub"))
	}
	require.NoError(w.t, cmd.Start())
	w.mu.Lock()
	w.writes, w.killAt = 0, killAt
	if killAt > 0 {
		w.victim = cmd.Process
	}
	w.mu.Unlock()
	err := cmd.Wait()
	w.mu.Lock()
	w.victim = nil
	w.mu.Unlock()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(w.t, err)
	}
	return ran{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// must runs wherry, which has to end well, and returns its output.
func (w *world) must(args ...string) string {
	w.t.Helper()
	return w.exits(0, args...)
}

// exits runs wherry, which has to end with an exit code, and returns all that it said.
func (w *world) exits(code int, args ...string) string {
	w.t.Helper()
	r := w.run(0, args...)
	require.Equal(w.t, code, r.code, "wherry %s\n%s%s", strings.Join(args, " "), r.stdout, r.stderr)
	if code == 0 {
		return r.stdout
	}
	return r.stdout + r.stderr
}

// killed runs wherry again and again, and kills it at a further place each time, until it ends by itself, with that exit code.
// The oracle looks after each run. Between two places that are tried lie every-1 others.
func (w *world) killed(every, code int, args ...string) {
	w.t.Helper()
	w.killedUntil(every, []int{code}, args...)
}

// killedUntil is killed for a command that may end with one of several codes.
func (w *world) killedUntil(every int, codes []int, args ...string) {
	w.t.Helper()
	kills := 0
	w.commands++ // each begins at another place
	for at := 1 + (5*w.commands)%every; ; at += every {
		r := w.run(at, args...)
		w.oracle.check()
		if r.code >= 0 {
			require.Contains(w.t, codes, r.code, "after %d kills: wherry %s\n%s%s", kills, strings.Join(args, " "), r.stdout, r.stderr)
			w.t.Logf("wherry %s: %d kills", strings.TrimSuffix(strings.Join(args[:2], " "), " "+w.platform), kills)
			return
		}
		kills++
		require.Less(w.t, kills, 500, "it never ends: wherry %s", strings.Join(args, " "))
	}
}

const environmentObject = `apiVersion: scheduler.kalypso.io/v1alpha1
kind: Environment
metadata: {name: %[1]s}
spec: {controlPlane: {repo: "%[2]s", branch: %[1]s, path: .}}
`

// platformObjects are those of main, with what changes in the release.
const platformObjects = `apiVersion: wherry.dev/v1alpha1
kind: Platform
metadata: {name: edge}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: reconciler}
spec:
  type: reconciler
  manifests:
    - |
      {apiVersion: v1, kind: ConfigMap, metadata: {name: '{{ .Workload }}', namespace: '{{ .Namespace }}'}, data: {release: %q}}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: namespace}
spec: {type: namespace, manifests: ["{apiVersion: v1, kind: Namespace, metadata: {name: '{{ .Namespace }}'}}\n"]}
`

const policyObject = `apiVersion: wherry.dev/v1alpha1
kind: PromotionPolicy
metadata: {name: edge}
spec:
  chain: [dev, stage, prod]
  environments:
    - name: stage
      gate: {minReported: 100}
    - name: prod
      rings: [canary, early, stable]
      gate: {minReported: 100}
      ringGate: {minReported: 50}
`

const registrationObject = `apiVersion: scheduler.kalypso.io/v1alpha1
kind: WorkloadRegistration
metadata: {name: %[2]s}
spec: {workload: {repo: "%[1]s", branch: main, path: ./%[2]s}, workspace: team}
`

const workloadObject = `apiVersion: scheduler.kalypso.io/v1alpha1
kind: Workload
metadata: {name: %[1]s}
spec:
  deploymentTargets:
    - {name: d, environment: dev, manifests: {repo: "https://example.invalid/m", commit: c0ffee6789012345678901234567890123456789, path: ./%[1]s}}
    - {name: s, environment: stage, manifests: {repo: "https://example.invalid/m", commit: c0ffee6789012345678901234567890123456789, path: ./%[1]s}}
    - {name: p, environment: prod, manifests: {repo: "https://example.invalid/m", commit: c0ffee6789012345678901234567890123456789, path: ./%[1]s}}
`

const environmentObjects = `apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata: {name: box}
spec: {reconciler: reconciler, namespaceService: namespace}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: SchedulingPolicy
metadata: {name: all}
`

const baseObject = `apiVersion: scheduler.kalypso.io/v1alpha1
kind: BaseRepo
metadata: {name: main}
spec:
  repo: %q
  branch: main
  path: .
  commit: %s
`

// makeRepositories makes the platform's repository, with a branch for each environment, and the one of the application teams.
func (w *world) makeRepositories(hooks string) {
	w.platform, w.apps = w.path("platform.git"), w.path("apps.git")
	apps := map[string]string{}
	for _, name := range []string{"web", "audit", "trace"} {
		apps[name+"/workload.yaml"] = fmt.Sprintf(workloadObject, name)
	}
	gittest.CommitFiles(w.t, w.apps, "main", apps)

	w.main = map[string]string{"policy.yaml": policyObject, "web.yaml": fmt.Sprintf(registrationObject, w.apps, "web")}
	for _, name := range []string{"dev", "stage", "prod"} {
		w.main[".environments/"+name+".yaml"] = fmt.Sprintf(environmentObject, name, w.platform)
	}
	first := w.change("one")
	for _, name := range []string{"dev", "stage", "prod"} {
		gittest.CommitFiles(w.t, w.platform, name, w.environmentFiles(name, first))
	}
	for _, hook := range []string{"pre-receive", "post-receive"} {
		script := fmt.Sprintf("#!/bin/bash\nexec 3<>/dev/tcp/%s\nprintf 'GET /git-hook/%s HTTP/1.0\\r\\n\\r\\n' >&3\ncat <&3 >/dev/null\n",
			strings.Replace(strings.TrimPrefix(hooks, "http://"), ":", "/", 1), hook)
		require.NoError(w.t, os.MkdirAll(filepath.Join(w.platform, "hooks"), 0o755))
		childtest.WriteProgram(w.t, filepath.Join(w.platform, "hooks", hook), script)
	}
	w.oracle.begin(first)
}

func (w *world) environmentFiles(name, commit string) map[string]string {
	files := map[string]string{"objects.yaml": environmentObjects, "base-repo.yaml": fmt.Sprintf(baseObject, w.platform, commit)}
	for _, s := range w.sites {
		if s.environment == name && s.key != "" {
			files["clusters/"+s.name+".yaml"] = s.object()
		}
	}
	return files
}

// object is the Cluster object of a site.
func (s *site) object() string {
	spec := map[string]any{"clusterType": "box", "uid": s.name, "publicKey": s.key}
	if s.ring != "" {
		spec["ring"] = s.ring
	}
	data, err := json.Marshal(map[string]any{"apiVersion": "wherry.dev/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": s.name}, "spec": spec})
	if err != nil {
		panic(err)
	}
	return string(data) + "\n"
}

// change commits another state to main, and returns the commit.
func (w *world) change(release string, workloads ...string) string {
	w.t.Helper()
	files := maps.Clone(w.main)
	files["objects.yaml"] = fmt.Sprintf(platformObjects, release)
	for _, name := range workloads {
		files[name+".yaml"] = fmt.Sprintf(registrationObject, w.apps, name)
	}
	return gittest.CommitFiles(w.t, w.platform, "main", files)
}

// of returns the sites of an environment that are not offline; all of them for an empty name.
func (w *world) of(environment string, rings ...string) (all []*site) {
	for _, s := range w.sites {
		if !s.offline && (environment == "" || s.environment == environment) && (len(rings) == 0 || slices.Contains(rings, s.ring)) {
			all = append(all, s)
		}
	}
	return all
}

// visit has the agents of sites make a pass each, after which the oracle knows what they have proved.
func (w *world) visit(all ...*site) {
	w.t.Helper()
	for _, s := range all {
		r := w.program("wherry-agent", 0, append(w.agentArgs(s), "-o", "json")...)
		require.NotEqual(w.t, 2, r.code, r.stderr)
		s.status = agent.Status{}
		require.NoError(w.t, json.Unmarshal([]byte(r.stdout), &s.status), "%s%s", r.stdout, r.stderr)
		s.parts = map[string][]string{}
		for _, workload := range delivered {
			s.parts[workload] = w.parts(s, workload)
		}
		if s.medium {
			w.carry(s)
		}
	}
	w.oracle.learn(w.sites)
}

func (w *world) agentArgs(s *site) []string {
	args := []string{
		"once", "--config", "", "--registry", w.to, "--platform", "edge", "--environment", s.environment, "--cluster-type", "box", "--key", w.path("release.pub"),
		"--state-dir", w.path(s.name, "state"), "--adapter", "directory", "--directory-root", w.root(s), "--cluster-name", s.name, "--cluster-uid", s.name,
	}
	if s.ring != "" {
		args = append(args, "--ring", s.ring)
	}
	switch {
	case s.medium:
	case w.hub != "":
		args = append(args, "--hub", w.hub, "--hub-key", w.path("hub", "hub.pub"))
	default:
		args = append(args, "--report-registry", w.to, "--ack-mode", "stored")
	}
	return args
}

// root is the folder that a site's assignments are applied to.
func (w *world) root(s *site) string { return w.path(s.name, "root") }

// carry brings the reports of a site on a medium: to the hub, or to a file that gates are given.
func (w *world) carry(s *site) {
	w.t.Helper()
	file := w.path(s.name + ".tar")
	require.NoError(w.t, os.RemoveAll(file))
	r := w.program("wherry-agent", 0, "reports", "export", "--state-dir", w.path(s.name, "state"), "-o", file)
	require.Zero(w.t, r.code, r.stderr)
	if w.hub != "" {
		w.must("hub", "import", "--data", w.path("hub"), file)
	}
}

// introduce has each agent make its key, and the roster of each environment get it.
func (w *world) introduce(first string) {
	w.t.Helper()
	for _, s := range w.sites {
		r := w.program("wherry-agent", 0, append(w.agentArgs(s), "-o", "json")...)
		require.NoError(w.t, json.Unmarshal([]byte(r.stdout), &s.status), "%s%s", r.stdout, r.stderr)
		s.key = s.status.ReportKey
		require.NotEmpty(w.t, s.key)
	}
	for _, name := range []string{"dev", "stage", "prod"} {
		gittest.CommitFiles(w.t, w.platform, name, w.environmentFiles(name, first))
	}
}

// occupy puts somebody else's files where an assignment is to be applied at a site, so that it fails there.
func (w *world) occupy(s *site, assignment string) (mend func()) {
	folder := filepath.Join(w.root(s), assignment)
	require.NoError(w.t, os.MkdirAll(folder, 0o755))
	require.NoError(w.t, os.WriteFile(filepath.Join(folder, "theirs"), []byte("of somebody else\n"), 0o644))
	return func() { require.NoError(w.t, os.RemoveAll(folder)) }
}

// has returns what is applied of a workload at a site; empty if nothing is.
func (w *world) has(s *site, workload string) string {
	found, err := filepath.Glob(filepath.Join(w.root(s), workload+"-*", "reconciler.yaml"))
	require.NoError(w.t, err)
	if len(found) == 0 {
		return ""
	}
	data, err := os.ReadFile(found[0])
	require.NoError(w.t, err)
	return string(data)
}

// commit makes files the content of a branch of the platform.
func (w *world) commit(branch string, files map[string]string) string {
	w.t.Helper()
	return gittest.CommitFiles(w.t, w.platform, branch, files)
}

// newestOf returns the newest commit of a branch of the platform.
func (w *world) newestOf(branch string) string {
	w.t.Helper()
	out, err := exec.Command("git", "-C", w.platform, "rev-parse", branch).Output()
	require.NoError(w.t, err)
	return strings.TrimSpace(string(out))
}

// newest returns the newest record of an environment.
func (w *world) newest(environment string) bundle.EnvironmentRecord {
	w.t.Helper()
	repository, err := w.oracle.store.Repository(bundle.EnvironmentRepository(environment))
	require.NoError(w.t, err)
	desc, err := repository.Resolve(w.t.Context(), bundle.LatestTag)
	require.NoError(w.t, err)
	v, err := bundle.VerifyEnvironment(w.t.Context(), repository, desc, w.oracle.trust)
	require.NoError(w.t, err)
	return v.Record
}

// compliant reports whether all was well at a site by its last pass.
func (s *site) compliant() bool { return s.status.State == bundle.Compliant }
