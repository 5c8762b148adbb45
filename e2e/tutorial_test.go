//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/e2e/harness"
	hubfleet "github.com/wherry-dev/wherry/hub/fleet"
)

const (
	casesEnv      = "WHERRY_CASES"
	functional    = "hello-world-app-functional-test"
	performance   = "hello-world-app-performance-test"
	observability = "observability-prometheus"
)

// places are the namespaces of the tutorial's assignments.
var places = map[string]string{
	functional: "dev-drone-" + functional, performance: "dev-station-" + performance, observability: "dev-station-" + observability,
}

// tutorial is docs/tutorial.md in a shell.
type tutorial struct {
	*page
	hub string // its URL
}

// newTutorial has a git server for the reader, and for Kalypso's repositories where the cases hold them. Else
// they are cloned from where they are.
func newTutorial(t *testing.T) *tutorial {
	t.Helper()
	require.NoError(t, cluster.StartFlux(t.Context(), fluxNamespace))
	git, err := harness.StartGit()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, git.Stop()) })
	require.NoError(t, git.Create(t.Context(), "app-gitops"))
	c, err := client.New(cluster.Config, client.Options{})
	require.NoError(t, err)
	dir := t.TempDir()
	config := "[user]\nname = you\nemail = you@example.com\n" +
		"[credential]\nhelper = \"!f() { echo username=" + harness.GitUser + "; echo 'password=" + harness.GitPassword + "'; }; f\"\n"
	if cases := os.Getenv(casesEnv); cases != "" {
		serveKalypso(t, git, filepath.Join(cases, "kalypso"))
		config += "[url \"" + git.URL + "/\"]\ninsteadOf = https://github.com/\n"
	} else {
		t.Logf("%s names no folder with Kalypso's cases: its repositories are cloned from github.com", casesEnv)
	}
	gitconfig := filepath.Join(dir, "gitconfig")
	require.NoError(t, os.WriteFile(gitconfig, []byte(config), 0o600))
	kubectl, err := harness.Tool("kubectl")
	require.NoError(t, err)
	registry, err := harness.FreeAddress()
	require.NoError(t, err)
	hub, err := harness.FreeAddress()
	require.NoError(t, err)
	names := strings.NewReplacer(
		"https://git.example.com/you/app-gitops", git.URL+"/app-gitops",
		"GIT_USER=you", "GIT_USER="+harness.GitUser, "GIT_TOKEN=secret", "GIT_TOKEN='"+harness.GitPassword+"'",
		"127.0.0.1:5000", registry, "127.0.0.1:8080", hub,
		"--wait 1m", "--wait 5m", "--timeout 2m", "--timeout 5m", // which this machine may need where it is busy
	)
	p := openPage(&site{Client: c, t: t, dir: dir}, "tutorial.md", names, []string{
		"PATH=" + os.Getenv(harness.ProgramsEnv) + ":" + filepath.Dir(kubectl) + ":" + os.Getenv("PATH"),
		"HOME=" + dir, "KUBECONFIG=" + cluster.Kubeconfig,
		"GIT_CONFIG_GLOBAL=" + gitconfig, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
	})
	return &tutorial{p, "http://" + hub}
}

// serveKalypso commits what the cases hold of Kalypso's repositories.
func serveKalypso(t *testing.T, git *harness.Git, cases string) {
	t.Helper()
	for _, r := range []struct{ repository, branch, in, from string }{
		{"microsoft/kalypso-control-plane", "main", ".", "microsoft/main"},
		{"microsoft/kalypso-control-plane", "dev", ".", "microsoft/dev"},
		{"microsoft/kalypso-svc-src", "main", "workloads", "workloads/observability"},
		{"microsoft/kalypso-app-src", "main", "workload", "workloads/hello-world-app"},
	} {
		files, from := map[string]string{}, os.DirFS(filepath.Join(cases, r.from))
		require.NoError(t, fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := fs.ReadFile(from, name)
			files[r.in+"/"+name] = string(data)
			return err
		}), "%s=%s", casesEnv, os.Getenv(casesEnv))
		_, err := git.Commit(t.Context(), r.repository, r.branch, files)
		require.NoError(t, err)
	}
}

