package gitrepo

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// Clone is a repository on this machine with its work trees. A [Reader] that uses it reads local objects without a
// network.
type Clone struct {
	// Top is the top of the work tree that the clone was opened for.
	Top string

	common string // the repository's own folder, which all its work trees share
	repo   *git.Repository
	own    []string // the URLs of this repository, see sameRepository
}

// maxWorkTrees bounds the work trees of a clone that are looked at.
const maxWorkTrees = 1000

// TopOf returns the top of the git work tree around the absolute path dir, or nothing. It opens no repository.
func TopOf(dir string) string {
	for {
		if exists(filepath.Join(dir, git.GitDirName)) {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}

// OpenClone opens the repository that has a work tree at the absolute path top.
func OpenClone(top string) (*Clone, error) {
	repo, err := git.PlainOpenWithOptions(top, &git.PlainOpenOptions{EnableDotGitCommonDir: true})
	if err != nil {
		return nil, err
	}
	c := &Clone{Top: top, repo: repo, common: commonFolder(top)}
	if origin := c.Origin(); origin != "" {
		c.own = append(c.own, sameRepository(origin))
	}
	return c, nil
}

// commonFolder returns the folder of a repository that its work trees share.
func commonFolder(top string) string {
	own := filepath.Join(top, git.GitDirName)
	if line, ok := firstLine(own); ok { // a linked work tree
		dir, _ := strings.CutPrefix(line, "gitdir: ")
		own = absolute(top, dir)
	}
	if line, ok := firstLine(filepath.Join(own, "commondir")); ok {
		return absolute(own, line)
	}
	return own
}

func absolute(from, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(from, path)
}

// firstLine returns the first line of a small file of git's.
func firstLine(name string) (string, bool) {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > 64<<10 {
		return "", false
	}
	data, err := os.ReadFile(name)
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimRight(line, "\r"), err == nil
}

// Origin returns the URL of the remote origin, which may hold credentials. It is empty if there is none.
func (c *Clone) Origin() string {
	remote, err := c.repo.Remote("origin")
	if err != nil || len(remote.Config().URLs) == 0 {
		return ""
	}
	return remote.Config().URLs[0]
}

// AddURL has the clone stand for another URL, which somebody knows to be that of this repository.
func (c *Clone) AddURL(repo string) {
	if repo = sameRepository(repo); repo != "" && !slices.Contains(c.own, repo) {
		c.own = append(c.own, repo)
	}
}

// Is reports whether repo is the URL of this repository, however it is written.
func (c *Clone) Is(repo string) bool { return slices.Contains(c.own, sameRepository(repo)) }

// Branch returns the branch that is checked out at Top; empty for a detached HEAD.
func (c *Clone) Branch() string {
	head, err := c.repo.Storer.Reference(plumbing.HEAD)
	if err != nil || head.Type() != plumbing.SymbolicReference || !head.Target().IsBranch() {
		return ""
	}
	return head.Target().Short()
}

// HeadHas reports whether a commit is in the history of what is checked out at Top.
func (c *Clone) HeadHas(commit string) bool {
	head, err := c.repo.Head()
	if err != nil {
		return false
	}
	at, err := c.repo.CommitObject(head.Hash())
	if err != nil {
		return false
	}
	old, err := c.repo.CommitObject(plumbing.NewHash(commit))
	if err != nil {
		return false
	}
	is, err := old.IsAncestor(at)
	return err == nil && is
}

// DefaultBranch returns the branch that origin's HEAD names, else main or master, whichever is here. It is empty if
// there is none of them.
func (c *Clone) DefaultBranch() string {
	if head, err := c.repo.Storer.Reference(plumbing.NewRemoteHEADReferenceName("origin")); err == nil && head.Type() == plumbing.SymbolicReference {
		if branch, ok := strings.CutPrefix(head.Target().String(), "refs/remotes/origin/"); ok && c.Has(branch) {
			return branch
		}
	}
	for _, branch := range []string{"main", "master"} {
		if c.Has(branch) {
			return branch
		}
	}
	return ""
}

// Has reports whether the clone has a branch, its own or origin's.
func (c *Clone) Has(branch string) bool {
	_, ok := c.tip(branch)
	return ok
}

func (c *Clone) tip(branch string) (plumbing.Hash, bool) {
	for _, name := range refNames(branch) {
		if found, err := c.repo.Reference(name, true); err == nil {
			return found.Hash(), true
		}
	}
	return plumbing.ZeroHash, false
}

// WorkTree returns the top of the work tree in which a branch is checked out, or nothing.
func (c *Clone) WorkTree(branch string) string {
	if branch == "" {
		return ""
	}
	if c.Branch() == branch {
		return c.Top
	}
	want := "ref: " + plumbing.NewBranchReferenceName(branch).String()
	if head, _ := firstLine(filepath.Join(c.common, "HEAD")); head == want && filepath.Base(c.common) == git.GitDirName {
		return filepath.Dir(c.common)
	}
	linked, err := os.ReadDir(filepath.Join(c.common, "worktrees"))
	if err != nil {
		return ""
	}
	for _, entry := range linked[:min(len(linked), maxWorkTrees)] {
		dir := filepath.Join(c.common, "worktrees", entry.Name())
		if head, _ := firstLine(filepath.Join(dir, "HEAD")); head != want {
			continue
		}
		if gitFile, ok := firstLine(filepath.Join(dir, "gitdir")); ok {
			if top := filepath.Dir(absolute(dir, gitFile)); exists(top) {
				return top
			}
		}
	}
	return ""
}

// Tree returns the state of a branch as it was committed. The error wraps [ErrNoSuchRef] if the clone lacks it.
func (c *Clone) Tree(branch string) (Tree, error) {
	ref := Ref{Branch: branch}
	tip, ok := c.tip(branch)
	if !ok {
		return Tree{}, missing(ref)
	}
	return readCommit(c.repo.Storer, tip, ref)
}

// open returns the commit that ref names, if it is one of this repository and is here.
func (c *Clone) open(ref Ref) (storer.EncodedObjectStorer, plumbing.Hash, bool) {
	if !c.Is(ref.URL) {
		return nil, plumbing.ZeroHash, false
	}
	var tip plumbing.Hash
	var ok bool
	if ref.Commit != "" {
		pinned, err := ref.pinned()
		tip, ok = pinned, err == nil
	} else {
		branch := ref.Branch
		if branch == "" {
			branch = c.DefaultBranch()
		}
		tip, ok = c.tip(branch)
	}
	if !ok {
		return nil, tip, false
	}
	if _, err := readCommit(c.repo.Storer, tip, ref); err != nil { // a shallow clone lacks it
		return nil, tip, false
	}
	return c.repo.Storer, tip, true
}

// sameRepository returns what all ways to write the URL of one repository have in common: host and path, without
// credentials, scheme and .git. A path on this machine is itself.
func sameRepository(repo string) string {
	if repo == "" {
		return ""
	}
	if scheme.MatchString(repo) {
		u, err := url.Parse(repo)
		if err != nil {
			return ""
		}
		return strings.ToLower(u.Hostname()) + "/" + repositoryPath(u.Path)
	}
	if m := scpLike.FindString(repo); m != "" {
		_, host, found := strings.Cut(strings.TrimSuffix(m, ":"), "@")
		if !found {
			host = strings.TrimSuffix(m, ":")
		}
		return strings.ToLower(host) + "/" + repositoryPath(repo[len(m):])
	}
	return "/" + repositoryPath(filepath.ToSlash(filepath.Clean(repo)))
}

func repositoryPath(path string) string {
	return strings.TrimSuffix(strings.Trim(path, "/"), ".git")
}
