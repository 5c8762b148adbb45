package yamlvalues

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func decodeAll(text string) (all []any, err error) {
	for d := NewDecoder([]byte(text)); ; {
		var value any
		if err := d.Decode(&value); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return all, err
		}
		all = append(all, value)
	}
}

func TestValuesAreTheParsers(t *testing.T) {
	for _, text := range []string{
		"", "---\n", "a: 1\n---\nb: [x, 2.5, null, true, 2026-01-02]\n", "- {a: {b: c}}\n",
		"a: &x {k: v, l: 1}\nb: *x\nc: {<<: *x, l: 2}\n", "a: &x {k: 1}\nb: &y {k: 2, m: 3}\nc: {<<: [*x, *y]}\n",
		"a: !!str 12\nb: !!binary aGFsbG8=\nc: \"\\u2028\"\nd: |\n  x\n  y\n",
	} {
		got, err := decodeAll(text)
		require.NoError(t, err, text)
		var want []any
		for d := yaml.NewDecoder(strings.NewReader(text)); ; {
			var value any
			if err := d.Decode(&value); err != nil {
				break
			}
			want = append(want, value)
		}
		require.Equal(t, want, got, text)
	}
}

func TestAValueOfAnotherTypeLeavesTheRest(t *testing.T) {
	var into struct {
		Kind     string
		Replicas int
		Version  string
	}
	d := NewDecoder([]byte("replicas: many\nkind: A\nversion: 1.10\n---\nkind: B\n"))
	require.ErrorAs(t, d.Decode(&into), new(*TypeError))
	require.Equal(t, "A1.10", into.Kind+into.Version)
	require.NoError(t, d.Decode(&into))
	require.Equal(t, "B", into.Kind)
	require.Equal(t, io.EOF, d.Decode(&into))

	var object map[string]any
	d = NewDecoder([]byte("[a]\n---\na: 1\n"))
	require.ErrorAs(t, d.Decode(&object), new(*TypeError))
	require.NoError(t, d.Decode(&object))
	require.Equal(t, map[string]any{"a": 1}, object)
}

func TestMistakesInYAML(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\nb: 2\na: 3\n":                `line 3: mapping key "a" already defined`,
		"x: {a: {k: 1, k: 2}}\n":            `line 1: mapping key "k" already defined`,
		"? [a]\n: b\n":                      "line 1: a key is a mapping or a list",
		"a: &x [*x]\n":                      `line 1: anchor "x" contains itself`,
		"a: &x {<<: *x}\n":                  `line 1: anchor "x" contains itself`,
		"a: {<<: text}\n":                   "line 1: map merge requires map or sequence of maps as the value",
		"a: [\n":                            "yaml: line 1: did not find expected node content",
		"a: &x 1\nb: *y\n":                  "yaml: unknown anchor 'y' referenced",
		bomb(9, strings.Repeat("x", 1<<10)): "too large: more than 33554432 bytes, with each alias counted as what it stands for",
	} {
		_, err := decodeAll(text)
		require.EqualError(t, err, want, text)
	}
}

// bomb returns a text whose aliases stand for 10^depth times a text.
func bomb(depth int, text string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "a0: &a0 %q\n", text)
	for i := range depth {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 10), ","))
	}
	return b.String()
}

// What Size counts is at least what the expanded text has, however anchors and aliases lie in each other.
func TestSizeCountsWhatAliasesStandFor(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		var b strings.Builder
		anchors := 0
		var node func(depth int)
		node = func(depth int) {
			switch kind := random.IntN(4); {
			case kind == 0 && anchors > 0:
				fmt.Fprintf(&b, "*n%d ", random.IntN(anchors))
			case kind == 1 || depth == 0:
				b.WriteString(strings.Repeat("x", random.IntN(50)+1))
			default:
				b.WriteString("[")
				for range random.IntN(5) {
					node(depth - 1)
					b.WriteString(",")
				}
				b.WriteString("]")
			}
		}
		for range 8 {
			fmt.Fprintf(&b, "k%d: &n%d [", anchors, anchors)
			node(3)
			b.WriteString("]\n")
			anchors++
		}
		size, err := Size([]byte(b.String()), 1<<40)
		require.NoError(t, err)
		all, err := decodeAll(b.String())
		if size > MaxBytes {
			require.ErrorIs(t, err, ErrTooLarge)
			continue
		}
		require.NoError(t, err, b.String())
		expanded := fmt.Sprint(all...)
		require.GreaterOrEqual(t, size, int64(len(expanded)), b.String())
	}
}

// The worst texts of each kind cost in proportion to their length: four times as much for four times the text.
func TestTheCostOfYAMLIsLinear(t *testing.T) {
	for name, text := range hostile {
		t.Run(name, func(t *testing.T) {
			small, large := allocated(t, text(10_000)), allocated(t, text(40_000))
			require.Less(t, float64(large)/float64(small), 6.0)
		})
	}
}

var hostile = map[string]func(n int) string{
	"keys": func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "k%d: \n", i)
		}
		return b.String()
	},
	"a key n times": func(n int) string { return strings.Repeat("k: 1\n", n) },
	"nodes":         func(n int) string { return "a: [" + strings.Repeat("[],", n) + "]\n" },
	"documents":     func(n int) string { return strings.Repeat("---\na: 1\n", n) },
	"aliases": func(n int) string {
		return "a: &a x\nb: [" + strings.Repeat("*a,", n) + "]\n"
	},
	"anchors": func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "- &k%d [*k%d]\n", i, max(i-1, 0))
		}
		return strings.Replace(b.String(), "[*k0]", "[]", 1)
	},
	"merges of one mapping": func(n int) string {
		return "a: &a {x: 1}\nb: {<<: [" + strings.Repeat("*a,", n) + "]}\n"
	},
	"alias bytes": func(n int) string { return bomb(5, strings.Repeat("x", n)) },
}

// allocated returns the bytes that it takes to decode a text, or to refuse it.
func allocated(t *testing.T, text string) uint64 {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _ = decodeAll(text)
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// The parser's own decoder compares 50 billion pairs of these keys.
func TestAFileOfKeysIsRead(t *testing.T) {
	all, err := decodeAll(hostile["keys"](200_000))
	require.NoError(t, err)
	require.Len(t, all[0], 200_000)
}

// BenchmarkHostileYAML shows the time for the worst texts; it grows as their length does.
func BenchmarkHostileYAML(b *testing.B) {
	for name, text := range hostile {
		for _, n := range []int{10_000, 40_000} {
			b.Run(fmt.Sprintf("%s/%d", strings.ReplaceAll(name, " ", "-"), n), func(b *testing.B) {
				made := text(n)
				for b.Loop() {
					_, _ = decodeAll(made)
				}
			})
		}
	}
}
