package platform

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/gittest"
)

func TestWhatIsNotCommittedHasNoCommit(t *testing.T) {
	object1 := func(name string) string { return kalypso + "kind: ClusterType\nmetadata: {name: " + name + "}\n" }
	top := gittest.WriteFiles(t, "", map[string]string{"env/a.yaml": object1("a"), "env/sub/b.yaml": object1("b"), "other/c.yaml": object1("c"), ".gitignore": "ignored.yaml\n"})
	repo, err := git.PlainInit(top, false)
	require.NoError(t, err)
	tree, err := repo.Worktree()
	require.NoError(t, err)
	require.NoError(t, tree.AddGlob("."))
	head, err := tree.Commit("x", &git.CommitOptions{Author: &object.Signature{Name: "a", When: time.Unix(1, 0)}})
	require.NoError(t, err)
	env := filepath.Join(top, "env")
	load := func(bases ...string) *Loaded {
		loaded, err := Load(t.Context(), Source{Platform: env, Environment: "dev", Bases: bases})
		require.NoError(t, err)
		return loaded
	}
	write := func(name, content string) {
		require.NoError(t, os.WriteFile(filepath.Join(top, name), []byte(content), 0o644))
	}

	write("other/c.yaml", object1("changed"))
	write("env/notes.txt", "not read")
	require.Empty(t, load().Uncommitted)
	require.Equal(t, head.String(), load().EnvironmentCommit, "only what is read counts")
	require.Empty(t, load().Uncommitted)
	for name, do := range map[string]func() string{
		"changed":   func() string { write("env/a.yaml", object1("x")); return "a.yaml" },
		"untracked": func() string { write("env/new.yaml", object1("x")); return "new.yaml" },
		"ignored":   func() string { write("env/ignored.yaml", object1("x")); return "ignored.yaml" },
		"deleted":   func() string { require.NoError(t, os.Remove(filepath.Join(env, "sub/b.yaml"))); return "sub/b.yaml" },
	} {
		file := do()
		loaded := load()
		require.Empty(t, loaded.EnvironmentCommit, name)
		require.Equal(t, []string{filepath.ToSlash(env) + "/" + file}, loaded.Uncommitted, name)
		require.NoError(t, os.RemoveAll(env))
		writeFilesAt(t, top, map[string]string{"env/a.yaml": object1("a"), "env/sub/b.yaml": object1("b")})
		require.Equal(t, head.String(), load().EnvironmentCommit, name)
	}
}

func writeFilesAt(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
}
