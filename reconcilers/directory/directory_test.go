package directory_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/directory"
	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
)

func TestMain(m *testing.M) {
	reconcilertest.Child(func(root string) (reconcilers.Reconciler, error) {
		return directory.New(root, directory.Options{}), nil
	})
	if text := os.Getenv(childVariable); text != "" {
		fetch(text)
	}
	os.Exit(m.Run())
}

func TestConformance(t *testing.T) {
	const atOnce = "a folder is replaced within the call, and no engine comes after it"
	reconcilertest.Run(t, reconcilertest.Adapter{
		Name: "directory",
		On:   "the file system",
		Start: func(t *testing.T) reconcilertest.Engine {
			return &engine{root: filepath.Join(t.TempDir(), "root")}
		},
		Without: map[reconcilertest.Case]string{
			reconcilertest.Progress:    atOnce,
			reconcilertest.OlderGreen:  atOnce,
			reconcilertest.Deadline:    atOnce,
			reconcilertest.EngineFails: atOnce,
		},
	})
}

// engine is the file system.
type engine struct{ root string }

func (e *engine) Reconciler(*testing.T) reconcilers.Reconciler {
	return directory.New(e.root, directory.Options{})
}

func (e *engine) Handle(*testing.T) string { return e.root }

func (e *engine) Namespace() string { return "" }

func (e *engine) path(assignment, name string) string {
	return filepath.Join(e.root, assignment, "values", name+".txt")
}

func (e *engine) Files(_ *testing.T, _ string, content map[string]string) []bundle.File {
	var files []bundle.File
	for name, value := range content {
		files = append(files, bundle.File{Path: "values/" + name + ".txt", Data: []byte(value)})
	}
	return files
}

func (e *engine) Value(t *testing.T, assignment, name string) (string, bool) {
	data, err := os.ReadFile(e.path(assignment, name))
	if os.IsNotExist(err) {
		return "", false
	}
	require.NoError(t, err)
	return string(data), true
}

// Writes names every file and folder with the time when it was written.
func (e *engine) Writes(t *testing.T, assignment string) string {
	var found []string
	require.NoError(t, filepath.WalkDir(filepath.Join(e.root, assignment), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			found = append(found, fmt.Sprint(path, info.ModTime().UnixNano()))
		}
		return err
	}))
	return strings.Join(found, "\n")
}

func (e *engine) Tamper(t *testing.T, assignment, name, value string) {
	require.NoError(t, os.WriteFile(e.path(assignment, name), []byte(value), 0o644))
}

func (e *engine) Delete(t *testing.T, assignment, name string) {
	require.NoError(t, os.Remove(e.path(assignment, name)))
}

func (e *engine) AddForeign(t *testing.T, _, _ string) {
	require.NoError(t, os.MkdirAll(filepath.Join(e.root, "coredns"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(e.root, "coredns", "values.txt"), []byte("theirs"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(e.root, "ccm.yaml"), []byte("theirs"), 0o600))
}

func (e *engine) CheckForeign(t *testing.T, _, _ string) {
	for _, name := range []string{"coredns/values.txt", "ccm.yaml"} {
		data, err := os.ReadFile(filepath.Join(e.root, name))
		require.NoError(t, err)
		require.Equal(t, "theirs", string(data))
	}
}

// Obstruct puts somebody else's file where the folder is to be.
func (e *engine) Obstruct(t *testing.T, assignment string) (reason string, mend func()) {
	path := filepath.Join(e.root, assignment)
	require.NoError(t, os.MkdirAll(e.root, 0o755))
	require.NoError(t, os.WriteFile(path, []byte("theirs"), 0o600))
	return directory.NotOurs, func() { require.NoError(t, os.Remove(path)) }
}

func (e *engine) Break(t *testing.T, a reconcilers.Assignment) string {
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(a.Dir, "link")))
	return directory.InvalidAssignment
}

// assignment writes files and returns the assignment that consists of them.
func assignment(t testing.TB, name string, files map[string]string) reconcilers.Assignment {
	t.Helper()
	a := reconcilers.Assignment{Dir: t.TempDir()}
	a.Name = name
	write(t, a.Dir, files)
	return a
}

func write(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for name, data := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(data), 0o644))
	}
}

// contents returns every file below dir, but for marks.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) == ".owned" {
			return err
		}
		data, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		got[rel] = string(data)
		return err
	}))
	return got
}

// requireEmpty fails t unless nothing is left in a root.
func requireEmpty(t *testing.T, root string) {
	t.Helper()
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// requireMarksOnly fails t unless all that is left beside the folders is that these assignments have theirs.
func requireMarksOnly(t *testing.T, root string, assignments ...string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, ".wherry"))
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".owned"))
	}
	require.Equal(t, assignments, names)
}

