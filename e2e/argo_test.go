//go:build e2e

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/e2e/harness"
)

// argoNamespace is where Kalypso's template puts Applications.
const argoNamespace = "argocd"

// kalypsoInArgo is held by the one test that uses Kalypso's template, which names Applications after targets alone.
var kalypsoInArgo sync.Mutex

// newArgoSite makes a platform whose targets are brought by Argo CD as Kalypso's own template has it. The
// workload's repository and what to follow in it are filled in.
func newArgoSite(t *testing.T, repository, revision string) *site {
	t.Helper()
	s := newSite(t)
	s.flags = []string{"--settle", "0s"} // or each step would take half a minute more
	kalypsoInArgo.Lock()
	t.Cleanup(kalypsoInArgo.Unlock)
	s.startArgo()
	template := "testdata/argo/template.yaml"
	if cases := os.Getenv(casesEnv); cases != "" {
		template = filepath.Join(cases, "kalypso", "microsoft", "main", "templates", "scheduler_v1alpha1_template_argocd.yaml")
	}
	data, err := os.ReadFile(template)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.path("platform/argocd.yaml"), data, 0o644))
	s.edit("platform/cluster-types.yaml", "reconciler: deployment", "reconciler: argocd")
	require.NoError(t, os.Rename(s.path("flux/workload.yaml"), s.path("workloads/shop/workload.yaml")))
	s.edit("workloads/shop/workload.yaml", "ENVIRONMENT", s.environment)
	s.edit("workloads/shop/workload.yaml", ": REPOSITORY", ": "+strings.ReplaceAll(repository, "ENVIRONMENT", s.environment))
	s.edit("workloads/shop/workload.yaml", "branch: dev", "branch: "+revision)
	return s
}

// startArgo starts Argo CD, and deletes the site's Applications at the end.
func (s *site) startArgo() {
	s.t.Helper()
	_, err := cluster.StartArgo(s.t.Context(), argoNamespace)
	require.NoError(s.t, err)
	s.t.Cleanup(s.clearArgo)
}

// repositorySecret gives Argo CD access to a repository.
func (s *site) repositorySecret(name string, fields map[string]string) {
	s.t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: argoNamespace, Name: s.environment + "-" + name,
			Labels: map[string]string{"argocd.argoproj.io/secret-type": "repository"},
		},
		StringData: fields,
	}
	require.NoError(s.t, s.Create(s.t.Context(), secret))
	s.t.Cleanup(func() { require.NoError(s.t, s.Delete(context.Background(), secret)) })
}

// clearArgo deletes the site's Applications. Their objects go with the namespaces.
func (s *site) clearArgo() {
	ctx := context.Background() // that of the test has ended
	require.Eventually(s.t, func() bool {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(argoApplication("").GroupVersionKind())
		require.NoError(s.t, s.List(ctx, list, client.InNamespace(argoNamespace)))
		left := false
		for _, o := range list.Items {
			namespace, _, _ := unstructured.NestedString(o.Object, "spec", "destination", "namespace")
			if strings.HasPrefix(namespace, s.environment) {
				left = true
				patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
				require.NoError(s.t, client.IgnoreNotFound(s.Patch(ctx, &o, patch)))
				require.NoError(s.t, client.IgnoreNotFound(s.Delete(ctx, &o)))
			}
		}
		return !left
	}, patience, 200*time.Millisecond)
}

func argoApplication(name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("argoproj.io/v1alpha1")
	o.SetKind("Application")
	o.SetNamespace(argoNamespace)
	o.SetName(name)
	return o
}

func TestArgoCDBringsWhatThePlatformAssigns(t *testing.T) {
	t.Parallel()
	git, err := harness.StartGit()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, git.Stop()) })
	s := newArgoSite(t, git.URL+"/ENVIRONMENT", "dev")
	s.repositorySecret("git", map[string]string{
		"type": "git", "url": git.URL + "/" + s.environment, "username": harness.GitUser, "password": harness.GitPassword,
	})
	app := &shop{s, git}
	reached := func(state bundle.State, revision string) func(bundle.Item) bool {
		return func(i bundle.Item) bool { return i.State == state && i.Revision == revision }
	}
	commit := func(revision string) string { return strings.TrimPrefix(revision, "dev@sha1:") }

	first := commit(app.release("1"))
	s.publish()
	for _, target := range targets {
		item := s.item(target, reached(bundle.Compliant, first))
		require.Equal(t, "argo", item.Adapter)
		require.True(t, item.Floating)
		require.Equal(t, "1", app.version(target))
	}

	second := commit(app.release("2"))
	s.item("shop-web", reached(bundle.Compliant, second))
	require.Equal(t, "2", app.version("shop-web"))

	app.push(map[string]string{"web/shop.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: [\n", "batch/shop.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop}\n"})
	s.item("shop-web", func(i bundle.Item) bool {
		return i.State == bundle.Failed && i.Reason == "ComparisonError" && strings.Contains(i.Message, "shop.yaml")
	})
	require.Equal(t, "2", app.version("shop-web"), "what runs is the last good version")
	s.item("shop-batch", func(i bundle.Item) bool { return i.State == bundle.Compliant })

	third := commit(app.release("3"))
	s.item("shop-web", reached(bundle.Compliant, third))

	s.dropBatch()
	s.publish()
	s.once(0)
	require.Equal(t, map[string]bundle.State{"shop-web": bundle.Compliant}, s.states())
	s.gone("", s.namespace("shop-batch"), &corev1.Namespace{})
	require.Equal(t, "3", app.version("shop-web"))
}

