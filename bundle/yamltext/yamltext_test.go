package yamltext

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func parsed(t testing.TB, text string) *File {
	t.Helper()
	f, err := Parse([]byte(text))
	require.NoError(t, err)
	return f
}

func path(t testing.TB, text string) Path {
	t.Helper()
	p, err := ParsePath(text)
	require.NoError(t, err)
	require.Equal(t, mustPath(p.String()), p)
	return p
}

func mustPath(text string) Path { p, _ := ParsePath(text); return p }

const object = `# About the object.
kind: X   # its kind

metadata:
	` + `
  name: drone # not "drone-2"
  labels:
    # Where it is.
    region: 'east'	# a tab before this
    "size": "large"
  annotations:
spec: {a: one, list: [1, two], empty: {}}
text: |
  kind: Y
  # no comment

  end
# The end.
`

func TestSet(t *testing.T) {
	whole := strings.Replace(object, "\t\n", "\n", 1)
	for _, tt := range []struct {
		name, path, value string
		raw               bool
		old, new          string // of the text
	}{
		{name: "a plain value", path: "metadata.name", value: "station", old: "drone # not", new: "station # not"},
		{name: "a value in single quotes", path: "metadata.labels.region", value: "it's", old: "'east'\t#", new: "'it''s'\t#"},
		{name: "a value in double quotes", path: "metadata.labels.size", value: "a\tb", old: `"large"`, new: `"a\tb"`},
		{name: "a text that would be a boolean", path: "kind", value: "on", old: "kind: X   # its", new: `kind: "on"   # its`},
		{name: "a text that would be a number", path: "kind", value: "0x10", old: "kind: X   # its", new: `kind: "0x10"   # its`},
		{name: "a number", path: "kind", value: "3", raw: true, old: "kind: X   # its", new: `kind: 3   # its`},
		{name: "a new key", path: "metadata.labels.edge", value: "true", old: "    \"size\": \"large\"\n", new: "    \"size\": \"large\"\n    edge: \"true\"\n"},
		{name: "a key below one without a value", path: `metadata.annotations["wherry.dev/adapter"]`, value: "flux", old: "  annotations:\n", new: "  annotations:\n    wherry.dev/adapter: flux\n"},
		{name: "a value for a key without one", path: "metadata.annotations", value: "{}", raw: true, old: "  annotations:\n", new: "  annotations: {}\n"},
		{name: "a value between brackets", path: "spec.a", value: "a, b", old: "a: one", new: `a: "a, b"`},
		{name: "an item of a list", path: "spec.list[0]", value: "x", old: "[1, two]", new: "[x, two]"},
		{name: "a new key between brackets", path: "spec.b.c", value: "x", old: "{a: one", new: "{b: {c: x}, a: one"},
		{name: "a new key between brackets that hold nothing", path: "spec.empty.c", value: "x", old: "empty: {}", new: "empty: {c: x}"},
		{name: "nested new keys", path: "more.a.b", value: "x", old: "  end\n# The", new: "  end\nmore:\n  a:\n    b: x\n# The"},
		{name: "in place of a list", path: "spec.list", value: "[3]", raw: true, old: "list: [1, two]", new: "list: [3]"},
		{name: "in place of a mapping", path: "metadata.labels", value: "{a: b}", raw: true, old: "labels:\n    # Where it is.\n    region: 'east'\t# a tab before this\n    \"size\": \"large\"\n", new: "labels: {a: b}\n"},
		{name: "in place of a block text", path: "text", value: "short", old: "|\n  kind: Y\n  # no comment\n\n  end\n", new: "short\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, 1, strings.Count(whole, tt.old), tt.old)
			want := strings.Replace(whole, tt.old, tt.new, 1)
			got, err := parsed(t, whole).Set(0, path(t, tt.path), tt.value, tt.raw)
			require.NoError(t, err)
			require.Equal(t, want, string(got))

			windows := func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }
			got, err = parsed(t, windows(whole)).Set(0, path(t, tt.path), tt.value, tt.raw)
			require.NoError(t, err)
			require.Equal(t, windows(want), string(got), "with CRLF")

			got, err = parsed(t, "a: 1\n---\n"+whole+"---\nb: 1\n").Set(1, path(t, tt.path), tt.value, tt.raw)
			require.NoError(t, err)
			require.Equal(t, "a: 1\n---\n"+want+"---\nb: 1\n", string(got), "between documents")

			got, err = parsed(t, byteOrderMark+strings.TrimSuffix(whole, "\n")).Set(0, path(t, tt.path), tt.value, tt.raw)
			require.NoError(t, err)
			require.Equal(t, byteOrderMark+strings.TrimSuffix(want, "\n"), string(got), "without a last line break")
		})
	}
}

