package content

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
)

func TestTheFirstOfManyPlacesSharedContent(t *testing.T) {
	dir := t.TempDir()
	shared, content := NewShared(dir), digest.FromString("content")
	require.False(t, shared.has(content))
	var all sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		from := filepath.Join(t.TempDir(), "staged")
		require.NoError(t, os.MkdirAll(from, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(from, "a.yaml"), []byte("a"), 0o600))
		all.Go(func() { errs[i] = shared.place(content, from) })
	}
	all.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.True(t, shared.has(content))
	require.FileExists(t, filepath.Join(shared.folder(content), "a.yaml"))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Error(t, shared.place(digest.FromString("other"), filepath.Join(dir, "missing")))
	require.False(t, shared.has(digest.FromString("other")))
}
