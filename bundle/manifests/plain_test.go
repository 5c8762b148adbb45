package manifests

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// whole reads a document with all of YAML.
func whole(doc []byte) (value any, err error) {
	data, err := yaml.YAMLToJSONStrict(doc)
	if err == nil {
		err = utiljson.Unmarshal(data, &value)
	}
	return value, err
}

// What templates usually write is read without the whole parser.
func TestPlainDocumentsAreReadAsTheWholeParserReadsThem(t *testing.T) {
	for _, text := range []string{
		"", "# nothing\n", "a: b\n", "a:\n", "a:\n  b: c\n\n  d: 'e f'\n", "a:\n- b\n- c: d\n  e: f\n-\n  - g\n- - h\n  - i\nj: 1\n",
		"a: |\n  b\n   c\n\n  d\n\ne: |-\n  # f\ng: {}\nh: []\n", "a: 30s\nb: 1m0s\nc: ./d\ne: /f\ng: true\nh: \"1\"\n", "a: b#c\nd: e,f{g}\n",
		"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  labels:\n    app.kubernetes.io/name: a\ndata:\n  A: \"8080\"\n  B: https://example.com/a?b=c\n",
	} {
		got, ok := plain([]byte(text))
		require.True(t, ok, text)
		want, err := whole([]byte(text))
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{
		"a", "- a\n", "a: b\n c\n", "a: b\n  c: d\n", "a: &b c\n", "a: 010\n", "a: 1.5\n", "a: yes\n", "a: [b]\n", "a: b\na: c\n", "a: \"b\\n\"\n", "a: 'b''c'\n",
		"a: 2024-01-02\n", "a: b: c\n", "a: b # c\n", "a: >\n  b\n", "a: |+\n  b\n", "a:\tb\n", "a: ü\n", "on: b\n", "1: b\n", "a: |\n  b", "a: 1e3\n", "a: 0x1f\n", "a: 12:30\n", "a: !!str 1\n",
	} {
		_, ok := plain([]byte(text))
		require.False(t, ok, text)
	}
}

// Documents of pieces that are near the edges of what is read so.
func TestRandomDocumentsAreReadAsTheWholeParserReadsThem(t *testing.T) {
	keys := []string{"a", "b", "on", "a-b", "a.b/c", "kind", "<<", "1a", "'q'", "null"}
	values := []string{
		"", "b", "1", "-1", "007", "0", "1.5", "1e3", "1m30s", "12:30", "0x1f", "0b1", "1_0", "999999999999999", "9999999999999999", "2024-01-02", "2024-01-02T03:04:05Z", "yes", "True", "true", "false",
		"null", "~", "'q r'", "\"q: r\"", "'it''s'", "\"a\\n\"", "{}", "[]", "{a: b}", "[a]", "|", "|-", "|+", ">", "./x", ".5", ".inf", "/x", "a: b", "a #b", "a#b", "a:b", "a:", "- a", "-", "@a", "*a", "&a b", "!a b", "%a", "?", "? a",
		"=", "x,y", "x}", "#c", "0o17", "1h", "1K", "1Mi", "1inf", "y", "N",
	}
	r := rand.New(rand.NewPCG(1, 2))
	read := 0
	for range 400_000 {
		var doc strings.Builder
		for range 1 + r.IntN(6) {
			doc.WriteString(strings.Repeat(" ", r.IntN(4)))
			for r.IntN(3) == 0 {
				doc.WriteString("- ")
			}
			if r.IntN(5) > 0 {
				doc.WriteString(keys[r.IntN(len(keys))] + ":" + strings.Repeat(" ", r.IntN(3)))
			}
			doc.WriteString(values[r.IntN(len(values))])
			if r.IntN(20) > 0 {
				doc.WriteString("\n")
			}
		}
		got, ok := plain([]byte(doc.String()))
		if !ok {
			continue
		}
		read++
		want, err := whole([]byte(doc.String()))
		require.NoError(t, err, "%q", doc.String())
		require.Equal(t, want, got, "%q", doc.String())
	}
	require.Greater(t, read, 4_000)
}

func FuzzPlain(f *testing.F) {
	f.Add([]byte("a:\n- b: |\n    c\n  d: 30s\ne: 'f'\n"))
	f.Add([]byte("apiVersion: v1\nkind: A\nmetadata:\n  name: a\n  labels: {}\n"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		for _, d := range splitDocuments(doc) {
			got, ok := plain(d.data)
			if !ok {
				continue
			}
			want, err := whole(d.data)
			require.NoError(t, err, "%q", d.data)
			require.Equal(t, want, got, "%q", d.data)
		}
	})
}
