package publisher

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
)

// countingCache counts the trees that were packed.
type countingCache struct {
	*RenderCache
	packed int
}

func (c *countingCache) Put(key string, data []byte) {
	c.packed++
	c.RenderCache.Put(key, data)
}

func TestTreesArePackedOnce(t *testing.T) {
	cache := &countingCache{RenderCache: openCache(t, t.TempDir(), 0)}
	base := func() []bundle.File {
		return []bundle.File{{Path: "b/x", Data: []byte("1")}, {Path: "a/y", Data: []byte("2")}, {Path: "c", Executable: true}}
	}
	for i, c := range []struct {
		name   string
		packed int
		change func([]bundle.File) []bundle.File
	}{
		{"the first time", 1, func(f []bundle.File) []bundle.File { return f }},
		{"again", 0, func(f []bundle.File) []bundle.File { return f }},
		{"in another order", 0, func(f []bundle.File) []bundle.File { f[0], f[1] = f[1], f[0]; return f }},
		{"another content", 1, func(f []bundle.File) []bundle.File { f[0].Data = []byte("3"); return f }},
		{"another path", 1, func(f []bundle.File) []bundle.File { f[0].Path = "b/z"; return f }},
		{"another mode", 1, func(f []bundle.File) []bundle.File { f[0].Executable = true; return f }},
		{"text that moves from a name to a file", 1, func(f []bundle.File) []bundle.File {
			f[0].Path, f[0].Data = "b/x1", nil
			return f
		}},
		{"one file less", 1, func(f []bundle.File) []bundle.File { return f[1:] }},
		{"none", 1, func([]bundle.File) []bundle.File { return nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			cache.packed = 0
			files := c.change(base())
			want, err := bundle.Pack(files)
			require.NoError(t, err)
			for range 2 {
				got, err := packTree(cache, files)
				require.NoError(t, err)
				require.Equal(t, want, got, "%d", i)
			}
			require.Equal(t, c.packed, cache.packed)
		})
	}
	_, err := packTree(cache, []bundle.File{{Path: "../x"}})
	require.Error(t, err)
	cache.RenderCache.Put("tree-"+treeKey(base()), []byte("no tree"))
	got, err := packTree(cache, base())
	require.NoError(t, err)
	want, err := bundle.Pack(base())
	require.NoError(t, err)
	require.Equal(t, want, got)
	without, err := packTree(nil, base())
	require.NoError(t, err)
	require.Equal(t, want, without)
}
