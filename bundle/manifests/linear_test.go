package manifests

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const begin = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"

// hostile are the worst texts for the agent's parser, of a size that grows with n.
var hostile = map[string]func(n int) string{
	"keys": func(n int) string {
		var b strings.Builder
		b.WriteString(begin + "data:\n")
		for i := range n {
			fmt.Fprintf(&b, "  k%d: \"\\n\"\n", i)
		}
		return b.String()
	},
	"a key n times":           func(n int) string { return begin + "data:\n" + strings.Repeat("  k: 1\n", n) },
	"nodes":                   func(n int) string { return begin + "spec: [" + strings.Repeat("[],", n) + "]\n" },
	"items":                   func(n int) string { return "apiVersion: v1\nkind: List\nitems:\n" + strings.Repeat("- {}\n", n) },
	"documents with mistakes": func(n int) string { return strings.Repeat("---\na: [\n", n) },
	"aliases":                 func(n int) string { return begin + "data: {a: &a x}\nspec: [" + strings.Repeat("*a,", n) + "]\n" },
	"alias bytes":             func(n int) string { return begin + bomb(n, 6) },
	"merges":                  func(n int) string { return begin + "a: &a {x: 1}\nb: {<<: [" + strings.Repeat("*a,", n) + "]}\n" },
	"a key beside merges": func(n int) string {
		return begin + "a: &a {x: 1}\nb: {<<: *a, x: 1}\nc: {" + strings.Repeat("k: 1, ", n) + "}\n"
	},
}

// bomb returns aliases that stand for 10^depth times n bytes.
func bomb(n, depth int) string {
	text := fmt.Sprintf("a0: &a0 %q\n", strings.Repeat("x", n))
	for i := range depth {
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 10), ","))
	}
	return text
}

func allocated(name, text string) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _ = Read(name, []byte(text))
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Four times the text costs four times as much.
func TestTheCostOfManifestsIsLinear(t *testing.T) {
	for name, text := range hostile {
		t.Run(name, func(t *testing.T) {
			small, large := allocated("a.yaml", text(5_000)), allocated("a.yaml", text(20_000))
			require.Less(t, float64(large)/float64(small), 6.0)
		})
	}
}

// 1 MiB of aliases stood for 4 GiB of text.
func TestAliasesAreCountedByTheBytesThatTheyStandFor(t *testing.T) {
	text := begin + "data:\n  a: &a \"" + strings.Repeat("x", 1<<20) + "\"\nspec: [" + strings.Repeat("*a,", 4000) + "]\n"
	size := Size("a.yaml", []byte(text), 1<<40)
	require.Greater(t, size, int64(4000<<20))
	require.Less(t, size, int64(4010<<20))
	before := allocated("a.yaml", "")
	require.Less(t, allocated("a.yaml", text)-before, uint64(32<<20))
	_, mistakes := Read("a.yaml", []byte("---\n"+begin+"---\n"+text))
	require.Len(t, mistakes, 1)
	require.Equal(t, TooLarge, mistakes[0].Problem)
	require.EqualError(t, mistakes[0], "a.yaml, document 2: too large: more than 16777216 bytes in one document, with each alias counted as what it stands for")
}

func TestTheSizeOfAFileIsThatOfItsDocuments(t *testing.T) {
	one := Size("a.yaml", []byte(begin), 1<<40)
	require.Equal(t, one+int64(len("\n"))+one, Size("a.yaml", []byte(begin+"---\n"+begin), 1<<40))
	require.Greater(t, Size("a.json", []byte(`{"a":["<<<<"]}`), 1<<40), int64(100))
	require.Greater(t, Size("a.yaml", []byte(begin+"---\n"+begin), 100), int64(100), "beyond the limit nothing more is counted")
}

// A mistake has the line of the file, and names a few of many.
func TestTheLinesOfMistakes(t *testing.T) {
	_, err := Parse("a.yaml", []byte(begin+"---\n"+begin+"data: {k: 1,\n k: 2}\n"))
	require.EqualError(t, err, `a.yaml, document 2: line 9: key "k" already set in map`)
	_, err = Parse("a.yaml", []byte(begin+"---\na: b\nc: d: e\n"))
	require.EqualError(t, err, "a.yaml, document 2: line 6: mapping values are not allowed in this context")
	_, err = Parse("a.yaml", []byte(hostile["a key n times"](10_000)))
	require.Equal(t, 10, strings.Count(err.Error(), "\n"))
	require.Regexp(t, "and more$", err.Error())
}

func BenchmarkHostileManifests(b *testing.B) {
	for name, text := range hostile {
		for _, n := range []int{5_000, 20_000} {
			b.Run(fmt.Sprintf("%s/%d", strings.ReplaceAll(name, " ", "-"), n), func(b *testing.B) {
				made := []byte(text(n))
				for b.Loop() {
					_, _ = Read("a.yaml", made)
				}
			})
		}
	}
}
