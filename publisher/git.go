package publisher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// errNoSuchRef is returned for a branch or commit that a reachable repository lacks.
var errNoSuchRef = errors.New("not in the repository")

// gitReader reads states of git repositories. Local ones are read where they are; of remote ones it fetches
// what is needed, without history where the server allows that, into a temporary folder that Close removes.
type gitReader struct {
	timeout time.Duration // for one repository
	mirrors mirrors
	temp    string
	trees   map[gitRef]gitTree
}

// gitTree is a commit and its files, which can be read until the gitReader is closed.
type gitTree struct {
	Commit string
	Time   time.Time
	FS     fs.FS
}

func newGitReader(timeout time.Duration) *gitReader {
	return &gitReader{timeout: timeout, trees: map[gitRef]gitTree{}}
}

func (g *gitReader) Close() error {
	if g.temp == "" {
		return nil
	}
	return os.RemoveAll(g.temp)
}

// Tree returns the state that ref names; asking again for the same one costs nothing.
func (g *gitReader) Tree(ctx context.Context, ref gitRef) (gitTree, error) {
	if tree, ok := g.trees[ref]; ok {
		return tree, nil
	}
	objects, tip, err := g.open(ctx, ref)
	if err != nil {
		return gitTree{}, err
	}
	tree, err := readCommit(objects, tip, ref)
	if err != nil {
		return gitTree{}, err
	}
	g.trees[ref] = tree
	return tree, nil
}

func (g *gitReader) open(ctx context.Context, ref gitRef) (storer.EncodedObjectStorer, plumbing.Hash, error) {
	ref.URL = g.mirrors.of(ref.URL)
	if path, ok := localPath(ref.URL); ok {
		return openLocal(withSuffix(path), ref)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, g.timeout, fmt.Errorf("no complete answer within %s", g.timeout))
	defer cancel()
	store, err := g.newStore()
	if err != nil {
		return nil, plumbing.ZeroHash, err
	}
	tip, err := untilDone(ctx, func() (plumbing.Hash, error) { return fetch(ctx, ref, store) })
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return store, tip, plain(err)
}

func (g *gitReader) newStore() (*filesystem.Storage, error) {
	if g.temp == "" {
		temp, err := os.MkdirTemp("", "wherry-git-")
		if err != nil {
			return nil, err
		}
		g.temp = temp
	}
	dir, err := os.MkdirTemp(g.temp, "")
	if err != nil {
		return nil, err
	}
	store := filesystem.NewStorage(osfs.New(dir), cache.NewObjectLRUDefault())
	return store, store.Init()
}

// untilDone gives up on f when ctx ends: go-git's handshake over ssh knows no deadline.
func untilDone[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		value, err := f()
		done <- outcome{value, err}
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
		var zero T
		return zero, ctx.Err()
	}
}

// localPath is the path of a repository on this machine.
func localPath(repo string) (string, bool) {
	if u, err := url.Parse(repo); err == nil && strings.EqualFold(u.Scheme, "file") {
		return u.Path, true
	}
	return repo, !isRemote(repo)
}

// withSuffix is path, or what git takes for it too: the same with or without .git.
func withSuffix(path string) string {
	for _, p := range []string{path, path + ".git", strings.TrimSuffix(path, ".git")} {
		if exists(p) {
			return p
		}
	}
	return path
}

func openLocal(path string, ref gitRef) (storer.EncodedObjectStorer, plumbing.Hash, error) {
	repo, err := git.PlainOpenWithOptions(path, &git.PlainOpenOptions{EnableDotGitCommonDir: true})
	if err != nil {
		return nil, plumbing.ZeroHash, err
	}
	if ref.Commit != "" {
		pinned, err := ref.pinned()
		return repo.Storer, pinned, err
	}
	for _, name := range refNames(ref.Branch) {
		if found, err := repo.Reference(name, true); err == nil {
			return repo.Storer, found.Hash(), nil
		}
	}
	return nil, plumbing.ZeroHash, missing(ref)
}

// refNames lists what a branch's name may stand for; a clone has other people's branches as origin's. A
// name in full stands for itself.
func refNames(branch string) []plumbing.ReferenceName {
	switch {
	case branch == "":
		return []plumbing.ReferenceName{plumbing.HEAD}
	case strings.HasPrefix(branch, "refs/"):
		return []plumbing.ReferenceName{plumbing.ReferenceName(branch)}
	}
	return []plumbing.ReferenceName{
		plumbing.NewBranchReferenceName(branch), plumbing.NewTagReferenceName(branch),
		plumbing.NewRemoteReferenceName("origin", branch),
	}
}

// pinned is the commit that r names. A shorter one could become ambiguous tomorrow.
func (r gitRef) pinned() (plumbing.Hash, error) {
	if !plumbing.IsHash(r.Commit) {
		return plumbing.ZeroHash, missing(r)
	}
	return plumbing.NewHash(r.Commit), nil
}

func missing(ref gitRef) error {
	switch {
	case ref.Commit != "" && !plumbing.IsHash(ref.Commit):
		return fmt.Errorf("commit %q, which has not 40 hexadecimal digits: %w", ref.Commit, errNoSuchRef)
	case ref.Commit != "" && ref.Branch != "":
		return fmt.Errorf("commit %s of branch %s: %w", ref.Commit, ref.Branch, errNoSuchRef)
	case ref.Commit != "":
		return fmt.Errorf("commit %s: %w", ref.Commit, errNoSuchRef)
	case ref.Branch != "":
		return fmt.Errorf("branch %q: %w", ref.Branch, errNoSuchRef)
	}
	return fmt.Errorf("default branch: %w", errNoSuchRef)
}

// readCommit returns the tree of the commit that tip is, or that the tag tip names.
func readCommit(objects storer.EncodedObjectStorer, tip plumbing.Hash, ref gitRef) (gitTree, error) {
	if tag, err := object.GetTag(objects, tip); err == nil {
		tip = tag.Target
	}
	commit, err := object.GetCommit(objects, tip)
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return gitTree{}, missing(ref)
	}
	if err != nil {
		return gitTree{}, err
	}
	root, err := commit.Tree()
	if err != nil {
		return gitTree{}, err
	}
	return gitTree{
		Commit: commit.Hash.String(), Time: commit.Committer.When.UTC(),
		FS: &gitFS{root: root, objects: objects},
	}, nil
}

// headOf returns the commit that is checked out in the work tree with dir at its top, or with enclosing
// around dir. It is empty where there is none.
func headOf(dir string, enclosing bool) string {
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
