package scheduler

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/scheduler/yamlvalue"
)

// randomValue is a text for yamlvalue.Parse.
func randomValue(r *rand.Rand, depth int) string {
	words := []string{"a", "b", "name", "42", "1.50", "true", "~", "", "no", "x: y", "- dash", "a b", "0x1F", "2001-01-01", "ünï", "[", "#c", "'q'", "007", "1e3", "!x", "&a", "%", "@", "a:b", "y", "=", "<<", "...", "long " + strings.Repeat("word ", 40)}
	word := func() string { return fmt.Sprintf("%q", words[r.IntN(len(words))]) }
	plain := func() string {
		return []string{"1", "-3", "2.5", "1e3", "true", "no", "~", "0.0", "-0.0", ".inf", "0o7"}[r.IntN(11)]
	}
	switch n := r.IntN(8); {
	case depth > 3 || n < 3:
		return word()
	case n < 4:
		return plain()
	case n < 6:
		var items []string
		for range r.IntN(4) {
			items = append(items, randomValue(r, depth+1))
		}
		return "[" + strings.Join(items, ", ") + "]"
	default:
		var items []string
		for _, key := range []string{"name", "a1", "a10", "a2", "_x", "Z", "no", "n/a", strings.Repeat("k", 120)} {
			if r.IntN(3) == 0 {
				items = append(items, fmt.Sprintf("%q: %s", key, randomValue(r, depth+1)))
			}
		}
		return "{" + strings.Join(items, ", ") + "}"
	}
}

// The writer's own YAML is that of yaml.v3, to the byte; and it is its own for most configurations.
func TestYAMLWriterWritesWhatYAMLDoes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	own := 0
	for range 2000 {
		layers := make([]layer, 1+r.IntN(4))
		for i := range layers {
			for _, key := range []string{"A", "B_2", "B_10", "b.c", "-x", "LIST", "true", "1"} {
				if r.IntN(2) == 0 {
					text := randomValue(r, 0)
					if r.IntN(20) == 0 {
						text = "two\nlines"
					}
					layers[i].entries = append(layers[i].entries, entry{key: key, value: yamlvalue.Parse(text), text: text})
				}
			}
		}
		c := composeAlone(layers)
		require.Equal(t, yamlvalue.Marshal(c.data()), c.yaml)
		known := true
		for _, v := range c.values {
			known = known && v.yaml != ""
		}
		if known {
			own++
		}
	}
	require.Greater(t, own, 200)
}
