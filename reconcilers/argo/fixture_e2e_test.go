//go:build e2e

package argo_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/e2e/harness"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/argo"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes/kubernetestest"
	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
)

// namespace is the one that Argo CD has in these tests.
const namespace = "wherry-argo"

var (
	cluster *harness.Cluster
	git     *harness.Git
)

func TestMain(m *testing.M) {
	reconcilertest.Child(open)
	os.Exit(harness.MainWithGit(m, &cluster, &git))
}

func open(handle string) (reconcilers.Reconciler, error) { return kubernetestest.Open(handle, create) }

func create(config *rest.Config, ledger reconcilers.Ledger) (*argo.Reconciler, error) {
	return argo.New(config, ledger, argo.Options{Namespace: namespace})
}

// site is a namespace for what Argo CD brings, a reconciler, and somebody else's view of the cluster. Its
// Applications have a prefix of their own.
type site struct {
	*kubernetestest.GitOps
	engine *harness.Argo
}

func newSite(t *testing.T) *site {
	t.Helper()
	engine, err := cluster.StartArgo(t.Context(), namespace)
	require.NoError(t, err)
	s := &site{&kubernetestest.GitOps{
		Cluster: kubernetestest.Connect(t, cluster.Config), Place: kubernetestest.Place{Kubeconfig: cluster.Kubeconfig},
		Home: namespace, URL: git.URL, Open: open,
	}, engine}
	s.Start(t)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: s.Name,
			Labels: map[string]string{"argocd.argoproj.io/secret-type": "repository"},
		},
		StringData: map[string]string{
			"type": "git", "url": git.URL + "/" + s.Name, "username": harness.GitUser, "password": harness.GitPassword,
		},
	}
	require.NoError(t, s.Create(t.Context(), secret))
	t.Cleanup(func() {
		s.clear(t)
		require.NoError(t, s.Client.Delete(context.Background(), secret))
	})
	return s
}

// clear deletes the site's Applications. Their objects go with the namespace.
func (s *site) clear(t *testing.T) {
	require.Eventually(t, func() bool {
		left := s.Own(t, applicationKind)
		for _, o := range left {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
			require.NoError(t, client.IgnoreNotFound(s.Patch(context.Background(), &o, patch)))
			require.NoError(t, client.IgnoreNotFound(s.Client.Delete(context.Background(), &o)))
		}
		return len(left) == 0
	}, reconcilertest.Patience, 100*time.Millisecond)
}

var applicationKind = schema.GroupVersionKind{Group: "argoproj.io", Version: "v1alpha1", Kind: "Application"}

// application returns one of the site's, or nil.
func (s *site) application(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	return s.Object(t, applicationKind, name)
}

// assignment holds one file with the manifests. Applications go elsewhere than what names no namespace.
func (s *site) assignment(t *testing.T, manifests string) reconcilers.Assignment {
	t.Helper()
	a := s.Assignment(t, manifests)
	a.Namespace = s.Name
	return a
}

// conforming is an Engine of reconcilertest.
type conforming struct {
	kubernetestest.Values
	engine *harness.Argo
}

func newEngine(t *testing.T) reconcilertest.Engine { return newSite(t).conforming() }

func (s *site) conforming() *conforming {
	return &conforming{engine: s.engine, Values: kubernetestest.Values{
		GitOps: s.GitOps, Commit: git.Commit, File: s.file, Kind: applicationKind,
		Pinned: regexp.MustCompile(`targetRevision: ([0-9a-f]+)`), Form: "$1",
	}}
}

// file has Argo CD apply a commit.
func (s *site) file(name, commit string) bundle.File {
	const text = `apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: $NAME-%s}
spec:
  project: default
  source: {repoURL: $GIT/$NAME, path: ., targetRevision: %s}
  destination: {server: https://kubernetes.default.svc, namespace: $NAME}
  syncPolicy:
    automated: {prune: true, selfHeal: true}
    syncOptions: [ApplyOutOfSyncOnly=true]
`
	return bundle.File{Path: name + ".yaml", Data: []byte(s.Fill(fmt.Sprintf(text, name, commit)))}
}

// Writes names the specification, its field managers with their times, and the beginning of the last sync. The generation
// would not do: it also counts Argo CD's writes of the status.
func (e *conforming) Writes(t *testing.T, assignment string) string {
	var found []string
	for _, o := range e.Own(t, applicationKind) {
		if o.GetLabels()[kubernetes.OwnerLabel] != assignment {
			continue
		}
		began, _, _ := unstructured.NestedString(o.Object, "status", "operationState", "startedAt")
		found = append(found, fmt.Sprint(o.GetName(), o.GetUID(), o.Object["spec"], o.GetAnnotations(), began))
		for _, f := range o.GetManagedFields() {
			if strings.HasPrefix(f.Manager, "wherry") {
				found = append(found, fmt.Sprint(f.Manager, f.Time, f.FieldsV1))
			}
		}
	}
	return strings.Join(found, "\n")
}

// Tamper points Argo CD at another commit.
func (e *conforming) Tamper(t *testing.T, _, name, value string) {
	e.Merge(t, e.Object(t, applicationKind, name), fmt.Sprintf(`{"spec":{"source":{"targetRevision":%q}}}`, e.Pin(t, name, value)))
	e.Arrives(t, name, value)
}

// Delete deletes the Application that brings the value, and with it the value.
func (e *conforming) Delete(t *testing.T, assignment, name string) {
	e.Merge(t, e.Object(t, applicationKind, name), `{"metadata":{"finalizers":["resources-finalizer.argocd.argoproj.io"]}}`)
	e.Values.Delete(t, assignment, name)
}

// Fail adds a commit that holds what looks like a manifest, and cannot be read.
func (e *conforming) Fail(t *testing.T, a reconcilers.Assignment) (reason, words string) {
	e.AddFailing(t, a, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: [\n")
	return "ComparisonError", "value.yaml"
}

// Stall stops Argo CD itself, so that its status stays as it was.
func (e *conforming) Stall(t *testing.T, _ reconcilers.Assignment) (words string, finish func()) {
	resume, err := e.engine.PauseController()
	require.NoError(t, err)
	return "Application/" + namespace + "/" + e.Name, func() { require.NoError(t, resume()) }
}
