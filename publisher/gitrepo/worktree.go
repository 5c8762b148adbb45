package gitrepo

import (
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// HeadOf returns the commit that is checked out in the work tree with dir at its top, or with enclosing
// around dir. It is empty where there is none.
func HeadOf(dir string, enclosing bool) string {
	repo, err := git.PlainOpenWithOptions(dir, &git.PlainOpenOptions{DetectDotGit: enclosing, EnableDotGitCommonDir: true})
	if err != nil {
		return ""
	}
	head, err := repo.Head()
	if err != nil {
		return ""
	}
	return head.Hash().String()
}

// TimeOf returns the time of a commit of the work tree around dir; zero if it does not have the commit.
func TimeOf(dir, commit string) time.Time {
	repo, err := git.PlainOpenWithOptions(dir, &git.PlainOpenOptions{DetectDotGit: true, EnableDotGitCommonDir: true})
	if err != nil {
		return time.Time{}
	}
	found, err := repo.CommitObject(plumbing.NewHash(commit))
	if err != nil {
		return time.Time{}
	}
	return found.Committer.When.UTC()
}

// OriginOf returns the URL of the remote named origin of the work tree around dir, which may hold credentials. It is empty
// where there is none.
func OriginOf(dir string) string {
	repo, err := git.PlainOpenWithOptions(dir, &git.PlainOpenOptions{DetectDotGit: true, EnableDotGitCommonDir: true})
	if err != nil {
		return ""
	}
	origin, err := repo.Remote(git.DefaultRemoteName)
	if err != nil || len(origin.Config().URLs) == 0 {
		return ""
	}
	return origin.Config().URLs[0]
}

// WorkTreeOf returns the top of the git work tree around dir, empty where there is none.
func WorkTreeOf(dir string) string {
	repo, err := git.PlainOpenWithOptions(dir, &git.PlainOpenOptions{DetectDotGit: true, EnableDotGitCommonDir: true})
	if err != nil {
		return ""
	}
	tree, err := repo.Worktree()
	if err != nil {
		return ""
	}
	return tree.Filesystem.Root()
}

// BranchOf returns the branch that is checked out with dir at its top, empty where there is none.
func BranchOf(dir string) string {
	repo, err := git.PlainOpenWithOptions(dir, &git.PlainOpenOptions{EnableDotGitCommonDir: true})
	if err != nil {
		return ""
	}
	head, err := repo.Head()
	if err != nil || !head.Name().IsBranch() {
		return ""
	}
	return head.Name().Short()
}

// belowTop returns the path of dir below the top of the git work tree around it.
func belowTop(dir string) string {
	top, err := filepath.EvalSymlinks(WorkTreeOf(dir))
	if err != nil {
		return "."
	}
	real, _ := filepath.EvalSymlinks(dir)
	abs, err := filepath.Abs(real)
	if err != nil {
		return "."
	}
	below, err := filepath.Rel(top, abs)
	if err != nil {
		return "."
	}
	return filepath.ToSlash(below)
}

// CheckedOut is a folder of the commit that is checked out in a work tree, read from the object store.
type CheckedOut struct {
	objects storer.EncodedObjectStorer
	root    *object.Tree
	folder  string // below root
}

// OpenCheckedOut returns the commit that is checked out in the work tree around dir, as far as it concerns dir. It
// returns false for a folder outside git and before the first commit.
func OpenCheckedOut(dir string) (*CheckedOut, bool) {
	repo, err := git.PlainOpenWithOptions(dir, &git.PlainOpenOptions{DetectDotGit: true, EnableDotGitCommonDir: true})
	if err != nil {
		return nil, false
	}
	head, err := repo.Head()
	if err != nil {
		return nil, false
	}
	commit, err := repo.CommitObject(head.Hash())
	if err != nil {
		return nil, false
	}
	root, err := commit.Tree()
	if err != nil {
		return nil, false
	}
	return &CheckedOut{objects: repo.Storer, root: root, folder: belowTop(dir)}, true
}

// Has reports whether the commit holds the file with one of these hashes.
func (c *CheckedOut) Has(name string, hashes ...plumbing.Hash) bool {
	entry, err := c.root.FindEntry(path.Join(c.folder, name))
	return err == nil && slices.Contains(hashes, entry.Hash)
}

// FS returns the folder's files as they were committed.
func (c *CheckedOut) FS() (fs.FS, error) {
	return fs.Sub(&treeFS{root: c.root, objects: c.objects}, c.folder)
}
