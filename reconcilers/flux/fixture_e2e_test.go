//go:build e2e

package flux_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
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
	reconcilertest.Child(func(handle string) (reconcilers.Reconciler, error) {
		return kubernetestest.Open(handle, create)
	})
	os.Exit(run(m))
}

func create(config *rest.Config, ledger reconcilers.Ledger) (*flux.Reconciler, error) {
	return flux.New(config, ledger, flux.Options{})
}

func run(m *testing.M) int {
	var err error
	if git, err = harness.StartGit(); err != nil {
		fmt.Fprintln(os.Stderr, "start a git server for the tests:", err)
		return 1
	}
	code := harness.Main(m, &cluster)
	if err := git.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the git server of the tests:", err)
		return 1
	}
	return code
}

// site is a namespace for what Flux brings, a reconciler, and somebody else's view of the cluster. Its
// objects of Flux have a prefix of their own.
type site struct {
	*kubernetestest.Cluster
	kubernetestest.Place
	r reconcilers.Reconciler
}

func newSite(t *testing.T) *site {
	t.Helper()
	require.NoError(t, cluster.StartFlux(t.Context(), namespace))
	s := &site{
		Cluster: kubernetestest.Connect(t, cluster.Config),
		Place:   kubernetestest.Place{Kubeconfig: cluster.Kubeconfig, Ledger: t.TempDir()},
	}
	s.r = s.Reconciler(t)
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

func (s *site) Reconciler(t *testing.T) reconcilers.Reconciler {
	r, err := kubernetestest.Open(s.Handle(t), create)
	require.NoError(t, err)
	return r
}

// versions of the kinds of Flux that the tests use.
var versions = map[string]string{
	"Kustomization": "kustomize.toolkit.fluxcd.io/v1",
	"GitRepository": "source.toolkit.fluxcd.io/v1", "OCIRepository": "source.toolkit.fluxcd.io/v1",
	"HelmRelease": "helm.toolkit.fluxcd.io/v2",
}

// list returns the site's objects of a kind.
func (s *site) list(t *testing.T, kind string) []unstructured.Unstructured {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(versions[kind])
	list.SetKind(kind + "List")
	require.NoError(t, s.List(context.Background(), list, client.InNamespace(namespace))) // that of a cleanup, too
	return slices.DeleteFunc(list.Items, func(o unstructured.Unstructured) bool { return !strings.HasPrefix(o.GetName(), s.Name) })
}

// clear deletes the site's Kustomizations, and then what they need.
func (s *site) clear(t *testing.T) {
	for _, kind := range []string{"Kustomization", "GitRepository", "OCIRepository"} {
		for _, o := range s.list(t, kind) {
			require.NoError(t, client.IgnoreNotFound(s.Client.Delete(context.Background(), &o)))
		}
	}
}

// object returns an object of Flux's, or nil.
func (s *site) object(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(versions[kind])
	u.SetKind(kind)
	err := s.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: s.Name + "-" + name}, u)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return u
}

// applyAs applies an object as another tool does that takes what it wants.
func (s *site) applyAs(t *testing.T, manager string, o *unstructured.Unstructured) {
	t.Helper()
	require.NoError(t, s.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(manager), client.ForceOwnership))
}

func (s *site) configMap(t *testing.T, name string) *corev1.ConfigMap {
	t.Helper()
	cm := &corev1.ConfigMap{}
	err := s.Get(t.Context(), types.NamespacedName{Namespace: s.Name, Name: name}, cm)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return cm
}

// fill puts the site's prefix, which is also the name of its namespace and repository, for $NAME.
func (s *site) fill(manifests string) string {
	return strings.NewReplacer("$NAME", s.Name, "$GIT", git.URL).Replace(manifests)
}

// assignment holds one file with the manifests.
func (s *site) assignment(t *testing.T, manifests string) reconcilers.Assignment {
	t.Helper()
	a := reconcilers.Assignment{Dir: t.TempDir()}
	data := []byte(s.fill(manifests))
	a.Name, a.Namespace = "shop", namespace
	a.Content = bundle.ContentDigest([]bundle.File{{Path: "reconciler.yaml", Data: data}})
	require.NoError(t, os.WriteFile(filepath.Join(a.Dir, "reconciler.yaml"), data, 0o600))
	return a
}

// settled applies a and observes until it stands in state, which it has to reach in time.
func (s *site) settled(t *testing.T, a reconcilers.Assignment, state bundle.State) reconcilers.Result {
	t.Helper()
	res := s.r.Apply(t.Context(), a)
	return s.observed(t, a, res, func(res reconcilers.Result) bool { return res.State == state })
}

func (s *site) observed(t *testing.T, a reconcilers.Assignment, res reconcilers.Result, enough func(reconcilers.Result) bool) reconcilers.Result {
	t.Helper()
	for end := time.Now().Add(reconcilertest.Patience); !enough(res); res = s.r.Observe(t.Context(), a) {
		require.True(t, time.Now().Before(end), "%s %s: %s (%s)", res.State, res.Reason, res.Message, res.Revision)
		time.Sleep(100 * time.Millisecond)
	}
	return res
}
