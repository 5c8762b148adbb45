package author

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func folder(t *testing.T, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return dir
}

// contents returns all files of a folder, temporary ones among them, and marks folders.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		switch {
		case err != nil:
			return err
		case e.IsDir():
			all[rel] = "folder"
		default:
			data, err := os.ReadFile(path)
			all[rel] = string(data)
			return err
		}
		return nil
	}))
	return all
}

func TestAllFilesChangeOrNone(t *testing.T) {
	before := map[string]string{"a.yaml": "a\n", "dir/b.yaml": "b\n", "gone.yaml": "x\n"}
	changes := []FileChange{
		{Name: "a.yaml", Before: []byte("a\n"), After: []byte("A\n")},
		{Name: "new/deep/c.yaml", After: []byte("c\n")},
		{Name: "gone.yaml", Before: []byte("x\n")},
	}
	for _, tt := range []struct {
		name   string
		set    FileSet
		broken func(t *testing.T, dir string)
		want   error
	}{
		{name: "done", set: FileSet{Changes: changes, Moves: []FileMove{{"dir", "other/dir"}}}},
		{
			name: "a file was edited meanwhile", set: FileSet{Changes: append(changes[:3:3], FileChange{Name: "dir/b.yaml", Before: []byte("not b\n"), After: []byte("B\n")})},
			want: ErrChanged,
		},
		{name: "a file is gone", set: FileSet{Changes: append(changes[:3:3], FileChange{Name: "never.yaml", Before: []byte("x"), After: []byte("y")})}, want: ErrChanged},
		{name: "a new file exists", set: FileSet{Changes: append(changes[:3:3], FileChange{Name: "dir/b.yaml", After: []byte("B\n")})}, want: fs.ErrExist},
		{name: "the target of a move exists", set: FileSet{Changes: changes, Moves: []FileMove{{"a.yaml", "dir"}}}, want: fs.ErrExist},
		{name: "the source of a move is gone", set: FileSet{Changes: changes, Moves: []FileMove{{"nothing", "x/y"}}}, want: fs.ErrNotExist},
		{name: "the second of two moves fails", set: FileSet{Changes: changes, Moves: []FileMove{{"dir", "other"}, {"nothing", "x"}}}, want: fs.ErrNotExist},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := folder(t, before)
			was := contents(t, dir)
			tt.set.Root = dir
			require.False(t, tt.set.Empty())
			err := tt.set.Apply()
			if tt.want != nil {
				require.ErrorIs(t, err, tt.want)
				require.Equal(t, was, contents(t, dir))
				return
			}
			require.NoError(t, err)
			require.Equal(t, map[string]string{
				".": "folder", "a.yaml": "A\n", "new": "folder", "new/deep": "folder", "new/deep/c.yaml": "c\n", "other": "folder", "other/dir": "folder", "other/dir/b.yaml": "b\n",
			}, contents(t, dir))
		})
	}
}

func TestAFileKeepsItsMode(t *testing.T) {
	dir := folder(t, map[string]string{"a.yaml": "a"})
	require.NoError(t, os.Chmod(filepath.Join(dir, "a.yaml"), 0o600))
	set := FileSet{Root: dir, Changes: []FileChange{{Name: "a.yaml", Before: []byte("a"), After: []byte("b")}, {Name: "same.yaml"}}}
	require.NoError(t, set.Apply())
	info, err := os.Stat(filepath.Join(dir, "a.yaml"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode())
}

func TestALinkIsNotReplaced(t *testing.T) {
	dir := folder(t, map[string]string{"a.yaml": "a"})
	require.NoError(t, os.Symlink("a.yaml", filepath.Join(dir, "link.yaml")))
	set := FileSet{Root: dir, Changes: []FileChange{{Name: "link.yaml", Before: []byte("a"), After: []byte("b")}}}
	require.ErrorContains(t, set.Apply(), "only regular files")
	require.Equal(t, "a", contents(t, dir)["a.yaml"])
}

func TestGitAppliesADiff(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		var b strings.Builder
		for range random.IntN(30) {
			fmt.Fprintf(&b, "line %d\n", random.IntN(6))
		}
		if random.IntN(4) == 0 {
			b.WriteString("without end")
		}
		return b.String()
	}
	for range 60 {
		a, b := text(), text()
		if a == b || a == "" {
			continue
		}
		dir := folder(t, map[string]string{"f": a})
		cmd := exec.Command("git", "apply", "-")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
		cmd.Stdin = strings.NewReader(Unified("f", []byte(a), []byte(b)))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", out, Unified("f", []byte(a), []byte(b)))
		require.Equal(t, b, contents(t, dir)["f"])
	}
}

func TestADiffShowsNewAndRemovedFiles(t *testing.T) {
	set := FileSet{Changes: []FileChange{{Name: "n", After: []byte("1\n")}, {Name: "o", Before: []byte("1\n2\n")}}, Moves: []FileMove{{"a", "b"}}}
	require.Equal(t, "--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+1\n--- a/o\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-1\n-2\nrename from a\nrename to b\n", set.Diff())
}

// A repository may bring links: nothing is written, moved or removed through one that leads out of it.
func TestNothingIsWrittenOutsideOfTheRoot(t *testing.T) {
	outside := folder(t, map[string]string{"kept.yaml": "kept\n"})
	dir := folder(t, map[string]string{"inside/a.yaml": "a\n"})
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "out")))
	require.NoError(t, os.Symlink("inside", filepath.Join(dir, "within")))
	before := contents(t, outside)
	for name, s := range map[string]FileSet{
		"a new file":            {Changes: []FileChange{{Name: "out/new.yaml", After: []byte("x")}}},
		"a new folder":          {Changes: []FileChange{{Name: "out/a/b/new.yaml", After: []byte("x")}}},
		"a change":              {Changes: []FileChange{{Name: "out/kept.yaml", Before: []byte("kept\n"), After: []byte("x")}}},
		"a removal":             {Changes: []FileChange{{Name: "out/kept.yaml", Before: []byte("kept\n")}}},
		"a move":                {Moves: []FileMove{{From: "inside/a.yaml", To: "out/a.yaml"}}},
		"a move from there":     {Moves: []FileMove{{From: "out/kept.yaml", To: "inside/kept.yaml"}}},
		"a way up":              {Changes: []FileChange{{Name: "../new.yaml", After: []byte("x")}}},
		"one beside a good one": {Changes: []FileChange{{Name: "good.yaml", After: []byte("x")}, {Name: "out/new.yaml", After: []byte("x")}}},
	} {
		s.Root = dir
		err := s.Apply()
		require.ErrorIs(t, err, ErrOutside, name)
		require.NoFileExists(t, filepath.Join(dir, "good.yaml"))
		require.Equal(t, before, contents(t, outside), name)
	}
	s := FileSet{Root: dir, Changes: []FileChange{{Name: "within/b.yaml", After: []byte("b")}}}
	require.NoError(t, s.Apply(), "a link may stay inside")
	require.FileExists(t, filepath.Join(dir, "inside", "b.yaml"))
}
