//go:build e2e

package kubernetes_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/e2e/harness"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes/kubernetestest"
	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
)

var cluster *harness.Cluster

func TestMain(m *testing.M) {
	reconcilertest.Child(func(handle string) (reconcilers.Reconciler, error) {
		return kubernetestest.Open(handle, kubernetestest.New)
	})
	os.Exit(harness.Main(m, &cluster))
}

func TestConformance(t *testing.T) {
	reconcilertest.Run(t, kubernetestest.Adapter(cluster.Kubeconfig))
}

// site is a namespace, a reconciler, and somebody else's view of the cluster.
type site struct {
	*kubernetestest.Cluster
	ledger *reconcilertest.Ledger
	r      reconcilers.Reconciler
}

func newSite(t *testing.T) *site {
	s := &site{Cluster: kubernetestest.Connect(t, cluster.Config), ledger: &reconcilertest.Ledger{}}
	s.r = s.reconciler(t, s.Config)
	return s
}

func (s *site) reconciler(t *testing.T, config *rest.Config) reconcilers.Reconciler {
	r, err := kubernetes.New(config, s.ledger, kubernetes.Options{})
	require.NoError(t, err)
	return r
}

// assignment holds one file with the manifests, in which $NS stands for the site's namespace.
func (s *site) assignment(t *testing.T, name, manifests string) reconcilers.Assignment {
	t.Helper()
	a := reconcilers.Assignment{Dir: t.TempDir()}
	data := []byte(strings.ReplaceAll(manifests, "$NS", s.Name))
	a.Name, a.Namespace = name, s.Name
	a.Content = bundle.ContentDigest([]bundle.File{{Path: "all.yaml", Data: data}})
	require.NoError(t, os.WriteFile(filepath.Join(a.Dir, "all.yaml"), data, 0o600))
	return a
}

// apply applies the manifests and requires the outcome.
func (s *site) apply(t *testing.T, name, manifests string, state bundle.State, reason string) reconcilers.Result {
	t.Helper()
	res := s.r.Apply(t.Context(), s.assignment(t, name, manifests))
	require.Equal(t, state, res.State, "%s: %s", res.Reason, res.Message)
	require.Equal(t, reason, res.Reason, res.Message)
	return res
}

// remove removes until the assignment is gone.
func (s *site) remove(t *testing.T, name string) (reconcilers.Result, []reconcilers.Change) {
	t.Helper()
	var a reconcilers.Assignment
	a.Name = name
	var changes []reconcilers.Change
	for end := time.Now().Add(reconcilertest.Patience); ; time.Sleep(100 * time.Millisecond) {
		res := s.r.Remove(t.Context(), a)
		changes = append(changes, res.Changes...)
		if res.State != bundle.Progressing || time.Now().After(end) {
			require.Equal(t, bundle.Removed, res.State, "%s: %s", res.Reason, res.Message)
			return res, changes
		}
	}
}

// read returns an object, or nil.
func (s *site) read(t *testing.T, apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	err := s.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, u)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return u
}

// forget deletes what a test leaves on the cluster.
func (s *site) forget(apiVersion, kind, name string) {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetName(name)
	_ = s.Client.Delete(context.Background(), u)
}

func (s *site) data(t *testing.T, name string) map[string]string {
	t.Helper()
	u := s.read(t, "v1", "ConfigMap", s.Name, name)
	require.NotNil(t, u)
	data, _, err := unstructured.NestedStringMap(u.Object, "data")
	require.NoError(t, err)
	return data
}

func configMap(name, key, value string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {%s: %q}\n", name, key, value)
}
