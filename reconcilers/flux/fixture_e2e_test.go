//go:build e2e

package flux_test

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/e2e/harness"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/flux"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes/kubernetestest"
	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
)

// namespace is the one that Flux looks at in these tests.
const namespace = "wherry-flux"

var (
	cluster *harness.Cluster
	git     *harness.Git
)

func TestMain(m *testing.M) {
	reconcilertest.Child(open)
	os.Exit(harness.MainWithGit(m, &cluster, &git))
}

func open(handle string) (reconcilers.Reconciler, error) { return kubernetestest.Open(handle, create) }

func create(config *rest.Config, ledger reconcilers.Ledger) (*flux.Reconciler, error) {
	return flux.New(config, ledger, flux.Options{})
}

// site is a namespace for what Flux brings, a reconciler, and somebody else's view of the cluster. Its
// objects of Flux have a prefix of their own.
type site struct{ *kubernetestest.GitOps }

func newSite(t *testing.T) *site {
	t.Helper()
	require.NoError(t, cluster.StartFlux(t.Context(), namespace))
	s := &site{&kubernetestest.GitOps{
		Cluster: kubernetestest.Connect(t, cluster.Config), Place: kubernetestest.Place{Kubeconfig: cluster.Kubeconfig},
		Home: namespace, URL: git.URL, Open: open,
	}}
	s.Start(t)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "repo-secret"},
		StringData: map[string]string{"username": harness.GitUser, "password": harness.GitPassword},
	}
	if err := s.Create(t.Context(), secret); err != nil {
		require.True(t, apierrors.IsAlreadyExists(err), err)
	}
	t.Cleanup(func() { s.clear(t) })
	return s
}

// kinds of Flux that the tests use.
var kinds = map[string]schema.GroupVersionKind{
	"Kustomization": {Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"},
	"GitRepository": {Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "GitRepository"},
	"OCIRepository": {Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "OCIRepository"},
	"HelmRelease":   {Group: "helm.toolkit.fluxcd.io", Version: "v2", Kind: "HelmRelease"},
}

// clear deletes the site's Kustomizations, and then their sources.
func (s *site) clear(t *testing.T) {
	for _, kind := range []string{"Kustomization", "GitRepository", "OCIRepository"} {
		for _, o := range s.Own(t, kinds[kind]) {
			require.NoError(t, client.IgnoreNotFound(s.Client.Delete(context.Background(), &o)))
		}
	}
}

// object returns an object of Flux's, or nil.
func (s *site) object(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	return s.Object(t, kinds[kind], name)
}

// applyAs applies an object as another tool does that forces conflicts.
func (s *site) applyAs(t *testing.T, manager string, o *unstructured.Unstructured) {
	t.Helper()
	require.NoError(t, s.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(manager), client.ForceOwnership))
}
