package platform

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/gittest"
)

func TestSourcesOfRepositories(t *testing.T) {
	repo := t.TempDir() + "/platform.git"
	gittest.CommitFiles(t, repo, "main", map[string]string{"a": "1"})
	dev := gittest.CommitFiles(t, repo, "dev", map[string]string{"a": "2"})
	sources := repositories([]gitrepo.Ref{
		{URL: repo, Branch: "dev"},
		{URL: repo, Branch: "dev"},
		{URL: repo, Branch: "gone"},
		{URL: "https://u:secret@git.example/y", Branch: "main"},
		{URL: "https://git.example/z", Commit: dev},
	}, nil)
	require.Len(t, sources, 2)
	require.Equal(t, repo, sources[0].Name)
	require.Equal(t, "https://git.example/y", sources[1].Name)
	state, err := sources[0].State(t.Context())
	require.NoError(t, err)
	require.Equal(t, "dev "+dev+"\ngone \n", state)
	gittest.CommitFiles(t, repo, "main", map[string]string{"a": "3"})
	again, err := sources[0].State(t.Context())
	require.NoError(t, err)
	require.Equal(t, state, again, "the branch main is not followed")
	moved := gittest.CommitFiles(t, repo, "dev", map[string]string{"a": "3"})
	again, err = sources[0].State(t.Context())
	require.NoError(t, err)
	require.Equal(t, "dev "+moved+"\ngone \n", again)
}

func TestSourcesOfFolders(t *testing.T) {
	dir := gittest.WriteFiles(t, "", map[string]string{"a/b.yaml": "1", ".git/HEAD": "x"})
	source := folder(dir, filepath.Join(dir, "out"))
	state := func() string {
		s, err := source.State(t.Context())
		require.NoError(t, err)
		return s
	}
	before := state()
	require.Equal(t, before, state())
	gittest.WriteFiles(t, dir, map[string]string{".git/HEAD": "other"})
	require.Equal(t, before, state())
	gittest.WriteFiles(t, dir, map[string]string{"out/index.json": "what was published"})
	require.Equal(t, before, state())
	gittest.WriteFiles(t, dir, map[string]string{"a/b.yaml": "22"})
	changed := state()
	require.NotEqual(t, before, changed)
	require.NoError(t, os.Rename(filepath.Join(dir, "a/b.yaml"), filepath.Join(dir, "a/c.yaml")))
	require.NotEqual(t, changed, state())
	_, err := folder(filepath.Join(dir, "none"), "").State(t.Context())
	require.ErrorIs(t, err, os.ErrNotExist)
}
