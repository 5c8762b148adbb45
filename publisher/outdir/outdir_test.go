package outdir

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/gittest"
	"github.com/wherry-dev/wherry/scheduler"
)

const readme = scheduler.ReadmeText

// edge is an environment with an assignment on cluster type edge, one that failed there, and an idle type.
func edge() *scheduler.Result {
	return &scheduler.Result{
		Environment: "dev", BaseCommit: "abc",
		ClusterTypes: []scheduler.ClusterTypeResult{
			{
				Name: "edge",
				Assignments: []scheduler.Assignment{{Name: "app-t1", ClusterType: "edge", Files: []scheduler.File{
					{Path: "namespace.yaml"}, {Path: "platform-config.yaml", Data: []byte("c")}, {Path: "reconciler.yaml", Data: []byte("r")},
				}}},
				Failures: []scheduler.Failure{{Name: "app-bad", ClusterType: "edge", Err: errors.New("x")}},
			},
			{Name: "idle"},
		},
	}
}

// edgeTree is what edge looks like in an empty folder.
func edgeTree() map[string]string {
	return map[string]string{
		".github/tracking/Promoted_Commit_Id": "abc",
		"edge/README.md":                      readme, "idle/README.md": readme,
		"edge/app-t1/namespace.yaml": "", "edge/app-t1/platform-config.yaml": "c", "edge/app-t1/reconciler.yaml": "r",
	}
}

func TestTheTreeIsOwnedCompletely(t *testing.T) {
	for _, test := range []struct {
		name     string
		existing map[string]string
		force    bool
		keep     bool
		kept     []string // of existing; the rest must go or be replaced
		refused  string
	}{
		{name: "an empty folder is filled"},
		{name: "a fresh clone is filled", existing: map[string]string{".git/HEAD": "x"}, kept: []string{".git/HEAD"}},
		{
			name: "stale files go, root files and dot folders stay",
			existing: map[string]string{
				"README.md": "root", ".github/workflows/w.yaml": "x", ".github/tracking/Promoted_Commit_Id": "old", ".git/HEAD": "x",
				"edge/README.md": readme, "edge/app-t1/reconciler.yaml": "old", "edge/app-t1/stale.yaml": "x",
				"edge/app-t1/deep/er/stale.yaml": "x", "edge/loose.yaml": "x", "edge/app-gone/namespace.yaml": "x",
			},
			kept: []string{"README.md", ".github/workflows/w.yaml", ".git/HEAD"},
		},
		{
			name: "a cluster type that is gone goes, a folder of somebody's stays",
			existing: map[string]string{
				"gone/README.md": readme, "gone/app-t1/namespace.yaml": "x",
				"docs/README.md": "Our docs", "docs/a.md": "x", ".hidden/README.md": readme,
			},
			kept: []string{"docs/README.md", "docs/a.md", ".hidden/README.md"},
		},
		{
			name:     "a failed assignment keeps its files",
			existing: map[string]string{"edge/README.md": readme, "edge/app-bad/reconciler.yaml": "good", "edge/app-bad/more/x": "y"},
			kept:     []string{"edge/app-bad/reconciler.yaml", "edge/app-bad/more/x"},
		},
		{
			name: "all that is not rendered keeps its files where it is not known what should be there",
			existing: map[string]string{
				"edge/README.md": readme, "edge/app-gone/x": "y", "edge/app-t1/stale.yaml": "x", "edge/loose.yaml": "x", "idle/README.md/x": "folder",
				"idle/app-t1/reconciler.yaml": "good", "gone/README.md": readme, "gone/app-t1/x": "y",
			},
			force: true, keep: true,
			kept: []string{"edge/app-gone/x", "idle/app-t1/reconciler.yaml"},
		},
		{
			name:     "files in place of folders and folders in place of files give way",
			existing: map[string]string{"edge/README.md": readme, "edge/app-t1": "file", "idle/README.md/x": "folder"},
			force:    true,
		},
		{name: "the tracking file alone is a tree too", existing: map[string]string{".github/tracking/Promoted_Commit_Id": "old"}},
		{name: "a folder of somebody's is refused", existing: map[string]string{"letters/a.txt": "x"}, refused: "it holds letters: not written by wherry or Kalypso"},
		{name: "a single file is refused", existing: map[string]string{"a.txt": "x"}, refused: "it holds a.txt: not written by"},
		{
			name:     "somebody's folder with the name of a cluster type is refused",
			existing: map[string]string{"edge/mine.txt": "x", "idle/README.md": readme}, refused: "folder edge: not written by",
		},
		{name: "force takes over", existing: map[string]string{"a.txt": "x", "edge/mine.txt": "x"}, force: true, kept: []string{"a.txt"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := gittest.WriteFiles(t, "", test.existing)
			_, err := Write(t.Context(), dir, edge(), Options{Force: test.force, Keep: test.keep})
			if test.refused != "" {
				require.ErrorIs(t, err, ErrForeign)
				require.ErrorContains(t, err, test.refused)
				require.Equal(t, test.existing, gittest.ReadFiles(t, dir))
				return
			}
			require.NoError(t, err)
			want := edgeTree()
			for _, name := range test.kept {
				want[name] = test.existing[name]
			}
			require.Equal(t, want, gittest.ReadFiles(t, dir))
		})
	}
}

func TestWritingTheSameAgainChangesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	first, err := Write(t.Context(), dir, edge(), Options{})
	require.NoError(t, err)
	require.Len(t, first.Written, len(edgeTree()))
	before, err := os.Stat(filepath.Join(dir, "edge/app-t1/reconciler.yaml"))
	require.NoError(t, err)

	again, err := Write(t.Context(), dir, edge(), Options{})
	require.NoError(t, err)
	require.Equal(t, Changes{Unchanged: len(edgeTree())}, again)
	after, err := os.Stat(filepath.Join(dir, "edge/app-t1/reconciler.yaml"))
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "an equal file was replaced")

	changed := edge()
	changed.ClusterTypes[0].Assignments[0].Files[1].Data = []byte("C")
	changed.ClusterTypes = changed.ClusterTypes[:1]
	third, err := Write(t.Context(), dir, changed, Options{})
	require.NoError(t, err)
	require.Equal(t, Changes{
		Written: []string{"edge/app-t1/platform-config.yaml"}, Removed: []string{"idle/README.md"}, Unchanged: len(edgeTree()) - 2,
	}, third)
}

func TestATrackingFileStaysWhereTheBaseCommitIsNotKnown(t *testing.T) {
	dir := gittest.WriteFiles(t, "", edgeTree())
	result := edge()
	result.BaseCommit = ""
	_, err := Write(t.Context(), dir, result, Options{})
	require.NoError(t, err)
	require.Equal(t, edgeTree(), gittest.ReadFiles(t, dir))
}

func TestLinksInTheOutputLeadNowhere(t *testing.T) {
	outside := gittest.WriteFiles(t, "", map[string]string{"a": "x", "reconciler.yaml": "x"})
	dir := gittest.WriteFiles(t, "", map[string]string{"edge/README.md": readme})
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "edge/app-t1")))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "edge/other")))
	_, err := Write(t.Context(), dir, edge(), Options{})
	require.NoError(t, err)
	require.Equal(t, edgeTree(), gittest.ReadFiles(t, dir))
	require.Equal(t, map[string]string{"a": "x", "reconciler.yaml": "x"}, gittest.ReadFiles(t, outside))

	require.NoError(t, os.RemoveAll(filepath.Join(dir, "idle")))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "idle")))
	_, err = Write(t.Context(), dir, edge(), Options{Force: true})
	require.ErrorContains(t, err, "idle is in the way: not a folder")
	require.Len(t, gittest.ReadFiles(t, outside), 2)
}

func TestAnOutputThatCannotBeAFolderIsSaid(t *testing.T) {
	file := filepath.Join(gittest.WriteFiles(t, "", map[string]string{"f": "x"}), "f")
	for _, place := range []string{file, filepath.Join(file, "below")} {
		_, err := Write(t.Context(), place, edge(), Options{})
		require.ErrorContains(t, err, "not a directory")
	}
}

func TestPathsThatLeaveTheTreeAreRefused(t *testing.T) {
	for _, name := range []string{"..", ".git", "a/../../b", "/etc", ".github"} {
		result := edge()
		result.ClusterTypes[0].Name = name
		dir := t.TempDir()
		_, err := Write(t.Context(), dir, result, Options{})
		require.ErrorContains(t, err, "cannot be a path of the tree", name)
		require.Empty(t, gittest.ReadFiles(t, dir))
	}
}

func TestAnInterruptedWriteLeavesAllAsItWas(t *testing.T) {
	dir := t.TempDir()
	_, err := Write(t.Context(), dir, edge(), Options{})
	require.NoError(t, err)
	before := gittest.ReadFiles(t, dir)
	changed := edge()
	changed.ClusterTypes[0].Assignments[0].Files[0].Data = []byte("changed")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Write(ctx, dir, changed, Options{})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, before, gittest.ReadFiles(t, dir))
}