func TestArgoCDBringsAnArtifactByItsDigest(t *testing.T) {
	t.Parallel()
	source := newSite(t)
	source.publish()
	published, err := source.repository(source.prefix, clusterType).Resolve(t.Context(), bundle.MovingTag(""))
	require.NoError(t, err)
	repository := "oci://" + source.prefix + "/" + bundle.Stream{Environment: source.environment, ClusterType: clusterType}.Repository()
	s := newArgoSite(t, repository, published.Digest.String())
	for from, to := range map[string]string{"path: ./web": "path: .", "path: ./batch": "path: ."} {
		s.edit("workloads/shop/workload.yaml", from, to)
	}
	s.dropBatch() // two Applications cannot hold the same objects
	s.repositorySecret("oci", map[string]string{"type": "oci", "url": repository, "insecureOCIForceHttp": "true"})
	s.publish()
	item := s.item("shop-web", func(i bundle.Item) bool {
		return i.State == bundle.Progressing && i.Revision != "" || i.State == bundle.Compliant
	})
	require.Equal(t, published.Digest.String(), item.Revision)
	require.False(t, item.Floating)
	require.Eventually(t, func() bool {
		return s.Get(t.Context(), types.NamespacedName{Namespace: source.namespace("shop-web"), Name: "platform-config"}, &corev1.ConfigMap{}) == nil
	}, patience, 100*time.Millisecond)
	require.Equal(t, map[string]string{"REGION": "north", "LOG_LEVEL": "info"}, source.settings("shop-web"))

	at := s.doctor()["argo"]
	require.Equal(t, "ok", at.Result, at.Message)
	elsewhere := s.doctor("--argo-namespace", "elsewhere")["argo"]
	require.Equal(t, "failed", elsewhere.Result)
	require.Contains(t, elsewhere.Message, "ConfigMap argocd-cm, in namespace elsewhere")
	require.Contains(t, elsewhere.Remedy, "--argo-namespace")
}

// doctor returns what the site's doctor finds, by check.
func (s *site) doctor(more ...string) map[string]finding {
	s.t.Helper()
	args := []string{
		"doctor", "--registry", "oci://" + s.prefix, "--environment", s.environment, "--cluster-type", clusterType,
		"--key", "cosign.pub", "--kubeconfig", cluster.Kubeconfig, "--state-dir", "agent", "-o", "json",
	}
	return findings(s.t, s.program("wherry-agent", append(args, more...)...))
}

// Argo CD takes a bundle as it is, without an agent.
func TestArgoCDConsumesABundle(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.startArgo()
	s.grow()
	s.publish()
	first, err := s.repository(s.prefix, clusterType).Resolve(t.Context(), bundle.MovingTag(""))
	require.NoError(t, err)
	repository := "oci://" + s.prefix + "/" + bundle.Stream{Environment: s.environment, ClusterType: clusterType}.Repository()
	s.repositorySecret("bundles", map[string]string{"type": "oci", "url": repository, "insecureOCIForceHttp": "true"})
	app := argoApplication(s.environment)
	app.Object["spec"] = map[string]any{
		"project":     "default",
		"source":      map[string]any{"repoURL": repository, "targetRevision": "latest", "path": ".", "directory": map[string]any{"recurse": true}},
		"destination": map[string]any{"server": "https://kubernetes.default.svc", "namespace": s.environment},
		"syncPolicy": map[string]any{
			"automated":   map[string]any{"prune": true, "selfHeal": true},
			"syncOptions": []any{"ApplyOutOfSyncOnly=true"},
		},
	}
	require.NoError(t, s.Create(t.Context(), app))
	s.awaitArgo(first.Digest.String())
	require.Equal(t, "info", s.settings("shop-web")["LOG_LEVEL"])

	s.edit("platform/config.yaml", "LOG_LEVEL: info", "LOG_LEVEL: debug")
	s.publish()
	require.Equal(t, 1, s.deltas(), "which are nothing to Argo CD")
	second, err := s.repository(s.prefix, clusterType).Resolve(t.Context(), bundle.MovingTag(""))
	require.NoError(t, err)
	s.changeArgo(`{"metadata":{"annotations":{"argocd.argoproj.io/refresh":"normal"}}}`)
	s.awaitArgo(second.Digest.String())
	require.Equal(t, "debug", s.settings("shop-web")["LOG_LEVEL"])

	s.changeArgo(`{"spec":{"source":{"targetRevision":"` + first.Digest.String() + `"}}}`)
	s.awaitArgo(first.Digest.String())
	require.Equal(t, "info", s.settings("shop-web")["LOG_LEVEL"])
}

// changeArgo writes into the Application with the environment's name.
func (s *site) changeArgo(patch string) {
	s.t.Helper()
	require.NoError(s.t, s.Patch(s.t.Context(), argoApplication(s.environment), client.RawPatch(types.MergePatchType, []byte(patch))))
}

// awaitArgo waits until Argo CD has found the cluster in sync with a revision.
func (s *site) awaitArgo(revision string) {
	s.t.Helper()
	app := argoApplication(s.environment)
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		s.read(argoNamespace, s.environment, app)
		state, _, _ := unstructured.NestedString(app.Object, "status", "sync", "status")
		compared, _, _ := unstructured.NestedString(app.Object, "status", "sync", "revision")
		if state == "Synced" && compared == revision {
			return
		}
		require.True(s.t, time.Now().Before(end), "%s %s: %s", state, compared, conditions(app))
	}
}
