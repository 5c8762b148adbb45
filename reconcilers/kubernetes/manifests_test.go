package kubernetes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/manifests"
	"github.com/wherry-dev/wherry/reconcilers"
)

func TestParseManifests(t *testing.T) {
	const cm = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	for _, c := range []struct {
		name, file, data string
		want             []string // origin and subject
	}{
		{"an empty file has no objects", "a.yaml", "", nil},
		{"comments are no objects", "a.yaml", "# none\n---\n    \n--- # still none\n", nil},
		{"one document has the file as its origin", "a.yaml", cm, []string{"a.yaml ConfigMap/a"}},
		{"a marker at either end makes no document", "a.yaml", "---\n" + cm + "---\n", []string{"a.yaml ConfigMap/a"}},
		{
			"empty documents count, so that numbers are those that a person counts", "a.yaml", cm + "---\n# nothing\n---\n" + cm,
			[]string{"a.yaml, document 1 ConfigMap/a", "a.yaml, document 3 ConfigMap/a"},
		},
		{"a marker in a block of text is text", "a.yaml", cm + "data:\n  a: |\n    x\n    ---\n    y\n", []string{"a.yaml ConfigMap/a"}},
		{"a document may begin on the marker's line", "a.yaml", "--- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n", []string{"a.yaml ConfigMap/a"}},
		{
			"lines may end in carriage returns", "a.yaml", strings.ReplaceAll(cm+"---\n"+cm, "\n", "\r\n"),
			[]string{"a.yaml, document 1 ConfigMap/a", "a.yaml, document 2 ConfigMap/a"},
		},
		{
			"a list is taken apart", "a.yml", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: shop}}\n- {apiVersion: v1, kind: Secret, metadata: {name: b}}\n",
			[]string{"a.yml, item 1 ConfigMap/shop/a", "a.yml, item 2 Secret/b"},
		},
		{"JSON may be indented by tabs", "a.json", "{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"ConfigMap\",\n\t\"metadata\": {\"name\": \"a\"}\n}\n", []string{"a.json ConfigMap/a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			found, err := parseManifests(c.file, []byte(c.data))
			require.NoError(t, err)
			var got []string
			for _, m := range found {
				got = append(got, m.origin+" "+m.subject())
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestInvalidManifestsAreNamedAndNotQuoted(t *testing.T) {
	for _, c := range []struct{ name, file, data, want string }{
		{"broken YAML, by its line in the file", "a.yaml", "# one\n---\n# two\n---\nb: [hunter2\n", "a.yaml, document 3: line 5: did not find expected ',' or ']'"},
		{"a key that is there twice", "a.yaml", "a: hunter2\na: 2\n", `a.yaml: line 2: key "a" already set in map`},
		{"no object", "a.yaml", "hunter2\n", "a.yaml: is not an object"},
		{"an alias of a document's own", "a.yaml", "a: &x [hunter2, *x]\n", "a.yaml: anchor 'x' value contains itself"},
		{"no apiVersion", "a.yaml", "kind: A\n", "a.yaml: has no apiVersion"},
		{"a kind that is not a string", "a.yaml", "apiVersion: v1\nkind: 7\n", "a.yaml: has no kind"},
		{"an impossible apiVersion", "a.yaml", "apiVersion: a/b/c\nkind: A\n", "a.yaml: apiVersion: unexpected GroupVersion string: a/b/c"},
		{"no name", "a.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {generateName: a}\nstringData: {a: hunter2}\n", "a.yaml: Secret has no metadata.name"},
		{"a namespace that is not a string", "a.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: 7}\n", "a.yaml: metadata.namespace of Secret/a is not a string"},
		{"a label that is not a string", "a.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: a, labels: {a: 1}}\n", "a.yaml: metadata.labels of Secret/a: every value has to be a string"},
		{
			"a label that says whose an object is", "a.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: a, labels: {wherry.dev/assignment: b}}\n",
			"a.yaml: Secret/a has the label wherry.dev/assignment, which only the agent sets",
		},
		{"a list of anything", "a.yaml", "apiVersion: v1\nkind: List\nitems: [hunter2]\n", "a.yaml, item 1: is not an object"},
		{"broken JSON", "a.json", "{\"a\": \"hunter2\"", "a.json: unexpected end of JSON input"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parseManifests(c.file, []byte(c.data))
			require.EqualError(t, err, c.want)
			known := reconcilers.Known(err)
			require.NotNil(t, known)
			require.Equal(t, InvalidManifest, known.Reason)
			require.Equal(t, reconcilers.FaultRelease, known.Fault)
		})
	}
}

func TestReadManifestsTakesManifestsOnly(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string]string{
		"namespace.yaml":       "---\n    ", // how Kalypso's template says none
		"platform-config.sh":   "export A=1\n",
		"reconciler.yaml":      "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
		"manifests/deploy.YML": "apiVersion: v1\nkind: Service\nmetadata: {name: b}\n",
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(data), 0o600))
	}
	found, err := readManifests(dir, ".", "")
	require.NoError(t, err)
	require.Len(t, found, 2)
	require.Equal(t, "manifests/deploy.YML", found[0].origin)
	require.Equal(t, "reconciler.yaml", found[1].origin)

	require.NoError(t, os.Truncate(filepath.Join(dir, "reconciler.yaml"), manifests.MaxFileBytes+1))
	_, err = readManifests(dir, ".", "")
	require.ErrorContains(t, err, "reconciler.yaml: more than")
}

func FuzzParseManifests(f *testing.F) {
	f.Add("a.yaml", []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n{}\n"))
	f.Add("a.json", []byte(`{"apiVersion":"v1","kind":"List","items":[{}]}`))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		found, err := parseManifests(name, data)
		if err != nil {
			if known := reconcilers.Known(err); known == nil || known.Reason != InvalidManifest {
				t.Fatalf("error without its reason: %v", err)
			}
			return
		}
		for _, m := range found {
			if m.GetKind() == "" || m.GetAPIVersion() == "" || m.GetName() == "" {
				t.Fatalf("%s is not an object: %v", m.origin, m.Object)
			}
		}
	})
}

// The embedded manifests of an assignment are applied like the rendered ones, in whatever folder and form they are, and have
// the assignment's namespace if they name none. Its charts are no manifests.
func TestEmbeddedManifestsAreReadWithTheOthers(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"namespace.yaml":           "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n",
		"manifests/a/b/config.yml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: deep}\n",
		"manifests/list.yaml":      "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: one}\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: two, namespace: other}\n",
		"manifests/object.json":    `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "json"}}`,
		"manifests/README.md":      "# no manifest",
		"charts/podinfo-6.7.1.tgz": "a chart",
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	p := offline(t)
	var err error
	p.plan.objects, _, err = p.r.read(reconcilers.Assignment{Assignment: bundle.Assignment{Name: "shop", Namespace: "shop", Delivery: bundle.Embedded}, Dir: dir})
	require.NoError(t, err)
	require.NoError(t, p.plan.place(t.Context(), p.r.mapping, "shop"))
	var names []string
	for _, m := range p.plan.objects {
		names = append(names, m.subject())
	}
	require.Equal(t, []string{"ConfigMap/shop/deep", "ConfigMap/shop/one", "ConfigMap/other/two", "ConfigMap/shop/json", "Namespace/shop"}, names)
}
