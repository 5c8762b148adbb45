package memo

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// cache counts its puts.
type cache struct {
	data map[string][]byte
	puts int
}

func (c *cache) Get(key string) []byte       { return c.data[key] }
func (c *cache) Put(key string, data []byte) { c.data[key], c.puts = data, c.puts+1 }

func TestWhatWasDerivedIsKeptWhileItIsUsed(t *testing.T) {
	c := &cache{data: map[string][]byte{}}
	derived := 0
	run := func(ids ...byte) {
		t.Helper()
		m := Open(c, "k")
		for _, id := range append(ids, ids...) {
			require.Equal(t, []byte{id}, m.Of(ID{id}, func() []byte { derived++; return []byte{id} }))
		}
		m.Close()
	}
	for _, step := range []struct {
		ids           []byte
		derived, puts int
	}{{[]byte{1, 2}, 2, 1}, {[]byte{2, 1}, 2, 1}, {[]byte{1, 3}, 3, 2}, {[]byte{3}, 3, 3}, {[]byte{1}, 4, 4}} {
		run(step.ids...)
		require.Equal(t, step.derived, derived, "%v", step.ids)
		require.Equal(t, step.puts, c.puts, "%v", step.ids)
	}
	whole := c.data["memo-k"]
	for n := range whole { // torn
		c.data["memo-k"] = whole[:n]
		run(1)
		c.data["memo-k"] = slices.Concat(whole, []byte{255})
		run(1)
	}
	require.Equal(t, []byte{1}, Open(nil, "k").Of(ID{1}, func() []byte { return []byte{1} }))
}

func TestTextsAreReadAsTheyWereWritten(t *testing.T) {
	for _, texts := range [][]string{nil, {""}, {"a", "", "long\n"}} {
		data := AppendTexts(nil, texts...)
		got, ok := Texts[string](data)
		require.True(t, ok)
		require.Equal(t, texts, got)
		for n := range data {
			_, _ = Texts[string](data[:n])
		}
	}
	_, ok := Texts[string]([]byte{5, 'a'})
	require.False(t, ok)
}
