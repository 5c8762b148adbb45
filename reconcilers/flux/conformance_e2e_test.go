//go:build e2e

package flux_test

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
)

func TestConformance(t *testing.T) {
	reconcilertest.Run(t, reconcilertest.Adapter{
		Name: "flux", On: "real source- and kustomize-controllers, with git, on a real API server", Start: newEngine,
	})
}

// engine holds values in ConfigMaps that come from a branch of their own, pinned to a commit.
type engine struct {
	*site
	commits map[string]string
}

func newEngine(t *testing.T) reconcilertest.Engine {
	return &engine{site: newSite(t), commits: map[string]string{}}
}

func (e *engine) Namespace() string { return namespace }

// commit returns the commit that holds value under name.
func (e *engine) commit(t *testing.T, name, value string) string {
	if known := e.commits[name+"="+value]; known != "" {
		return known
	}
	const text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {value: %q}\n"
	commit, err := git.Commit(t.Context(), e.Name, name, map[string]string{"value.yaml": fmt.Sprintf(text, name, value)})
	require.NoError(t, err)
	e.commits[name+"="+value] = commit
	return commit
}

func (e *engine) Files(t *testing.T, _ string, content map[string]string) []bundle.File {
	var files []bundle.File
	for name, value := range content {
		files = append(files, e.file(name, e.commit(t, name, value)))
	}
	return files
}

// file has Flux apply a commit of a branch.
func (e *engine) file(branch, commit string) bundle.File {
	const text = `apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: $NAME-%s}
spec:
  interval: 10m
  url: $GIT/$NAME
  ref: {branch: %[1]s, commit: %[2]s}
  secretRef: {name: repo-secret}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: $NAME-%[1]s}
spec:
  interval: 10m
  retryInterval: 2s
  path: ./
  prune: true
  targetNamespace: $NAME
  sourceRef: {kind: GitRepository, name: $NAME-%[1]s}
`
	return bundle.File{Path: branch + ".yaml", Data: []byte(e.fill(fmt.Sprintf(text, branch, commit)))}
}

var pinned = regexp.MustCompile(`branch: (\S+), commit: ([0-9a-f]+)`)

// Revision is what Flux calls the commits that the files name.
func (e *engine) Revision(t *testing.T, a reconcilers.Assignment) string {
	files, err := filepath.Glob(filepath.Join(a.Dir, "*.yaml"))
	require.NoError(t, err)
	var revisions []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		found := pinned.FindStringSubmatch(string(data))
		revisions = append(revisions, found[1]+"@sha1:"+found[2])
	}
	slices.Sort(revisions)
	return strings.Join(revisions, ", ")
}

func (e *engine) Value(t *testing.T, _, name string) (string, bool) {
	cm := e.configMap(t, name)
	if cm == nil {
		return "", false
	}
	return cm.Data["value"], true
}

// Writes names the generations of the assignment's objects and what their annotations say; the rest of them
// is Flux's.
func (e *engine) Writes(t *testing.T, assignment string) string {
	var found []string
	for _, kind := range []string{"Kustomization", "GitRepository"} {
		for _, o := range e.list(t, kind) {
			if o.GetLabels()[kubernetes.OwnerLabel] == assignment {
				found = append(found, fmt.Sprint(kind, o.GetName(), o.GetUID(), o.GetGeneration(), o.GetAnnotations()))
			}
		}
	}
	return strings.Join(found, "\n")
}

// Tamper points Flux at another commit.
func (e *engine) Tamper(t *testing.T, assignment, name, value string) {
	source := e.object(t, "GitRepository", name)
	require.NoError(t, unstructured.SetNestedField(source.Object, e.commit(t, name, value), "spec", "ref", "commit"))
	require.NoError(t, e.Update(t.Context(), source))
	require.Eventually(t, func() bool {
		got, _ := e.Value(t, assignment, name)
		return got == value
	}, reconcilertest.Patience, 100*time.Millisecond)
}

// Delete deletes what has Flux hold the value, and with it the value.
func (e *engine) Delete(t *testing.T, _, name string) {
	require.NoError(t, e.Client.Delete(t.Context(), e.object(t, "Kustomization", name)))
	require.Eventually(t, func() bool { return e.object(t, "Kustomization", name) == nil }, reconcilertest.Patience, 100*time.Millisecond)
}

// AddForeign creates two objects and adds an annotation to one of the assignment's.
func (e *engine) AddForeign(t *testing.T, _, name string) {
	meta := metav1.ObjectMeta{Namespace: e.Name, Name: "theirs"}
	require.NoError(t, e.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"theirs": "yes"}}))
	meta.Namespace, meta.Name = namespace, e.Name+"-theirs"
	require.NoError(t, e.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"theirs": "yes"}}))
	t.Cleanup(func() { _ = e.Client.Delete(context.Background(), &corev1.ConfigMap{ObjectMeta: meta}) })
	o := e.object(t, "Kustomization", name)
	before := o.DeepCopy()
	o.SetAnnotations(map[string]string{"theirs": "yes"})
	require.NoError(t, e.Patch(t.Context(), o, client.MergeFrom(before)))
}

func (e *engine) CheckForeign(t *testing.T, _, name string) {
	require.Equal(t, "yes", e.configMap(t, "theirs").Data["theirs"])
	other := &corev1.ConfigMap{}
	require.NoError(t, e.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: e.Name + "-theirs"}, other))
	if o := e.object(t, "Kustomization", name); o != nil {
		require.Equal(t, "yes", o.GetAnnotations()["theirs"])
	}
}

func (e *engine) Break(t *testing.T, a reconcilers.Assignment) string {
	write(t, a, bundle.File{Path: "broken.yaml", Data: []byte("kind: Kustomization\n  name: [\n")})
	return kubernetes.InvalidManifest
}

// Fail adds a commit that cannot be built.
func (e *engine) Fail(t *testing.T, a reconcilers.Assignment) (reason, words string) {
	commit, err := git.Commit(t.Context(), e.Name, "failing", map[string]string{"value.yaml": "apiVersion: v1\nkind: ConfigMap\n"})
	require.NoError(t, err)
	write(t, a, e.file("failing", commit))
	return "BuildFailed", "missing metadata.name"
}

// Stall stops Flux itself, so that all that it says is what it said before.
func (e *engine) Stall(t *testing.T, _ reconcilers.Assignment) (words string, finish func()) {
	resume, err := cluster.PauseFlux(namespace)
	require.NoError(t, err)
	return "GitRepository/" + namespace + "/" + e.Name, func() { require.NoError(t, resume()) }
}

// write adds a file to an assignment.
func write(t *testing.T, a reconcilers.Assignment, f bundle.File) {
	require.NoError(t, os.WriteFile(filepath.Join(a.Dir, f.Path), f.Data, 0o600))
}
