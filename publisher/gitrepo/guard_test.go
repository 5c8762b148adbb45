package gitrepo

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/gittest"
)

func TestASourceIsBoundedInAll(t *testing.T) {
	files := &guardedFS{FS: os.DirFS(gittest.WriteFiles(t, "", map[string]string{"a": "12"})), bytes: maxSourceBytes - 1, entries: maxEntries - 1}
	_, err := files.ReadDir(".")
	require.NoError(t, err)
	_, err = files.ReadDir(".")
	require.ErrorIs(t, err, ErrTooLarge)
	file, err := files.Open("a")
	require.NoError(t, err)
	_, err = file.Read(make([]byte, 10))
	require.ErrorIs(t, err, ErrTooLarge)
}
