package rendercache

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func openCache(t *testing.T, dir string, maxBytes int64) *Cache {
	t.Helper()
	c, err := Open(dir, Options{MaxBytes: maxBytes})
	require.NoError(t, err)
	return c
}

func TestRenderCacheKeepsWhatIsPut(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "for", "it")
	c := openCache(t, dir, 0)
	require.Nil(t, c.Get("a"))
	c.Put("a", []byte("first"))
	c.Put("b", nil)
	c.Put("a", bytes.Repeat([]byte("second "), 1000))
	another := openCache(t, dir, 0)
	require.Equal(t, bytes.Repeat([]byte("second "), 1000), another.Get("a"))
	require.Empty(t, another.Get("b"))
	info, err := os.Stat(c.name("a"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "configuration may hold what others must not read")
	require.Less(t, info.Size(), int64(1000), "it is compressed")

	scoped, err := Open(dir, Options{Scope: "another platform"})
	require.NoError(t, err)
	require.Nil(t, scoped.Get("a"))
	another.owner = "another build"
	require.Nil(t, another.Get("a"))
}

func TestRenderCacheTrustsNoFile(t *testing.T) {
	c := openCache(t, t.TempDir(), 0)
	c.Put("a", []byte("content of a"))
	sound, err := os.ReadFile(c.name("a"))
	require.NoError(t, err)
	for i := range sound {
		damaged := bytes.Clone(sound)
		damaged[i] ^= 0x20
		require.NoError(t, os.WriteFile(c.name("a"), damaged, 0o600))
		require.Nil(t, c.Get("a"), "byte %d", i)
		require.NoFileExists(t, c.name("a"))
		require.NoError(t, os.WriteFile(c.name("a"), sound[:i], 0o600))
		require.Nil(t, c.Get("a"), "cut at %d", i)
	}
	require.NoError(t, os.WriteFile(c.name("b"), sound, 0o600))
	require.Nil(t, c.Get("b"), "the file of another key")
	require.NoError(t, os.Symlink(c.name("a"), c.name("c")))
	require.Nil(t, c.Get("c"))
	require.NoError(t, os.WriteFile(c.name("a"), sound, 0o600))
	require.Equal(t, "content of a", string(c.Get("a")))
}

func TestRenderCacheWithoutAFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := Open(filepath.Join(file, "below"), Options{})
	require.ErrorContains(t, err, "open cache: ")

	open := t.TempDir()
	require.NoError(t, os.Chmod(open, 0o777))
	_, err = Open(open, Options{})
	require.ErrorContains(t, err, "everybody can write there")

	c := openCache(t, filepath.Join(t.TempDir(), "gone"), 0)
	require.NoError(t, os.RemoveAll(c.dir))
	c.Put("a", []byte("x"))
	require.Nil(t, c.Get("a"))
	c.Trim()
}

func TestRenderCacheIsBounded(t *testing.T) {
	c := openCache(t, t.TempDir(), 1500)
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 30 {
		key := fmt.Sprint(i)
		c.Put(key, []byte(key))
		require.NoError(t, os.Chtimes(c.name(key), start, start.Add(time.Duration(i)*time.Minute)))
	}
	for _, name := range []string{tempPrefix + "old", tempPrefix + "now", "not ours"} {
		require.NoError(t, os.WriteFile(filepath.Join(c.dir, name), nil, 0o600))
	}
	require.NoError(t, os.Chtimes(filepath.Join(c.dir, tempPrefix+"old"), start, start))
	c.now = func() time.Time { return start.Add(10 * time.Hour) }
	require.Equal(t, "0", string(c.Get("0")), "what is used becomes the newest")
	c.Trim()
	c.now = time.Now
	kept := 0
	for i := range 30 {
		if got := c.Get(fmt.Sprint(i)); got != nil {
			kept++
			require.True(t, i == 0 || i > 5, "%d", i)
		}
	}
	require.Greater(t, kept, 10)
	require.NoFileExists(t, filepath.Join(c.dir, tempPrefix+"old"))
	require.FileExists(t, filepath.Join(c.dir, "not ours"))

	idle := openCache(t, c.dir, 1)
	idle.Trim()
	require.NotNil(t, c.Get("29"), "who wrote nothing removes nothing")
}

func TestRenderCacheForSeveralAtOnce(t *testing.T) {
	dir := t.TempDir()
	var group sync.WaitGroup
	for worker := range 8 {
		c := openCache(t, dir, 3000)
		group.Go(func() {
			for i := range 100 {
				key := fmt.Sprint(i % 7)
				if data := c.Get(key); data != nil && !bytes.HasPrefix(data, []byte(key+" ")) {
					t.Errorf("%s: %s", key, data)
				}
				c.Put(key, fmt.Appendf(nil, "%s %d %d", key, worker, i))
				if i%10 == 0 {
					c.Trim()
				}
			}
		})
	}
	group.Wait()
}
