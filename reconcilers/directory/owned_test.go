package directory_test

import (
	"archive/tar"
	"os"
	"path/filepath"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/directory"
)

func TestAFolderThatSomebodyElseFilledIsLeftAlone(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(t *testing.T, folder string)
	}{
		{"files of its own", func(t *testing.T, folder string) {
			write(t, folder, map[string]string{"nginx.conf": "theirs", "conf.d/site": "theirs"})
		}},
		{"what is wanted and more", func(t *testing.T, folder string) {
			write(t, folder, map[string]string{"a": "2", "nginx.conf": "theirs"})
		}},
		{"another file of that name", func(t *testing.T, folder string) { write(t, folder, map[string]string{"a": "theirs"}) }},
		{"a folder with nothing in it", func(t *testing.T, folder string) {
			require.NoError(t, os.MkdirAll(filepath.Join(folder, "a-disk"), 0o700))
		}},
		{"a link", func(t *testing.T, folder string) {
			require.NoError(t, os.Mkdir(folder, 0o755))
			require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(folder, "a")))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			folder := filepath.Join(root, "nginx")
			c.make(t, folder)
			was, before := inode(t, folder), contents(t, root)
			one, two := assignment(t, "nginx", map[string]string{"a": "1"}), assignment(t, "nginx", map[string]string{"a": "2"})
			for range 2 { // in another process too
				r := directory.New(root, directory.Options{})
				for _, res := range []reconcilers.Result{
					r.Apply(t.Context(), two), r.Observe(t.Context(), two), r.Apply(t.Context(), one), r.Observe(t.Context(), one), r.Apply(t.Context(), two),
				} {
					require.Equal(t, []any{bundle.Failed, directory.NotOurs}, []any{res.State, res.Reason}, res.Message)
					require.Contains(t, res.Message, folder+" was there before")
					require.Contains(t, res.Message, "move it away, or give another --directory-root")
				}
				res := r.Remove(t.Context(), one)
				require.Equal(t, bundle.Removed, res.State, res.Message)
				require.Empty(t, res.Changes)
				require.Equal(t, bundle.Removed, r.Release(t.Context(), one).State)
			}
			require.Equal(t, before, contents(t, root))
			require.True(t, os.SameFile(was, inode(t, folder)))
			entries, err := os.ReadDir(root)
			require.NoError(t, err)
			require.Len(t, entries, 1, "nothing else is left in the root")

			require.NoError(t, os.Rename(folder, folder+".away"))
			r := directory.New(root, directory.Options{})
			require.Equal(t, bundle.Compliant, r.Apply(t.Context(), one).State)
			require.Equal(t, bundle.Compliant, r.Apply(t.Context(), two).State)
			require.Equal(t, bundle.Removed, r.Remove(t.Context(), two).State)
			require.NoDirExists(t, folder)
		})
	}
}

func TestAFolderThatIsEmptyOrAsWantedIsTaken(t *testing.T) {
	for _, c := range []struct {
		name    string
		holds   map[string]string
		changes int
	}{
		{"empty", nil, 2},
		{"as wanted", map[string]string{"a": "1", "sub/b": "1"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			write(t, filepath.Join(root, "drone"), c.holds)
			r := directory.New(root, directory.Options{})
			res := r.Apply(t.Context(), assignment(t, "drone", map[string]string{"a": "1", "sub/b": "1"}))
			require.Equal(t, bundle.Compliant, res.State, res.Message)
			require.Len(t, res.Changes, c.changes)
			requireMarksOnly(t, root, "drone")
			require.Equal(t, bundle.Compliant, directory.New(root, directory.Options{}).Apply(t.Context(), assignment(t, "drone", map[string]string{"c": "2"})).State)
			require.Equal(t, map[string]string{"drone/c": "2"}, contents(t, root))
		})
	}
}

// Another machine gets the disk, or the agent's state is lost: only the root's marks show which folders are ours.
func TestWhoKnowsNothingFindsItsOwnByTheRoot(t *testing.T) {
	root := t.TempDir()
	a, b := assignment(t, "drone", map[string]string{"a": "1"}), assignment(t, "drone", map[string]string{"a": "2"})
	require.Equal(t, bundle.Compliant, directory.New(root, directory.Options{}).Apply(t.Context(), a).State)
	write(t, filepath.Join(root, "drone"), map[string]string{"a": "tampered"})
	r := directory.New(root, directory.Options{})
	require.Equal(t, directory.Differs, r.Observe(t.Context(), b).Reason)
	require.Equal(t, bundle.Compliant, r.Apply(t.Context(), b).State)
	require.Equal(t, map[string]string{"drone/a": "2"}, contents(t, root))
	require.Len(t, directory.New(root, directory.Options{}).Remove(t.Context(), b).Changes, 1)
	requireEmpty(t, root)
}