func TestSetInOtherFiles(t *testing.T) {
	for _, tt := range []struct {
		name, text, path, value, want string
	}{
		{"JSON", `{"a": {"b": "c"}}`, "a.d", "e", `{"a": {"d": "e", "b": "c"}}`},
		{"JSON of several lines", "{\n  \"a\": {}\n}\n", "a.d.e", "f", "{\n  \"a\": {\"d\": {\"e\": \"f\"}}\n}\n"},
		{"no line break at the end", "a: b", "c", "d", "a: b\nc: d"},
		{"an item by name", "t:\n- name: x\n  e: 1\n- name: y # why\n  e: 2\n", "t[y].e", "z", "t:\n- name: x\n  e: 1\n- name: y # why\n  e: z\n"},
		{"a new key of an item", "t:\n- name: x\n- name: y\n", "t[0].e", "z", "t:\n- name: x\n  e: z\n- name: y\n"},
		{"a key that is merged", "a: &a {x: y}\nb:\n  <<: *a\n", "b.x", "z", "a: &a {x: y}\nb:\n  <<: *a\n  x: z\n"},
		{"an alias", "a: &a x\nb: *a\n", "b", "z", "a: &a x\nb: z\n"},
		{"a tag", "a: !!str x\n", "a", "z", "a: !!str z\n"},
		{"a written null", "a: ~ # c\n", "a", "z", "a: z # c\n"},
		{"a written null with a key", "a: null # c\n", "a.b", "z", "a: {b: z} # c\n"},
		{"after a text that keeps its line breaks", "a:\n  b: |+\n    x\n\n\nc: d\n", "a.e", "z", "a:\n  b: |+\n    x\n\n\n  e: z\nc: d\n"},
		{"a text of several lines", "a: one\n  two\n  # c\nb: c\n", "a", "z", "a: z\n  # c\nb: c\n"},
		{"a text with a comment on its indicator", "a:\n  b: >2- # c\n     x\n    y\n  # d\n", "a.b", "z", "a:\n  b: z # c\n  # d\n"},
		{"after an anchor with a comment", "a: &a # c\n  b\n", "a", "z", "a: &a # c\n  z\n"},
		{"characters of several bytes", "a: {ü: \"ä\", b: c}\n", "a.b", "ß", "a: {ü: \"ä\", b: ß}\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parsed(t, tt.text).Set(0, path(t, tt.path), tt.value, false)
			require.NoError(t, err)
			require.Equal(t, tt.want, string(got))
		})
	}
}

func TestSplicesAtOnePlaceAreRefusedUnlessTheyAreEqual(t *testing.T) {
	f := Open([]byte("a: b\n"))
	got, err := f.Splice([]Splice{{3, 4, "c"}, {0, 0, "x: y\n"}, {3, 4, "c"}})
	require.NoError(t, err)
	require.Equal(t, "x: y\na: c\n", string(got))
	for _, other := range []Splice{{3, 3, "d"}, {3, 4, "d"}, {2, 4, "d"}} {
		_, err = f.Splice([]Splice{{3, 4, "c"}, other})
		require.ErrorAs(t, err, new(*HardError))
	}
}

// To find a node takes no walk from the beginning of its line: of JSON on one line that would cost the square of its length.
func TestAnOffsetIsThatOfItsCharacter(t *testing.T) {
	var text strings.Builder
	text.WriteString(byteOrderMark + "é: 1\r\nlist: [")
	for i := range 2000 {
		fmt.Fprintf(&text, "%q, ", strings.Repeat("ü🚀a", i%5))
	}
	text.WriteString("]\u2028last: ü\n")
	f := parsed(t, text.String())
	for _, p := range f.nodes() {
		at, err := f.Offset(p.node)
		require.NoError(t, err)
		switch p.node.Kind {
		case yaml.ScalarNode:
			require.Equal(t, p.node.Value, strings.Trim(string(f.data[at:][:len(p.node.Value)+2*min(1, int(p.node.Style))]), `"`))
		case yaml.SequenceNode:
			require.EqualValues(t, '[', f.data[at])
		}
		if begin := f.starts[p.node.Line-1]; p.node.Column > 2*markEvery {
			require.Less(t, at-f.marks[(f.firsts[p.node.Line-1]+p.node.Column-1)/markEvery], markEvery*utf8.UTFMax)
			require.Equal(t, p.node.Column-1, utf8.RuneCount(f.data[begin:at]))
		}
	}
	_, err := f.Offset(&yaml.Node{Line: 5, Column: 1})
	require.ErrorAs(t, err, new(*HardError))
}

