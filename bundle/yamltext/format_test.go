package yamltext

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFormat(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"formatted text", object[:0] + "a: 1\n", "a: 1\n"},
		{"nothing", "", ""},
		{"space at the end of lines", "a: 1 \t\nb:\t2\t# c \n", "a: 1\nb:\t2\t# c\n"},
		{"no line break at the end", "a: 1", "a: 1\n"},
		{"blank lines", "\n\na: 1\n\n\n\nb: 2\n\n\n", "a: 1\n\nb: 2\n"},
		{"CRLF", "b:\r\n    c: 1  \r\n\r\n\r\nd: 2", "b:\r\n  c: 1\r\n\r\nd: 2\r\n"},
		{"indentation", "a:\n     b:\n        c: 1\n     d: 2\n", "a:\n  b:\n    c: 1\n  d: 2\n"},
		{"lists", "a:\n- b: 1\n  c: 2\n-   d: 3\n    e:\n    - 4\n", "a:\n  - b: 1\n    c: 2\n  - d: 3\n    e:\n      - 4\n"},
		{"lists in lists", "-   - a\n    -   b: 1\n        c: 2\n-\n    d: 3\n", "- - a\n  - b: 1\n    c: 2\n-\n  d: 3\n"},
		{"the header", "# about it\nmetadata:\n  name: x\n# the kind\nkind: K # k\nspec: {}\nstatus: {}\napiVersion: v1\n", "# about it\napiVersion: v1\n# the kind\nkind: K # k\nmetadata:\n  name: x\nspec: {}\nstatus: {}\n"},
		{"the header of each document", "kind: A\napiVersion: v1\n---\n# two\nkind: B\napiVersion: v1\n# end", "apiVersion: v1\nkind: A\n---\n# two\napiVersion: v1\nkind: B\n# end\n"},
		{"keys without a kind", "b: 1\napiVersion: 2\n", "b: 1\napiVersion: 2\n"},
		{"comments", "a:\n    # one\n    b: 1\n    # two\n# three\nc:\n# four\n- d\n# five\n- e: 1\n  # six\n  f: 2\n  # seven\n", "a:\n  # one\n  b: 1\n  # two\n# three\nc:\n  # four\n  - d\n  # five\n  - e: 1\n    # six\n    f: 2\n    # seven\n"},
		{"a block text", "a:\n    b: |\n          one\n            two  \n\n          {{ three }}\n    c: 1\n", "a:\n  b: |\n    one\n      two  \n\n    {{ three }}\n  c: 1\n"},
		{"a block text with an indicator", "a:\n    b: |4-\n           one\n        two\n", "a:\n  b: |4-\n         one\n      two\n"},
		{"a block text that keeps its end", "a: |+\n   one\n\n\n", "a: |+\n  one\n\n\n"},
		{"a folded text in a list", "a:\n- >-\n   one\n   two\n-    b: |\n         x\n", "a:\n  - >-\n    one\n    two\n  - b: |\n      x\n"},
		{"a block text without a last line break", "a: |\n    one", "a: |\n  one"},
		{"a text of several lines", "a:\n    b: one\n       two\n    c: \"three  \n\n      four\"\n", "a:\n  b: one\n     two\n  c: \"three  \n\n    four\"\n"},
		{"brackets of several lines", "a:\n    b: {\n      c: 1, # one\n      d: [\n        2 ]\n    }\n", "a:\n  b: {\n    c: 1, # one\n    d: [\n      2 ]\n  }\n"},
		{"anchors", "a: &a\n    b: 1\nc:\n    <<: *a\n    d: &d\n    - 1\ne: *d\n", "a: &a\n  b: 1\nc:\n  <<: *a\n  d: &d\n    - 1\ne: *d\n"},
		{"an anchor before what has it", "metadata: &m {name: x}\napiVersion: v1\nkind: K\nspec: *m\n", "apiVersion: v1\nkind: K\nmetadata: &m {name: x}\nspec: *m\n"},
		{"an alias that would come first", "x: &x\n    y: 1\nkind: K\nspec: *x\n", "x: &x\n  y: 1\nkind: K\nspec: *x\n"},
		{"values below their keys", "a:\n    \"one\"\nb:\n   {c: 1}\n", "a:\n  \"one\"\nb:\n  {c: 1}\n"},
		{"keys of several lines", "? a\n: b\n? [c,  \n  d]\n: e  \n", "? a\n: b\n? [c,\n  d]\n: e\n"},
		{"a byte order mark", byteOrderMark + "a:\n   b: 1\n", byteOrderMark + "a:\n  b: 1\n"},
		{"empty documents", "---\n---\na: 1\n...\n---\n# c\n", "---\n---\na: 1\n...\n---\n# c\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Format([]byte(tt.text))
			require.NoError(t, err)
			require.Equal(t, tt.want, string(got))
			requireFormatted(t, []byte(tt.text))
		})
	}
	_, err := Format([]byte("a: [\n"))
	require.Error(t, err)
}

// requireFormatted requires that formatting keeps the values and the comments, and changes nothing the second time.
func requireFormatted(t *testing.T, data []byte) (changed bool) {
	t.Helper()
	got, err := Format(data)
	require.NoError(t, err)
	require.True(t, same(data, got), "%s\n->\n%s", data, got)
	again, err := Format(got)
	require.NoError(t, err)
	require.Equal(t, string(got), string(again))
	return string(got) != string(data)
}

func TestFormatKeepsWhatRealFilesMean(t *testing.T) {
	files, changed, indented := 0, 0, 0
	for name, data := range corpus(t) {
		if _, err := Parse(data); err != nil {
			continue
		}
		files++
		if requireFormatted(t, data) {
			changed++
		}
		got, _ := format(data, true, true)
		if out, _ := Format(data); string(out) == string(got) || strings.HasSuffix(name, ".json") {
			indented++
		} else {
			t.Logf("%s is not in the whole form", name)
		}
	}
	require.Greater(t, files, 20)
	require.Greater(t, indented, files*9/10)
	t.Logf("%d files, %d changed", files, changed)
}

func FuzzFormat(f *testing.F) {
	for _, data := range corpus(f) {
		if len(data) < 4000 {
			f.Add(string(data))
		}
	}
	f.Add(object)
	f.Add("- - a\n  -   b: |2\n       x\n")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := Parse([]byte(text)); err == nil && len(text) < 10000 {
			requireFormatted(t, []byte(text))
		}
	})
}