func TestTheMarkGoesWithTheFolder(t *testing.T) {
	a := assignment(t, "drone", map[string]string{"a": "1"})
	for _, c := range []struct {
		name string
		end  func(r *directory.Reconciler, root string)
		left map[string]string
	}{
		{"removed", func(r *directory.Reconciler, _ string) { r.Remove(t.Context(), a) }, map[string]string{}},
		{"removed when somebody had deleted it", func(r *directory.Reconciler, root string) {
			require.NoError(t, os.RemoveAll(filepath.Join(root, "drone")))
			r.Remove(t.Context(), a)
		}, map[string]string{}},
		{"left for others", func(r *directory.Reconciler, _ string) { r.Release(t.Context(), a) }, map[string]string{"drone/a": "1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			r := directory.New(root, directory.Options{})
			require.Equal(t, bundle.Compliant, r.Apply(t.Context(), a).State)
			c.end(r, root)
			require.Equal(t, c.left, contents(t, root))
			require.NoDirExists(t, filepath.Join(root, ".wherry"))

			write(t, filepath.Join(root, "drone"), map[string]string{"theirs": "1"})
			require.Equal(t, directory.NotOurs, r.Apply(t.Context(), a).Reason, "the next one of that name is somebody else's")
		})
	}
}

// Somebody tidies up, and the agent runs on.
func TestAMarkThatIsDeletedComesBack(t *testing.T) {
	root := t.TempDir()
	r := directory.New(root, directory.Options{})
	for _, content := range []string{"1", "2"} {
		require.Equal(t, bundle.Compliant, r.Apply(t.Context(), assignment(t, "drone", map[string]string{"a": content})).State)
		requireMarksOnly(t, root, "drone")
		require.NoError(t, os.RemoveAll(filepath.Join(root, ".wherry")))
	}
}

func TestALedgerOfAnotherRootSaysNothing(t *testing.T) {
	h := newHost(t)
	one, two := h.push(titled("eye", "1")), h.push(titled("eye", "2"))
	h.compliant(with(assignment(t, "drone", nil), one))
	h.root = t.TempDir()
	h.restart()
	write(t, h.root, map[string]string{"drone/theirs": "1"})
	require.Equal(t, directory.NotOurs, h.settled(with(assignment(t, "drone", nil), two)).Reason)
	require.Equal(t, map[string]string{"drone/theirs": "1"}, contents(t, h.root))
}

// Fetched files are compared with existing ones as soon as their names are known: a title from the manifest, an
// archive's once it is here.
func TestWhatIsFetchedDoesNotReplaceSomebodyElsesFiles(t *testing.T) {
	h := newHost(t)
	eye := sized(1000)
	labels := blob{mediaType: ocispec.MediaTypeImageLayer, data: archive(t, tar.Header{Name: "labels/one"})}
	file, both := with(assignment(t, "drone", nil), h.push(titled("eye", eye))), with(assignment(t, "drone", nil), h.push(titled("eye", eye), labels))
	folder := filepath.Join(h.root, "drone")
	brought := map[string]string{"eye": eye, "labels/one": "labels/one"} // by hand, to spare the link
	for _, c := range []struct {
		name    string
		holds   map[string]string
		a       reconcilers.Assignment
		taken   bool
		fetched int
	}{
		{"other files", map[string]string{"theirs": "1"}, file, false, 0},
		{"other files beside what is known", map[string]string{"theirs": "1"}, both, false, 0},
		{"the model, and other files beside an archive", map[string]string{"eye": eye, "theirs": "1"}, both, false, 1},
		{"all of it", map[string]string{"eye": eye}, file, true, 0},
		{"all of it, and of an archive", brought, both, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.answer(nil)
			write(t, folder, c.holds)
			was, before := inode(t, folder), contents(t, folder)
			res := h.settled(c.a)
			if !c.taken {
				require.Equal(t, directory.NotOurs, res.Reason, res.Message)
				require.Equal(t, directory.NotOurs, h.settled(c.a).Reason)
				require.Equal(t, directory.NotOurs, h.Observe(t.Context(), c.a).Reason)
			} else {
				require.Equal(t, bundle.Compliant, res.State, res.Message)
			}
			require.Len(t, h.asked(), c.fetched)
			require.Equal(t, before, contents(t, folder))
			require.True(t, os.SameFile(was, inode(t, folder)))
			require.Equal(t, bundle.Removed, h.Remove(t.Context(), c.a).State)
			require.NoDirExists(t, filepath.Join(h.root, ".wherry"))
			require.NoError(t, os.RemoveAll(folder))
		})
	}
}