func TestWhatCannotBeSetIsRefused(t *testing.T) {
	for _, tt := range []struct{ name, text, path, want string }{
		{"a shared anchor", "a: &a x\nb: *a\n", "a", "it has the anchor &a, which line 2 uses as well"},
		{"below an alias", "a: &a {x: y}\nb: *a\n", "b.x", "it is the alias *a"},
		{"below a text", "a: b\n", "a.c", "there is no mapping that could have the key c"},
		{"no list", "a: b\n", "a[0]", "there is no list"},
		{"no item", "a: [b]\n", "a[1]", "there is no item 1 in a list of 1"},
		{"no name", "a: [{name: x}]\n", "a[y]", `no item of the list has the name "y"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parsed(t, tt.text).Set(0, path(t, tt.path), "z", false)
			require.ErrorAs(t, err, new(*HardError))
			require.ErrorContains(t, err, tt.want)
		})
	}
	_, err := parsed(t, "a: b\n").Set(0, path(t, "a"), "[", true)
	require.ErrorContains(t, err, "not YAML of one line")
	for _, wrong := range []string{"", ".", "a.", "a..b", "a[", "a[]", `a["x]`, "a[0]b"} {
		_, err := ParsePath(wrong)
		require.ErrorContains(t, err, "is no path", wrong)
	}
}

func TestUnset(t *testing.T) {
	whole := strings.Replace(object, "\t\n", "\n", 1)
	for _, tt := range []struct{ path, old string }{
		{"kind", "kind: X   # its kind\n"},
		{"metadata.labels.region", "    region: 'east'\t# a tab before this\n"},
		{"metadata.annotations", "  annotations:\n"},
		{"spec.a", "a: one, "},
		{"spec.empty", ", empty: {}"},
		{"text", "text: |\n  kind: Y\n  # no comment\n\n  end\n"},
	} {
		got, err := parsed(t, whole).Unset(0, path(t, tt.path))
		require.NoError(t, err, tt.path)
		require.Equal(t, strings.Replace(whole, tt.old, "", 1), string(got))
	}
	got, err := parsed(t, "a:\n  b: c\n").Unset(0, path(t, "a.b"))
	require.NoError(t, err)
	require.Equal(t, "a:\n", string(got))
	_, err = parsed(t, "a:\n- b: c\n  d: e\n").Unset(0, path(t, "a[0].b"))
	require.ErrorContains(t, err, "first key of an item")
}

func TestReplaceFollowsAnchors(t *testing.T) {
	f := parsed(t, "a: &x one\nb: *x\nc: *x # c\nd: {k: one}\n")
	n := f.Documents[0].Content
	all := map[*yaml.Node]string{n[1]: "two", n[3]: "two", n[5]: "two", n[7].Content[1]: "two", n[7].Content[0]: "key"}
	got, err := f.Replace(all)
	require.NoError(t, err)
	require.Equal(t, "a: &x two\nb: *x\nc: *x # c\nd: {key: two}\n", string(got))

	delete(all, n[5])
	_, err = f.Replace(all)
	require.ErrorContains(t, err, "it has the anchor &x, which line 3 uses as well")

	got, err = f.Replace(map[*yaml.Node]string{n[3]: "two"})
	require.NoError(t, err)
	require.Equal(t, "a: &x one\nb: two\nc: *x # c\nd: {k: one}\n", string(got))
}

func TestRemove(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		document   int
		want       string
	}{
		{"the first", "# a\na: 1\n---\n# b\nb: 1\n", 0, "# b\nb: 1\n"},
		{"the last", "# a\na: 1\n---\n# b\nb: 1\n", 1, "# a\na: 1\n"},
		{"in the middle", "a: 1\n---\n# b\nb: |\n  x\n---\nc: 1\n", 1, "a: 1\n---\nc: 1\n"},
		{"the first, below a comment of the file", "# A licence.\n\n# a\na: 1\n---\nb: 1\n", 0, "# A licence.\n\n---\nb: 1\n"},
		{"the first with a marker", "---\na: 1\n---\nb: 1\n", 0, "---\nb: 1\n"},
		{"before an end marker", "a: 1\n---\nb: 1\n...\n", 1, "a: 1\n...\n"},
		{"with CRLF", "a: 1\r\n---\r\nb: 1\r\n", 0, "b: 1\r\n"},
		{"beside an empty one", "a: 1\n---\n# nothing\n---\nb: 1\n", 2, "a: 1\n---\n# nothing\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parsed(t, tt.text).Remove(tt.document)
			require.NoError(t, err)
			require.Equal(t, tt.want, string(got))
		})
	}
	for _, text := range []string{"a: 1\n", "# c\n\n---\na: 1\n"} {
		f := parsed(t, text)
		got, err := f.Remove(len(f.Documents) - 1)
		require.NoError(t, err)
		require.Nil(t, got)
	}
}

