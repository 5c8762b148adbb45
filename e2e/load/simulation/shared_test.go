package simulation

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
	files, content := newShared(dir), digest.FromString("content")
	require.False(t, files.Has(content))
	var all sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		from := filepath.Join(t.TempDir(), "staged")
		require.NoError(t, os.MkdirAll(from, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(from, "a.yaml"), []byte("a"), 0o600))
		all.Go(func() { errs[i] = files.Place(content, from) })
	}
	all.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.True(t, files.Has(content))
	require.FileExists(t, filepath.Join(files.Folder(content), "a.yaml"))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Error(t, files.Place(digest.FromString("other"), filepath.Join(dir, "missing")))
	require.False(t, files.Has(digest.FromString("other")))
}
