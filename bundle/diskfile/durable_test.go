package diskfile

import (
	"errors"
	"io"
	"io/fs"
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

func TestAFailedWriteLeavesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "answer.json")
	require.NoError(t, Replace(path, 0o640, []byte("one")))
	refused := errors.New("refused")
	require.ErrorIs(t, ReplaceBy(path, 0o644, func(w io.Writer) error {
		_, err := w.Write([]byte("tw"))
		return errors.Join(err, refused)
	}), refused)
	require.ErrorIs(t, Create(path, []byte("three")), fs.ErrExist)
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "one", string(got))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o640), info.Mode())
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1)
}