// corpus is all YAML that the project has, and the cases where they are.
func corpus(t testing.TB) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, root := range []string{"../../examples", "../../cmd/wherry/testdata", "../../scheduler/testdata", os.Getenv("WHERRY_CASES")} {
		if root == "" {
			t.Log("WHERRY_CASES names no folder: Kalypso's cases are not tried")
			continue
		}
		require.NoError(t, filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
			if ext := filepath.Ext(name); err == nil && (ext == ".yaml" || ext == ".yml" || ext == ".json") && e.Type().IsRegular() {
				all[name], err = os.ReadFile(name)
			}
			return err
		}))
	}
	return all
}

func TestEveryScalarOfRealFilesCanBeReplacedAlone(t *testing.T) {
	tried, refused := 0, 0
	for name, data := range corpus(t) {
		f, err := Parse(data)
		if err != nil || len(data) > 20000 {
			continue
		}
		for i, p := range f.nodes() {
			if p.node.Kind != yaml.ScalarNode || p.node.Value == "" || p.node.Value == "<<" || i%3 != 0 {
				continue
			}
			tried++
			got, err := f.Replace(map[*yaml.Node]string{p.node: "another value"})
			if err != nil {
				require.ErrorAs(t, err, new(*HardError), "%s:%d", name, p.node.Line)
				refused++
				continue
			}
			from, to := 0, 0
			for from < min(len(data), len(got)) && data[from] == got[from] {
				from++
			}
			for to < min(len(data), len(got))-from && data[len(data)-1-to] == got[len(got)-1-to] {
				to++
			}
			require.NotContains(t, string(bytes.TrimSuffix(data[from:len(data)-to], []byte("\n"))), "\n---", "%s:%d", name, p.node.Line)
		}
	}
	require.Greater(t, tried, 100)
	require.Less(t, refused, tried/20, "of %d", tried)
	t.Logf("%d replaced, %d refused", tried-refused, refused)
}

func FuzzSet(f *testing.F) {
	for _, data := range corpus(f) {
		if len(data) < 4000 {
			f.Add(string(data), "metadata.labels.edge", "true")
		}
	}
	f.Add(object, "spec.a", "x: y # z")
	f.Fuzz(func(t *testing.T, text, where, value string) {
		file, err := Parse([]byte(text))
		p, wrong := ParsePath(where)
		if err != nil || wrong != nil || len(file.Documents) == 0 || len(text) > 10000 {
			return
		}
		for i := range file.Documents {
			got, err := file.Set(i, p, value, false)
			if err != nil {
				if !errors.As(err, new(*HardError)) {
					t.Fatal(err)
				}
				continue
			}
			again, err := Parse(got)
			require.NoError(t, err)
			n := again.Documents[i]
			for _, step := range p {
				if n = Resolve(n); step.Item {
					n, err = item(n, step)
					require.NoError(t, err)
					continue
				}
				_, n = Pair(n, step.Key)
			}
			require.Equal(t, value, Resolve(n).Value)
		}
		for i := range file.Documents {
			if file.Documents[i] == nil {
				continue
			}
			if _, err := file.Remove(i); err != nil && !errors.As(err, new(*HardError)) {
				t.Fatal(err)
			}
		}
	})
}
