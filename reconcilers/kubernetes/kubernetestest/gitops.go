package kubernetestest

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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
)

// GitOps is a site for an engine that applies the content of a git repository: a namespace for the applied objects, with
// the repository's name, a reconciler, and another person's view of the cluster. The names of the engine's own
// objects begin with that name and a hyphen.
type GitOps struct {
	*Cluster
	Place
	Home string // the namespace with the engine's own objects
	URL  string // of the server with the repositories
	Open func(handle string) (reconcilers.Reconciler, error)
	R    reconcilers.Reconciler // made by Start
}

// Start makes the reconciler.
func (g *GitOps) Start(t *testing.T) {
	t.Helper()
	g.Ledger = t.TempDir()
	g.R = g.Reconciler(t)
}

// Reconciler returns a new one, as after a restart.
func (g *GitOps) Reconciler(t *testing.T) reconcilers.Reconciler {
	t.Helper()
	r, err := g.Open(g.Handle(t))
	require.NoError(t, err)
	return r
}

// Namespace is the engine's own.
func (g *GitOps) Namespace() string { return g.Home }

// Own returns the site's objects among the engine's own of a kind.
func (g *GitOps) Own(t *testing.T, kind schema.GroupVersionKind) []unstructured.Unstructured {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	list.SetKind(kind.Kind + "List")
	require.NoError(t, g.List(context.Background(), list, client.InNamespace(g.Home))) // that of a cleanup, too
	return slices.DeleteFunc(list.Items, func(o unstructured.Unstructured) bool { return !strings.HasPrefix(o.GetName(), g.Name) })
}

// Object returns one of them by its name without the prefix, or nil.
func (g *GitOps) Object(t *testing.T, kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	err := g.Get(t.Context(), types.NamespacedName{Namespace: g.Home, Name: g.Name + "-" + name}, u)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return u
}

