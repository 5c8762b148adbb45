package platform

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/gittest"
)

func TestWhatAnEnvironmentIsReadFrom(t *testing.T) {
	dir := t.TempDir()
	base, app := filepath.Join(dir, "base.git"), filepath.Join(dir, "app.git")
	gittest.CommitFiles(t, app, "main", appFiles())
	pinned := gittest.CommitFiles(t, base, "main", baseFiles("https://git.example/app"))
	gittest.CommitFiles(t, base, "dev-branch", devFiles("https://git.example/base", pinned))
	source := Source{Platform: "https://git.example/base", Environment: "dev", Mirrors: map[string]string{"https://git.example": dir}}
	require.Equal(t, []gitrepo.Ref{{URL: dir + "/base"}}, FollowedBy(source).Refs)
	loaded, err := Load(t.Context(), source)
	require.NoError(t, err)
	require.Empty(t, loaded.Followed.Folders)
	require.Equal(t, []gitrepo.Ref{
		{URL: dir + "/base"}, {URL: dir + "/base", Branch: "dev-branch"}, {URL: dir + "/app", Branch: "main"},
	}, loaded.Followed.Refs, "the base is pinned to a commit")

	folder := gittest.WriteFiles(t, "", devFiles("https://git.example/base", pinned))
	source.Platform, source.Bases = filepath.Join(folder, "env"), []string{"https://git.example/base#main:platform"}
	loaded, err = Load(t.Context(), source)
	require.NoError(t, err)
	require.Equal(t, []string{source.Platform}, loaded.Followed.Folders)
	require.Equal(t, []gitrepo.Ref{{URL: dir + "/base", Branch: "main"}, {URL: dir + "/app", Branch: "main"}}, loaded.Followed.Refs)
}
