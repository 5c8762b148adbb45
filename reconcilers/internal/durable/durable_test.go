package durable

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAFileIsReplacedAsAWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	require.NoError(t, os.WriteFile(path+".new", []byte("left by a crash, and longer"), 0o644))
	for _, text := range []string{"one", "2"} {
		require.NoError(t, WriteFile(path, []byte(text)))
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, text, string(got))
		require.NoFileExists(t, path+".new")
	}
	require.NoError(t, os.Mkdir(path+".new", 0o700))
	require.ErrorIs(t, WriteFile(path, []byte("three")), syscall.EISDIR)
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "2", string(got))
}
