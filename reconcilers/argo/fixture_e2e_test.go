//go:build e2e

package argo_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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
	reconcilertest.Child(func(handle string) (reconcilers.Reconciler, error) {
		return kubernetestest.Open(handle, create)
	})
	os.Exit(run(m))
}

func create(config *rest.Config, ledger reconcilers.Ledger) (*argo.Reconciler, error) {
	return argo.New(config, ledger, argo.Options{Namespace: namespace})
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

// site is a namespace for what Argo CD brings, a reconciler, and somebody else's view of the cluster. Its
// Applications have a prefix of their own.
type site struct {
	*kubernetestest.Cluster
	kubernetestest.Place
	engine *harness.Argo
	r      reconcilers.Reconciler
}

func newSite(t *testing.T) *site {
	t.Helper()
	engine, err := cluster.StartArgo(t.Context(), namespace)
	require.NoError(t, err)
	s := &site{
		Cluster: kubernetestest.Connect(t, cluster.Config),
		Place:   kubernetestest.Place{Kubeconfig: cluster.Kubeconfig, Ledger: t.TempDir()},
		engine:  engine,
	}
	s.r = s.Reconciler(t)
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

func (s *site) Reconciler(t *testing.T) reconcilers.Reconciler {
	r, err := kubernetestest.Open(s.Handle(t), create)
	require.NoError(t, err)
	return r
}

// clear deletes the site's Applications, and leaves what they have brought to the end of its namespace.
func (s *site) clear(t *testing.T) {
	require.Eventually(t, func() bool {
		left := s.list(t)
		for _, o := range left {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
			require.NoError(t, client.IgnoreNotFound(s.Patch(context.Background(), &o, patch)))
			require.NoError(t, client.IgnoreNotFound(s.Client.Delete(context.Background(), &o)))
		}
		return len(left) == 0
	}, reconcilertest.Patience, 100*time.Millisecond)
}

// list returns the site's Applications.
func (s *site) list(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("argoproj.io/v1alpha1")
	list.SetKind("ApplicationList")
	require.NoError(t, s.List(context.Background(), list, client.InNamespace(namespace))) // that of a cleanup, too
	return slices.DeleteFunc(list.Items, func(o unstructured.Unstructured) bool { return !strings.HasPrefix(o.GetName(), s.Name) })
}

// application returns one of the site's, or nil.
func (s *site) application(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("argoproj.io/v1alpha1")
	u.SetKind("Application")
	err := s.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: s.Name + "-" + name}, u)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return u
}

// merge writes into one of the site's Applications as somebody else does.
func (s *site) merge(t *testing.T, name, patch string) {
	t.Helper()
	require.NoError(t, s.Patch(t.Context(), s.application(t, name), client.RawPatch(types.MergePatchType, []byte(patch))))
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
	a.Name, a.Namespace = "shop", s.Name
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

// removed removes a until it is gone.
func (s *site) removed(t *testing.T, a reconcilers.Assignment) {
	t.Helper()
	for end := time.Now().Add(reconcilertest.Patience); ; time.Sleep(100 * time.Millisecond) {
		res := s.r.Remove(t.Context(), a)
		if res.State == bundle.Removed {
			return
		}
		require.True(t, time.Now().Before(end), "%s %s: %s", res.State, res.Reason, res.Message)
	}
}

// conforming holds values in ConfigMaps that come from a branch of their own, pinned to a commit.
type conforming struct {
	*site
	commits map[string]string
}

func newEngine(t *testing.T) reconcilertest.Engine {
	return &conforming{site: newSite(t), commits: map[string]string{}}
}

func (e *conforming) Namespace() string { return namespace }

// commit returns the commit that holds value under name.
func (e *conforming) commit(t *testing.T, name, value string) string {
	if known := e.commits[name+"="+value]; known != "" {
		return known
	}
	const text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {value: %q}\n"
	commit, err := git.Commit(t.Context(), e.Name, name, map[string]string{"value.yaml": fmt.Sprintf(text, name, value)})
	require.NoError(t, err)
	e.commits[name+"="+value] = commit
	return commit
}

func (e *conforming) Files(t *testing.T, _ string, content map[string]string) []bundle.File {
	var files []bundle.File
	for name, value := range content {
		files = append(files, e.file(name, e.commit(t, name, value)))
	}
	return files
}

// file has Argo CD apply a commit.
func (e *conforming) file(name, commit string) bundle.File {
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
	return bundle.File{Path: name + ".yaml", Data: []byte(e.fill(fmt.Sprintf(text, name, commit)))}
}

var pinned = regexp.MustCompile(`targetRevision: ([0-9a-f]+)`)

// Revision is the commits that the files name.
func (e *conforming) Revision(t *testing.T, a reconcilers.Assignment) string {
	files, err := filepath.Glob(filepath.Join(a.Dir, "*.yaml"))
	require.NoError(t, err)
	var revisions []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		revisions = append(revisions, pinned.FindStringSubmatch(string(data))[1])
	}
	slices.Sort(revisions)
	return strings.Join(revisions, ", ")
}