// Kalypso's tutorial, "Explore workload management in a multi-cluster environment with GitOps", with its own
// files and Flux's own controllers.
func TestThePageWithKalypsosTutorial(t *testing.T) {
	t.Parallel()
	p := newTutorial(t)
	t.Cleanup(p.clearTutorial)
	p.follow("What you need")
	p.follow("The repositories")
	p.requireKalypsosFiles()
	first := p.head()

	p.follow("Publish")
	p.follow("A drone")
	require.Equal(t, "hello", p.data(functional, "greeting")["text"])
	require.Equal(t, "Dev", p.data(functional, "platform-config")["ENVIRONMENT"])
	drone := p.deployments()[functional]
	require.Equal(t, "flux", drone.Adapter)
	require.Equal(t, "drone-1", drone.Cluster)
	require.Equal(t, first, drone.Revision)
	require.True(t, drone.Floating)

	p.follow("A platform value")
	require.Equal(t, "Quadcopter", p.data(functional, "platform-config")["CLUSTER_NAME"])
	require.NotEqual(t, drone.Release, p.deployments()[functional].Release)

	p.follow("A cluster type")
	require.Equal(t, "hello", p.data(performance, "greeting")["text"])
	require.Equal(t, "Ground station", p.data(performance, "platform-config")["CLUSTER_NAME"])
	require.Len(t, p.deployments(), 3)
	require.Equal(t, first, p.deployments()[performance].Revision)

	before := p.deployments()[functional]
	p.follow("A version of the application")
	second := p.head()
	require.NotEqual(t, first, second)
	welcomed := p.deployments()[functional]
	require.Equal(t, second, welcomed.Revision)
	require.Equal(t, before.Release, welcomed.Release)

	p.follow("A version that fails")
	require.NotEqual(t, second, p.head())
	failed := p.deployments()[functional]
	require.Equal(t, bundle.Failed, failed.State)
	require.Equal(t, "BuildFailed", failed.Reason)
	require.Contains(t, failed.Message, "missing metadata.name")
	require.Equal(t, second, failed.Revision, "what runs is the last good version")
	require.Equal(t, "welcome", p.data(functional, "greeting")["text"])
	require.Equal(t, bundle.Compliant, p.deployments()[performance].State)

	p.follow("A target removed")
	require.NotContains(t, p.deployments(), functional)
	p.requireRemoved(functional)

	p.follow("Clean up")
	p.requireRemoved(performance)
	p.requireRemoved(observability)
	require.Empty(t, p.sections, "sections that nobody has followed")
}

// requireKalypsosFiles requires that what the page has the reader write means what Kalypso's tutorial says.
func (p *tutorial) requireKalypsosFiles() {
	cases := os.Getenv(casesEnv)
	if cases == "" {
		return
	}
	for name, original := range map[string]string{
		"base/workloads/hello-world-app.yaml":              "common/hello-world-app.yaml",
		"platform/scheduling/functional-test-policy.yaml":  "dev/functional-test-policy.yaml",
		"platform/scheduling/performance-test-policy.yaml": "dev/performance-test-policy.yaml",
	} {
		written, err := os.ReadFile(p.path("tutorial/" + name))
		require.NoError(p.t, err)
		want, err := os.ReadFile(filepath.Join(cases, "kalypso", "tutorial", original))
		require.NoError(p.t, err)
		require.YAMLEq(p.t, string(want), string(written))
	}
}

// head is what Flux calls the newest commit of the manifests.
func (p *tutorial) head() string {
	p.t.Helper()
	return "dev@sha1:" + strings.TrimSpace(execute(p.t, p.path("tutorial/manifests"), "git", "rev-parse", "dev").stdout)
}

// deployments is what the hub knows, by assignment.
func (p *tutorial) deployments() map[string]hubfleet.Deployment {
	p.t.Helper()
	r := p.wherry("get", "deployments", "--hub", p.hub, "--token-file", p.path("tutorial/hub/admin.token"), "-o", "json")
	require.Zero(p.t, r.code, r.stderr)
	var list hubfleet.Deployments
	require.NoError(p.t, json.Unmarshal([]byte(r.stdout), &list))
	deployments := map[string]hubfleet.Deployment{}
	for _, d := range list.Deployments {
		deployments[d.Assignment] = d
	}
	return deployments
}

// data is that of a ConfigMap that an assignment has brought.
func (p *tutorial) data(assignment, name string) map[string]string {
	p.t.Helper()
	var cm corev1.ConfigMap
	p.read(places[assignment], name, &cm)
	return cm.Data
}

// brought is what the tutorial puts on the cluster for an assignment, that which has the rest removed first.
func brought(assignment string) []client.Object {
	return []client.Object{
		fluxObject("Kustomization", assignment), fluxObject("GitRepository", assignment),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: places[assignment]}},
	}
}

func (p *tutorial) requireRemoved(assignment string) {
	p.t.Helper()
	for _, o := range brought(assignment) {
		p.gone(o.GetNamespace(), o.GetName(), o)
	}
}

// clearTutorial deletes what a failed test has left, so that a cluster that was given is left as it was found.
func (p *tutorial) clearTutorial() {
	for assignment := range places {
		for _, o := range brought(assignment) {
			require.NoError(p.t, client.IgnoreNotFound(p.Delete(context.Background(), o))) // the test's own context has ended
		}
	}
}
