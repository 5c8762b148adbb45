package content_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/state"
)

func TestSizesCountEveryFolder(t *testing.T) {
	dir := t.TempDir()
	for name, size := range map[string]int{
		content.TreesDir + "/a/f": 1, content.ContentsDir + "/b/f": 10, content.SitesDir + "/c/sub/f": 100,
		state.StoreDir + "/blobs/sha256/d": 1000, state.StoreDir + "/parts/e": 10000, state.StoreDir + "/" + content.CarriedParts + "/f": 100000,
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("x", size)), 0o600))
	}
	s, err := content.ReadStatus(dir)
	require.NoError(t, err)
	require.Equal(t, content.Status{Blobs: 1000, Trees: 111, Parts: 110000}, s)
}