func TestACrashAtAnyStepIsRepaired(t *testing.T) {
	before, after := map[string]string{"a.yaml": "old", "gone.yaml": "old"}, map[string]string{"a.yaml": "new", "sub/b.yaml": "new"}
	const live, spare, previous = "drone", ".wherry/drone.spare", ".wherry/drone.previous"
	for _, c := range []struct {
		name    string
		folders map[string]map[string]string
	}{
		{"before the first folder was put in place", map[string]map[string]string{spare: after}},
		{"before anything was staged", map[string]map[string]string{live: before}},
		{"while files were staged", map[string]map[string]string{live: before, spare: {".wherry-part": "n"}}},
		{"before the exchange", map[string]map[string]string{live: before, spare: after}},
		{"after the exchange", map[string]map[string]string{live: after, spare: before}},
		{"while the old content was deleted", map[string]map[string]string{live: after, spare: {"gone.yaml": "old"}}},
		{"between two renames", map[string]map[string]string{previous: before, spare: after}},
		{"after two renames", map[string]map[string]string{live: after, previous: before}},
		{"while a removed folder was deleted", map[string]map[string]string{spare: {"a.yaml": "old"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, call := range []string{"apply", "remove"} {
				root := t.TempDir()
				for name, files := range c.folders {
					write(t, filepath.Join(root, name), files)
				}
				write(t, root, map[string]string{".wherry/drone.owned": ""})
				r, a := directory.New(root, directory.Options{}), assignment(t, live, after)
				if call == "remove" {
					require.Equal(t, bundle.Removed, r.Remove(t.Context(), a).State)
					requireEmpty(t, root)
					continue
				}
				require.Equal(t, bundle.Compliant, r.Apply(t.Context(), a).State)
				require.Equal(t, map[string]string{"drone/a.yaml": "new", "drone/sub/b.yaml": "new"}, contents(t, root))
			}
		})
	}
}

func TestACrashAfterTheMarkWentIsRepaired(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{".wherry/drone.spare/a.yaml": "old"})
	r, a := directory.New(root, directory.Options{}), assignment(t, "drone", map[string]string{"a": "1"})
	write(t, root, map[string]string{"drone/theirs": "1"})
	require.Equal(t, directory.NotOurs, r.Apply(t.Context(), a).Reason)
	require.Equal(t, bundle.Removed, r.Remove(t.Context(), a).State)
	require.Equal(t, map[string]string{"drone/theirs": "1"}, contents(t, root))
	require.NoDirExists(t, filepath.Join(root, ".wherry"))
}

func TestADirectoryOfAnotherKindIsNotTaken(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(path string) error
	}{
		{"a file", func(p string) error { return os.WriteFile(p, []byte("theirs"), 0o600) }},
		{"a link to a folder", func(p string) error { return os.Symlink(os.TempDir(), p) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			require.NoError(t, c.make(filepath.Join(root, "drone")))
			was, err := os.Lstat(filepath.Join(root, "drone"))
			require.NoError(t, err)
			r, a := directory.New(root, directory.Options{}), assignment(t, "drone", map[string]string{"a": "1"})
			for _, res := range []reconcilers.Result{r.Apply(t.Context(), a), r.Observe(t.Context(), a)} {
				require.Equal(t, bundle.Failed, res.State)
				require.Equal(t, directory.NotOurs, res.Reason)
			}
			require.Equal(t, bundle.Removed, r.Remove(t.Context(), a).State, "nothing of ours is there")
			is, err := os.Lstat(filepath.Join(root, "drone"))
			require.NoError(t, err)
			require.Equal(t, was.Mode(), is.Mode())
		})
	}
}

func TestNamesThatAreNoFolderOfTheRootAreRefused(t *testing.T) {
	outside := t.TempDir()
	root := filepath.Join(outside, "root")
	r := directory.New(root, directory.Options{})
	for _, name := range []string{"", ".", "..", "../escape", "a/b", `a\b`, "/etc", ".wherry"} {
		a := assignment(t, name, map[string]string{"a": "1"})
		for _, res := range []reconcilers.Result{r.Apply(t.Context(), a), r.Observe(t.Context(), a), r.Remove(t.Context(), a)} {
			require.Equal(t, bundle.Failed, res.State, name)
			require.Equal(t, directory.InvalidAssignment, res.Reason, name)
		}
	}
	require.Empty(t, contents(t, outside))
}

func TestExecutableBitsArriveAndCount(t *testing.T) {
	root := t.TempDir()
	r, a := directory.New(root, directory.Options{}), assignment(t, "drone", map[string]string{"run.sh": "#!/bin/sh\n"})
	require.NoError(t, os.Chmod(filepath.Join(a.Dir, "run.sh"), 0o755))
	require.Equal(t, bundle.Compliant, r.Apply(t.Context(), a).State)
	info, err := os.Stat(filepath.Join(root, "drone", "run.sh"))
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&0o100)
	require.NoError(t, os.Chmod(filepath.Join(root, "drone", "run.sh"), 0o644))
	res := r.Observe(t.Context(), a)
	require.Equal(t, bundle.Drifted, res.State)
	require.Equal(t, "drone/run.sh differs", res.Message)
}