// Merge writes into an object as somebody else does.
func (g *GitOps) Merge(t *testing.T, o *unstructured.Unstructured, patch string) {
	t.Helper()
	require.NoError(t, g.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// Fill puts the site's name for $NAME, and the git server for $GIT.
func (g *GitOps) Fill(manifests string) string {
	return strings.NewReplacer("$NAME", g.Name, "$GIT", g.URL).Replace(manifests)
}

// Assignment holds one file with the manifests, for the engine's own namespace.
func (g *GitOps) Assignment(t *testing.T, manifests string) reconcilers.Assignment {
	t.Helper()
	a := reconcilers.Assignment{Dir: t.TempDir()}
	f := bundle.File{Path: "reconciler.yaml", Data: []byte(g.Fill(manifests))}
	a.Name, a.Namespace, a.Content = "shop", g.Home, bundle.ContentDigest([]bundle.File{f})
	add(t, a, f)
	return a
}

// Settled applies a and observes until it stands in state, which it has to reach in time.
func (g *GitOps) Settled(t *testing.T, a reconcilers.Assignment, state bundle.State) reconcilers.Result {
	t.Helper()
	res := g.R.Apply(t.Context(), a)
	return g.Observed(t, a, res, func(res reconcilers.Result) bool { return res.State == state })
}

// Observed observes until there is enough to be seen.
func (g *GitOps) Observed(t *testing.T, a reconcilers.Assignment, res reconcilers.Result, enough func(reconcilers.Result) bool) reconcilers.Result {
	t.Helper()
	for end := time.Now().Add(reconcilertest.Patience); !enough(res); res = g.R.Observe(t.Context(), a) {
		require.True(t, time.Now().Before(end), "%s %s: %s (%s)", res.State, res.Reason, res.Message, res.Revision)
		time.Sleep(100 * time.Millisecond)
	}
	return res
}

// Stands is Settled for a state with its reason and words of its message: what an engine says first, while it has not
// seen all that it is to look at, may be something else.
func (g *GitOps) Stands(t *testing.T, a reconcilers.Assignment, state bundle.State, reason, words string) reconcilers.Result {
	t.Helper()
	return g.Observed(t, a, g.R.Apply(t.Context(), a), func(res reconcilers.Result) bool {
		return res.State == state && res.Reason == reason && strings.Contains(res.Message, words)
	})
}

// Removed removes a until it is gone.
func (g *GitOps) Removed(t *testing.T, a reconcilers.Assignment) {
	t.Helper()
	for end := time.Now().Add(reconcilertest.Patience); ; time.Sleep(100 * time.Millisecond) {
		res := g.R.Remove(t.Context(), a)
		if res.State == bundle.Removed {
			return
		}
		require.True(t, time.Now().Before(end), "%s %s: %s", res.State, res.Reason, res.Message)
	}
}

// Values is what reconcilertest needs of such an engine and is the same for all. It holds values in ConfigMaps
// that come from a branch of their own, pinned to a commit.
type Values struct {
	*GitOps
	// Commit makes a commit in a repository, and returns its name.
	Commit func(ctx context.Context, repository, branch string, files map[string]string) (string, error)
	// File has the engine bring a commit of a branch.
	File func(branch, commit string) bundle.File
	// Pinned finds branch and commit in a File, and Form makes the engine's revision of its groups.
	Pinned *regexp.Regexp
	Form   string
	// Kind is the one whose objects bring a value each.
	Kind schema.GroupVersionKind

	commits map[string]string
}

// Pin returns the commit that holds value under name.
func (v *Values) Pin(t *testing.T, name, value string) string {
	t.Helper()
	if known := v.commits[name+"="+value]; known != "" {
		return known
	}
	const text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {value: %q}\n"
	commit, err := v.Commit(t.Context(), v.Name, name, map[string]string{"value.yaml": fmt.Sprintf(text, name, value)})
	require.NoError(t, err)
	if v.commits == nil {
		v.commits = map[string]string{}
	}
	v.commits[name+"="+value] = commit
	return commit
}

// Files is that of reconcilertest.Engine.
func (v *Values) Files(t *testing.T, _ string, content map[string]string) []bundle.File {
	var files []bundle.File
	for name, value := range content {
		files = append(files, v.File(name, v.Pin(t, name, value)))
	}
	return files
}

// Revision is what the engine calls the commits that the files name.
func (v *Values) Revision(t *testing.T, a reconcilers.Assignment) string {
	files, err := filepath.Glob(filepath.Join(a.Dir, "*.yaml"))
	require.NoError(t, err)
	var revisions []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		revisions = append(revisions, string(v.Pinned.Expand(nil, []byte(v.Form), data, v.Pinned.FindSubmatchIndex(data))))
	}
	slices.Sort(revisions)
	return strings.Join(revisions, ", ")
}

// Arrives waits until the engine has brought a value.
func (v *Values) Arrives(t *testing.T, name, value string) {
	t.Helper()
	require.Eventually(t, func() bool {
		got, _ := v.Value(t, "", name)
		return got == value
	}, reconcilertest.Patience, 100*time.Millisecond)
}

// Delete deletes what brings the value, and with it the value.
func (v *Values) Delete(t *testing.T, _, name string) {
	require.NoError(t, v.Client.Delete(t.Context(), v.Object(t, v.Kind, name)))
	require.Eventually(t, func() bool { return v.Object(t, v.Kind, name) == nil }, reconcilertest.Patience, 100*time.Millisecond)
}

// AddForeign creates two objects and adds an annotation to one of the assignment's.
func (v *Values) AddForeign(t *testing.T, _, name string) {
	meta := metav1.ObjectMeta{Namespace: v.Name, Name: "theirs"}
	require.NoError(t, v.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"theirs": "yes"}}))
	meta.Namespace, meta.Name = v.Home, v.Name+"-theirs"
	require.NoError(t, v.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"theirs": "yes"}}))
	t.Cleanup(func() { _ = v.Client.Delete(context.Background(), &corev1.ConfigMap{ObjectMeta: meta}) })
	v.Merge(t, v.Object(t, v.Kind, name), `{"metadata":{"annotations":{"theirs":"yes"}}}`)
}

// CheckForeign looks for them.
func (v *Values) CheckForeign(t *testing.T, _, name string) {
	require.Equal(t, "yes", v.ConfigMap(t, "theirs").Data["theirs"])
	other := &corev1.ConfigMap{}
	require.NoError(t, v.Get(t.Context(), types.NamespacedName{Namespace: v.Home, Name: v.Name + "-theirs"}, other))
	if o := v.Object(t, v.Kind, name); o != nil {
		require.Equal(t, "yes", o.GetAnnotations()["theirs"])
	}
}

// Break adds a file that is no YAML.
func (v *Values) Break(t *testing.T, a reconcilers.Assignment) string {
	return spoil(t, a)
}

// AddFailing adds a value for which the engine finds this manifest.
func (v *Values) AddFailing(t *testing.T, a reconcilers.Assignment, manifest string) {
	t.Helper()
	commit, err := v.Commit(t.Context(), v.Name, "failing", map[string]string{"value.yaml": manifest})
	require.NoError(t, err)
	add(t, a, v.File("failing", commit))
}

func spoil(t *testing.T, a reconcilers.Assignment) (reason string) {
	add(t, a, bundle.File{Path: "broken.yaml", Data: []byte("kind: ConfigMap\n  name: [\n")})
	return kubernetes.InvalidManifest
}

// add puts a file into an assignment.
func add(t *testing.T, a reconcilers.Assignment, f bundle.File) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(a.Dir, f.Path), f.Data, 0o600))
}