func (e *conforming) Value(t *testing.T, _, name string) (string, bool) {
	cm := e.configMap(t, name)
	if cm == nil {
		return "", false
	}
	return cm.Data["value"], true
}

// Writes names what is specified, who has written to it when, and when the last sync began. The generation
// does not tell: it counts what Argo CD writes into the status, too.
func (e *conforming) Writes(t *testing.T, assignment string) string {
	var found []string
	for _, o := range e.list(t) {
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
func (e *conforming) Tamper(t *testing.T, assignment, name, value string) {
	e.merge(t, name, fmt.Sprintf(`{"spec":{"source":{"targetRevision":%q}}}`, e.commit(t, name, value)))
	require.Eventually(t, func() bool {
		got, _ := e.Value(t, assignment, name)
		return got == value
	}, reconcilertest.Patience, 100*time.Millisecond)
}

// Delete deletes the Application that brings the value, and with it the value.
func (e *conforming) Delete(t *testing.T, _, name string) {
	e.merge(t, name, `{"metadata":{"finalizers":["resources-finalizer.argocd.argoproj.io"]}}`)
	require.NoError(t, e.Client.Delete(t.Context(), e.application(t, name)))
	require.Eventually(t, func() bool { return e.application(t, name) == nil }, reconcilertest.Patience, 100*time.Millisecond)
}

// AddForeign creates two objects and adds an annotation to one of the assignment's.
func (e *conforming) AddForeign(t *testing.T, _, name string) {
	meta := metav1.ObjectMeta{Namespace: e.Name, Name: "theirs"}
	require.NoError(t, e.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"theirs": "yes"}}))
	meta.Namespace, meta.Name = namespace, e.Name+"-theirs"
	require.NoError(t, e.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"theirs": "yes"}}))
	t.Cleanup(func() { _ = e.Client.Delete(context.Background(), &corev1.ConfigMap{ObjectMeta: meta}) })
	e.merge(t, name, `{"metadata":{"annotations":{"theirs":"yes"}}}`)
}

func (e *conforming) CheckForeign(t *testing.T, _, name string) {
	require.Equal(t, "yes", e.configMap(t, "theirs").Data["theirs"])
	other := &corev1.ConfigMap{}
	require.NoError(t, e.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: e.Name + "-theirs"}, other))
	if o := e.application(t, name); o != nil {
		require.Equal(t, "yes", o.GetAnnotations()["theirs"])
	}
}

func (e *conforming) Break(t *testing.T, a reconcilers.Assignment) string {
	add(t, a, bundle.File{Path: "broken.yaml", Data: []byte("kind: Application\n  name: [\n")})
	return kubernetes.InvalidManifest
}

// Fail adds a commit that holds what looks like a manifest, and cannot be read.
func (e *conforming) Fail(t *testing.T, a reconcilers.Assignment) (reason, words string) {
	commit, err := git.Commit(t.Context(), e.Name, "failing", map[string]string{"value.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: [\n"})
	require.NoError(t, err)
	add(t, a, e.file("failing", commit))
	return "ComparisonError", "value.yaml"
}

// Stall stops Argo CD itself, so that all that it says is what it said before.
func (e *conforming) Stall(t *testing.T, _ reconcilers.Assignment) (words string, finish func()) {
	resume, err := e.engine.PauseController()
	require.NoError(t, err)
	return "Application/" + namespace + "/" + e.Name, func() { require.NoError(t, resume()) }
}

// add puts a file into an assignment.
func add(t *testing.T, a reconcilers.Assignment, f bundle.File) {
	require.NoError(t, os.WriteFile(filepath.Join(a.Dir, f.Path), f.Data, 0o600))
}