func TestAReaderNeverSeesAMixture(t *testing.T) {
	root := t.TempDir()
	r := directory.New(root, directory.Options{})
	one := assignment(t, "drone", map[string]string{"a": "1", "b": "1"})
	two := assignment(t, "drone", map[string]string{"a": "2", "b": "2"})
	require.Equal(t, bundle.Compliant, r.Apply(t.Context(), one).State)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 20 {
			r.Apply(t.Context(), two)
			r.Apply(t.Context(), one)
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		// A reader that has opened the folder reads all of it from one content.
		dir, err := os.OpenRoot(filepath.Join(root, "drone"))
		require.NoError(t, err, "the folder is always there")
		a, errA := dir.ReadFile("a")
		b, errB := dir.ReadFile("b")
		if errA == nil && errB == nil { // else it was replaced, and deleted, meanwhile
			require.Equal(t, string(a), string(b))
		}
		dir.Close()
	}
}

func TestARootThatIsAFileIsNamed(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	require.NoError(t, os.WriteFile(root, nil, 0o600))
	res := directory.New(root, directory.Options{}).Apply(t.Context(), assignment(t, "drone", map[string]string{"a": "1"}))
	require.Equal(t, bundle.Pending, res.State)
	require.Equal(t, directory.DiskError, res.Reason)
	require.Contains(t, res.Message, root)
}

func TestBadDays(t *testing.T) {
	for _, c := range []struct {
		name          string
		spoil         func(t *testing.T, root string)
		state         bundle.State // as observed
		reason, named string
		applied       bundle.State // what an apply then gives
	}{
		{"the root is gone", func(t *testing.T, root string) { require.NoError(t, os.RemoveAll(root)) }, bundle.Drifted, directory.Missing, "drone does not exist", bundle.Compliant},
		{"the folder is gone", func(t *testing.T, root string) { require.NoError(t, os.RemoveAll(filepath.Join(root, "drone"))) }, bundle.Drifted, directory.Missing, "drone does not exist", bundle.Compliant},
		{"somebody's file lies in the folder", func(t *testing.T, root string) {
			write(t, filepath.Join(root, "drone"), map[string]string{"theirs": "x"})
		}, bundle.Drifted, directory.Differs, "drone/theirs does not belong there", bundle.Compliant},
		{"a file was replaced by a folder", func(t *testing.T, root string) {
			require.NoError(t, os.Remove(filepath.Join(root, "drone/a")))
			write(t, filepath.Join(root, "drone/a"), map[string]string{"b": "x"})
		}, bundle.Drifted, directory.Differs, "drone/a is missing", bundle.Compliant},
		{"a file was replaced by a link", func(t *testing.T, root string) {
			require.NoError(t, os.Remove(filepath.Join(root, "drone/a")))
			require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(root, "drone/a")))
		}, bundle.Drifted, directory.Differs, "drone/a differs", bundle.Compliant},
		{"the folder was replaced by a file", func(t *testing.T, root string) {
			require.NoError(t, os.RemoveAll(filepath.Join(root, "drone")))
			write(t, root, map[string]string{"drone": "theirs"})
		}, bundle.Failed, directory.NotOurs, "drone exists and is not a folder: move it away", bundle.Failed},
		{"the work folder was replaced by a file", func(t *testing.T, root string) {
			write(t, filepath.Join(root, "drone"), map[string]string{"a": "2"})
			require.NoError(t, os.RemoveAll(filepath.Join(root, ".wherry")))
			write(t, root, map[string]string{".wherry": "theirs"})
		}, bundle.Drifted, directory.Differs, "drone/a differs", bundle.Pending},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "root")
			r, a := directory.New(root, directory.Options{}), assignment(t, "drone", map[string]string{"a": "1"})
			other := assignment(t, "other", map[string]string{"b": "1"})
			require.Equal(t, bundle.Compliant, r.Apply(t.Context(), a).State)
			c.spoil(t, root)
			res := r.Observe(t.Context(), a)
			require.Equal(t, []any{c.state, c.reason}, []any{res.State, res.Reason}, res.Message)
			require.Contains(t, res.Message, c.named)
			res = r.Apply(t.Context(), a)
			require.Equal(t, c.applied, res.State, res.Message)
			if c.applied == bundle.Compliant {
				require.Equal(t, map[string]string{"drone/a": "1"}, contents(t, root))
			}
			if c.applied != bundle.Pending { // which is about the root
				require.Equal(t, bundle.Compliant, r.Apply(t.Context(), other).State, "others go on")
			}
		})
	}
}
