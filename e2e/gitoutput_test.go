//go:build e2e

package e2e

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-dev/wherry/e2e/harness"
)

// gitOutput is a repository that "wherry render --to-git" commits to.
type gitOutput struct {
	*site
	git *harness.Git
}

func newGitOutput(t *testing.T) gitOutput {
	t.Helper()
	git, err := harness.StartGit()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, git.Stop()) })
	g := gitOutput{newSite(t), git}
	require.NoError(t, git.Create(t.Context(), g.environment))
	return g
}

// url is that of the repository.
func (g gitOutput) url() string { return g.git.URL + "/" + g.environment }

// render commits the platform as it is now to the branch dev, and returns the commit.
func (g gitOutput) render() string {
	g.t.Helper()
	login := "://" + url.UserPassword(harness.GitUser, harness.GitPassword).String() + "@"
	r := g.wherry("render", "platform", "--environment", g.environment, "--workload", "shop=workloads/shop",
		"--to-git", strings.Replace(g.url(), "://", login, 1)+"#dev", "--direct")
	require.Zero(g.t, r.code, r.stderr)
	require.NotContains(g.t, r.stderr, "repositories")
	return strings.TrimSpace(r.stdout)
}

// Stock Flux reads the branch that wherry commits to, without an agent.
func TestFluxReadsTheRenderedBranch(t *testing.T) {
	t.Parallel()
	g := newGitOutput(t)
	require.NoError(t, cluster.StartFlux(t.Context(), fluxNamespace))
	t.Cleanup(g.clearFlux)
	first := g.render()
	require.Equal(t, first, g.render(), "the second run does nothing")
	g.ensure(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: fluxNamespace, Name: "repo-secret"},
		StringData: map[string]string{"username": harness.GitUser, "password": harness.GitPassword},
	})
	source, apply := fluxObject("GitRepository", g.environment), fluxObject("Kustomization", g.environment)
	source.Object["spec"] = map[string]any{
		"url": g.url(), "interval": "1s", "ref": map[string]any{"branch": "dev"}, "secretRef": map[string]any{"name": "repo-secret"},
	}
	apply.Object["spec"] = map[string]any{
		"interval": "1m", "prune": true, "path": "./" + clusterType, "sourceRef": map[string]any{"kind": "GitRepository", "name": g.environment},
	}
	require.NoError(t, g.Create(t.Context(), source))
	require.NoError(t, g.Create(t.Context(), apply))
	g.awaitFlux(first)
	require.Equal(t, map[string]string{"REGION": "north", "LOG_LEVEL": "info"}, g.settings("shop-web"))

	g.edit("platform/config.yaml", "LOG_LEVEL: info", "LOG_LEVEL: debug")
	g.dropBatch()
	g.awaitFlux(g.render())
	require.Equal(t, "debug", g.settings("shop-web")["LOG_LEVEL"])
	require.Eventually(t, func() bool {
		var namespace corev1.Namespace
		err := g.Get(t.Context(), types.NamespacedName{Name: g.namespace("shop-batch")}, &namespace)
		return err != nil || namespace.DeletionTimestamp != nil
	}, patience, 200*time.Millisecond, "what the branch lost is pruned")
}

// awaitFlux waits until Flux has applied a commit.
func (g gitOutput) awaitFlux(commit string) {
	g.t.Helper()
	source, apply := fluxObject("GitRepository", ""), fluxObject("Kustomization", "")
	require.Eventually(g.t, func() bool {
		g.read(fluxNamespace, g.environment, source)
		g.read(fluxNamespace, g.environment, apply)
		applied, _, _ := unstructured.NestedString(apply.Object, "status", "lastAppliedRevision")
		return applied == "dev@sha1:"+commit
	}, patience, 200*time.Millisecond, "%s\n%s", conditions(source), conditions(apply))
}

// Stock Argo CD does so too.
func TestArgoCDReadsTheRenderedBranch(t *testing.T) {
	t.Parallel()
	g := newGitOutput(t)
	g.startArgo()
	g.repositorySecret("git", map[string]string{"type": "git", "url": g.url(), "username": harness.GitUser, "password": harness.GitPassword})
	app := argoApplication(g.environment)
	app.Object["spec"] = map[string]any{
		"project": "default",
		"source": map[string]any{
			"repoURL": g.url(), "targetRevision": "dev", "path": clusterType, "directory": map[string]any{"recurse": true, "exclude": "README.md"},
		},
		"destination": map[string]any{"server": "https://kubernetes.default.svc", "namespace": g.namespace("shop-web")},
		"syncPolicy":  map[string]any{"automated": map[string]any{"prune": true}},
	}
	commit := g.render()
	require.NoError(t, g.Create(t.Context(), app))
	require.Eventually(t, func() bool {
		g.read(argoNamespace, g.environment, app)
		revision, _, _ := unstructured.NestedString(app.Object, "status", "sync", "revision")
		state, _, _ := unstructured.NestedString(app.Object, "status", "sync", "status")
		return revision == commit && state == "Synced"
	}, patience, 200*time.Millisecond, "%v", app.Object["status"])
	require.Equal(t, map[string]string{"REGION": "north", "LOG_LEVEL": "info"}, g.settings("shop-web"))
}
