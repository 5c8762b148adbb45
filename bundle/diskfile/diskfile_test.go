//go:build unix

package diskfile

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnlyRegularFilesAreOpened(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(at("file"), []byte("text"), 0o600))
	require.NoError(t, os.Symlink("file", at("link")))
	require.NoError(t, syscall.Mkfifo(at("pipe"), 0o600))
	require.NoError(t, os.Symlink("pipe", at("link to a pipe")))
	for name, says := range map[string]string{
		at("pipe"): "it is a pipe, and only regular files are read", at("link to a pipe"): "it is a pipe",
		"/dev/zero": "it is a device", dir: "is a directory", at("nothing"): "no such file",
	} {
		_, err := Open(name)
		require.ErrorContains(t, err, says)
		_, err = Read(name, 4)
		require.ErrorContains(t, err, says)
	}
	for _, name := range []string{"file", "link"} {
		data, err := Read(at(name), 4)
		require.NoError(t, err)
		require.Equal(t, "text", string(data))
		_, err = Read(at(name), 3)
		require.EqualError(t, err, at(name)+" is larger than 3 bytes")
	}
}
