//go:build e2e

package e2e

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/e2e/harness"
)

// drones is the tutorial's target on the cluster type drone.
const (
	drones         = "hello-world-app-functional-test"
	dronesIn       = "dev-drone-" + drones
	casesEnv       = "WHERRY_CASES"
	tutorialConfig = "platform/cluster-types/east-us/restricted/drones/drone-config.yaml"
)

// newTutorial makes the platform of Kalypso's public tutorial, of which only the URLs of the repositories
// with manifests are replaced.
func newTutorial(t *testing.T, cases string) *shop {
	t.Helper()
	require.NoError(t, cluster.StartFlux(t.Context(), fluxNamespace))
	git, err := harness.StartGit()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, git.Stop()) })
	c, err := client.New(cluster.Config, client.Options{})
	require.NoError(t, err)
	s := &shop{&site{Client: c, t: t, dir: t.TempDir(), environment: "dev", prefix: registry.Prefix + "/tutorial-" + strings.ToLower(rand.Text()[:8])}, git}
	for from, to := range map[string]string{
		"microsoft/dev": "platform", "tutorial/dev": "platform", "microsoft/main": "base", "tutorial/common": "base",
		"workloads/observability": "services", "workloads/hello-world-app": "app",
	} {
		require.NoError(t, os.CopyFS(s.path(to), os.DirFS(filepath.Join(cases, "kalypso", from))))
	}
	s.edit("app/workload.yaml", "https://github.com/microsoft/kalypso-app-gitops", git.URL+"/app-gitops")
	s.generateKey("cosign")
	s.ensure(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: fluxNamespace, Name: "repo-secret"},
		StringData: map[string]string{"username": harness.GitUser, "password": harness.GitPassword},
	})
	return s
}

// publishTutorial publishes the tutorial as it is now.
func (s *shop) publishTutorial(more ...string) {
	s.t.Helper()
	args := []string{
		"publish", "platform", "--environment", "dev", "--base", "base", "--workload", "platform-svc=services",
		"--workload", "hello-world-app=app", "--to", "oci://" + s.prefix, "--key", "cosign.key",
	}
	r := s.wherry(append(args, more...)...)
	require.Zero(s.t, r.code, r.stderr)
}

// drone has the agent of a drone make a pass, and requires that it exits with want.
func (s *shop) drone(want int) ran {
	s.t.Helper()
	r := program(s.t, s.dir, "wherry-agent", "once", "--registry", "oci://"+s.prefix, "--environment", "dev", "--cluster-type", "drone",
		"--key", "cosign.pub", "--kubeconfig", cluster.Kubeconfig, "--state-dir", "agent", "--wait", "60s")
	require.Equal(s.t, want, r.code, "exit code of wherry-agent once")
	return r
}

// greet pushes a version of the tutorial's application, and asks Flux to look at once where it is there.
func (s *shop) greet(files map[string]string) (revision string) {
	s.t.Helper()
	commit, err := s.git.Commit(s.t.Context(), "app-gitops", "dev", files)
	require.NoError(s.t, err)
	source := fluxObject("GitRepository", drones)
	now := []byte(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"` + time.Now().Format(time.RFC3339Nano) + `"}}}`)
	require.NoError(s.t, client.IgnoreNotFound(s.Patch(s.t.Context(), source, client.RawPatch("application/merge-patch+json", now))))
	return "dev@sha1:" + commit
}

func greeting(text string) map[string]string {
	return map[string]string{"functional-test/greeting.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: greeting}\ndata: {text: " + text + "}\n"}
}

// Kalypso's tutorial, "Explore workload management in a multi-cluster environment with GitOps", with its own
// files and Flux's own controllers.
func TestTheTutorialOfKalypso(t *testing.T) {
	cases := os.Getenv(casesEnv)
	if cases == "" {
		t.Logf("%s is not set: the tutorial is not followed", casesEnv)
		return
	}
	s := newTutorial(t, cases)
	first := s.greet(greeting("hello"))
	s.publishTutorial()
	s.drone(0)
	t.Cleanup(func() { // as a cluster that was given is left as it was found
		require.NoError(t, client.IgnoreNotFound(s.Delete(context.Background(), fluxObject("Kustomization", drones))))
	})
	item := s.status().Items[0]
	require.Equal(t, drones, item.Assignment)
	require.Equal(t, "flux", item.Adapter)
	require.Equal(t, first, item.Revision)
	require.True(t, item.Floating)
	require.Equal(t, "hello", s.data("greeting")["text"])
	require.Equal(t, "Dev", s.data("platform-config")["ENVIRONMENT"])

	s.edit(tutorialConfig, "CLUSTER_NAME: Drone", "CLUSTER_NAME: Drones")
	s.publishTutorial()
	s.drone(0)
	require.Equal(t, "Drones", s.data("platform-config")["CLUSTER_NAME"])

	second := s.greet(greeting("welcome"))
	require.Eventually(t, func() bool { s.drone(0); return s.status().Items[0].Revision == second }, patience, time.Second)
	require.Equal(t, "welcome", s.data("greeting")["text"])

	s.greet(map[string]string{"functional-test/greeting.yaml": "apiVersion: v1\nkind: ConfigMap\n"})
	require.Eventually(t, func() bool {
		item := s.passed()
		return item.State == bundle.Failed && item.Reason == "BuildFailed" && item.Revision == second
	}, patience, time.Second)

	s.greet(greeting("welcome"))
	require.Eventually(t, func() bool { return s.passed().State == bundle.Compliant }, patience, time.Second)
	require.NoError(t, os.Remove(s.path("platform/functional-test-policy.yaml")))
	s.publishTutorial("--allow-empty")
	s.drone(0)
	require.Empty(t, s.status().Items)
	s.gone("", dronesIn, &corev1.Namespace{})
	s.gone(fluxNamespace, drones, fluxObject("GitRepository", drones))
}

// passed has the drone's agent make a pass, however that ends, and returns how its assignment stands.
func (s *shop) passed() bundle.Item {
	s.t.Helper()
	program(s.t, s.dir, "wherry-agent", "once", "--registry", "oci://"+s.prefix, "--environment", "dev", "--cluster-type", "drone",
		"--key", "cosign.pub", "--kubeconfig", cluster.Kubeconfig, "--state-dir", "agent", "--wait", "5s")
	return s.status().Items[0]
}

// data is that of a ConfigMap in the drone's namespace.
func (s *shop) data(name string) map[string]string {
	s.t.Helper()
	var cm corev1.ConfigMap
	s.read(dronesIn, name, &cm)
	return cm.Data
}
