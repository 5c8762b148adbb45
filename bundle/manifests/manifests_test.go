package manifests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func read(t *testing.T, name, text string) []string {
	t.Helper()
	found, err := Parse(name, []byte(text))
	require.NoError(t, err)
	var all []string
	for _, o := range found {
		data, err := json.Marshal(o.Object)
		require.NoError(t, err)
		all = append(all, string(data))
	}
	return all
}

func TestManifestsAreReadAsKubectlReadsThem(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{
			"a key that overrides a merged one", "apiVersion: v1\nkind: List\nitems:\n- &item\n  apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: one}\n  data: &d {k: v}\n- <<: *item\n  metadata: {name: two}\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: three}, data: *d}\n",
			[]string{
				`{"apiVersion":"v1","data":{"k":"v"},"kind":"ConfigMap","metadata":{"name":"one"}}`,
				`{"apiVersion":"v1","data":{"k":"v"},"kind":"ConfigMap","metadata":{"name":"two"}}`,
				`{"apiVersion":"v1","data":{"k":"v"},"kind":"ConfigMap","metadata":{"name":"three"}}`,
			},
		},
		{"several merges", "apiVersion: v1\nkind: A\nmetadata: {name: a}\nj: &x {a: 1, b: 1}\nk: &y {b: 2, c: 2}\nl: {<<: [*x, *y], c: 3}\n", []string{`{"apiVersion":"v1","j":{"a":1,"b":1},"k":{"b":2,"c":2},"kind":"A","l":{"a":1,"b":1,"c":3},"metadata":{"name":"a"}}`}},
		{"metadata without a value", "apiVersion: v1\nkind: A\nmetadata:\n  name: a\n  namespace:\n  labels:\n  annotations:\n    x:\n", []string{`{"apiVersion":"v1","kind":"A","metadata":{"annotations":{"x":""},"name":"a"}}`}},
		{"a list without items", "apiVersion: v1\nkind: List\n", nil},
		{"a directive", "%YAML 1.1\n---\napiVersion: v1\nkind: A\nmetadata: {name: a}\n", []string{`{"apiVersion":"v1","kind":"A","metadata":{"name":"a"}}`}},
		{"old booleans", "apiVersion: v1\nkind: A\nmetadata: {name: a}\nx: yes\n", []string{`{"apiVersion":"v1","kind":"A","metadata":{"name":"a"},"x":true}`}},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, read(t, "a.yaml", c.text)) })
	}
}

// Of a key that is there twice nobody knows which one is right, whatever the document merges.
func TestAKeyThatIsThereTwiceIsAMistakeBesideMergeKeys(t *testing.T) {
	_, err := Parse("a.yaml", []byte("a: &a {x: 1}\nb: {<<: *a, x: 2}\nc: 1\nc: 2\n"))
	require.ErrorContains(t, err, `already set in map`)
}

func TestDocumentsAfterAMistakeAreRead(t *testing.T) {
	found, mistakes := Read("a.yaml", []byte("a: [\n---\nkind: A\n---\n- 1\n---\napiVersion: v1\nkind: A\nmetadata: {name: a}\n"))
	require.Len(t, found, 1)
	require.Equal(t, 4, found[0].Document)
	require.Len(t, mistakes, 3)
	require.Equal(t, []Problem{Syntax, NoObject, NoObject}, []Problem{mistakes[0].Problem, mistakes[1].Problem, mistakes[2].Problem})
	require.Equal(t, "apiVersion", mistakes[1].Field)
}

// The files of a public bug report: anchors of one item of a list are used in another.
func TestAnchorsAcrossTheItemsOfAList(t *testing.T) {
	root := os.Getenv("WHERRY_CASES")
	if root == "" {
		t.Log("WHERRY_CASES is not set: its files are not read")
		return
	}
	for file, want := range map[string][]string{
		"plain/anchored.yaml": {`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"labels":{"app":"web"},"name":"web"},"spec":{"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"env":[{"name":"A","value":"1"}],"image":"registry.invalid/web:1.0","name":"web"},{"env":[{"name":"A","value":"1"}],"image":"registry.invalid/web:1.0","name":"side"}]}}}}`},
		"plain/list.yaml": {
			`{"apiVersion":"v1","data":{"k":"v"},"kind":"ConfigMap","metadata":{"name":"three"}}`,
			`{"apiVersion":"v1","data":{"k":"v"},"kind":"ConfigMap","metadata":{"name":"four"}}`,
			`{"apiVersion":"v1","data":{"k":"v"},"kind":"ConfigMap","metadata":{"name":"five"}}`,
		},
		"chart/templates/list.yaml": {
			`{"apiVersion":"v1","data":{"key":"value"},"kind":"ConfigMap","metadata":{"name":"cm-a"}}`,
			`{"apiVersion":"v1","data":{"key":"value"},"kind":"ConfigMap","metadata":{"name":"cm-b"}}`,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"image":"registry.invalid/one:1.0","name":"one"},{"image":"registry.invalid/one:1.0","name":"two"}]}}`,
		},
	} {
		data, err := os.ReadFile(filepath.Join(root, "reports/06-helm-list-with-anchors/work", file))
		require.NoError(t, err)
		require.Equal(t, want, read(t, file, string(data)), file)
	}
}
