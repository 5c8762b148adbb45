// Package gitrepo reads states of git repositories without a checkout and without a git program.
//
// Begin with [NewReader] and ask [Reader.Tree] for a branch, tag or commit: its files are an [fs.FS]. Local
// repositories are read where they are, remote ones over https, http or ssh into a temporary folder. What a server
// may send is bounded, and no message repeats credentials that a URL holds. Functions such as [HeadOf] tell which
// commit a folder is at. Nothing is ever written to a repository.
package gitrepo

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

	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/publisher/egress"
)

// ErrNoSuchRef is returned for a branch or commit that a reachable repository lacks.
var ErrNoSuchRef = errors.New("not in the repository")

// Reader reads commits of git repositories. It reads local repositories in place. From a remote one it fetches
// the needed commit, without history if the server allows that, into a temporary folder that Close removes.
type Reader struct {
	timeout time.Duration // for one repository
	mirrors Mirrors
	access  *egress.Access
	clone   *Clone            // may be nil
	temp    *diskfile.Scratch // nil until it is needed
	trees   map[Ref]Tree
}

// Tree is a commit and its files, which can be read until the Reader is closed.
type Tree struct {
	Commit string
	Time   time.Time
	FS     fs.FS
}

// NewReader returns a Reader that gives each repository timeout and reads mirrored places in place of the URLs that they stand
// in for; mirrored may be nil. Servers are reached by access; nil means one with nothing of its own. The caller closes it.
func NewReader(timeout time.Duration, mirrored Mirrors, access *egress.Access) *Reader {
	if access == nil {
		access = egress.New()
	}
	return &Reader{timeout: timeout, mirrors: mirrored, access: access, trees: map[Ref]Tree{}}
}

// Use has the Reader read what clone stands for from there, as far as it is there and no mirror stands for it. A nil
// clone changes nothing.
func (g *Reader) Use(clone *Clone) { g.clone = clone }

// Close removes the temporary files. Trees of remote repositories cannot be read afterwards.
func (g *Reader) Close() error {
	if g.temp == nil {
		return nil
	}
	return g.temp.Close()
}

// Tree returns the state that ref names; asking again for the same one costs nothing.
func (g *Reader) Tree(ctx context.Context, ref Ref) (Tree, error) {
	if tree, ok := g.trees[ref]; ok {
		return tree, nil
	}
	objects, tip, err := g.open(ctx, ref)
	if err != nil {
		return Tree{}, err
	}
	tree, err := readCommit(objects, tip, ref)
	if err != nil {
		return Tree{}, err
	}
	g.trees[ref] = tree
	return tree, nil
}

func (g *Reader) open(ctx context.Context, ref Ref) (storer.EncodedObjectStorer, plumbing.Hash, error) {
	asked := ref.URL
	if ref.URL = g.mirrors.Of(asked); g.clone != nil && ref.URL == asked {
		if objects, tip, ok := g.clone.open(ref); ok {
			return objects, tip, nil
		}
	}
	if path, ok := localPath(ref.URL); ok {
		return openLocal(withSuffix(path), ref)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, g.timeout, fmt.Errorf("no complete answer within %s", g.timeout))
	defer cancel()
	store, err := g.newStore()
	if err != nil {
		return nil, plumbing.ZeroHash, err
	}
	tip, err := fetch(ctx, g.access, ref, store)
	if ended(ctx) {
		return store, tip, context.Cause(ctx)
	}
	return store, tip, Plain(err)
}

// ended reports whether ctx has ended. Connections have its deadline as well, and may notice it a moment earlier.
func ended(ctx context.Context) bool {
	if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) {
		<-ctx.Done()
	}
	return ctx.Err() != nil
}

func (g *Reader) newStore() (*filesystem.Storage, error) {
	if g.temp == nil {
		temp, err := diskfile.NewScratch()
		if err != nil {
			return nil, err
		}
		g.temp = temp
	}
	dir, err := os.MkdirTemp(g.temp.Path, "")
	if err != nil {
		return nil, err
	}
	store := filesystem.NewStorage(osfs.New(dir), cache.NewObjectLRUDefault())
	return store, store.Init()
}

// IsLocal reports whether repo is the path of a repository on this machine, or a file URL.
func IsLocal(repo string) bool {
	_, local := localPath(repo)
	return local
}

// localPath is the path of a repository on this machine.
func localPath(repo string) (string, bool) {
	if u, err := url.Parse(repo); err == nil && strings.EqualFold(u.Scheme, "file") {
		return u.Path, true
	}
	return repo, !IsRemote(repo)
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

func openLocal(path string, ref Ref) (storer.EncodedObjectStorer, plumbing.Hash, error) {
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
func (r Ref) pinned() (plumbing.Hash, error) {
	if !plumbing.IsHash(r.Commit) {
		return plumbing.ZeroHash, missing(r)
	}
	return plumbing.NewHash(r.Commit), nil
}

func missing(ref Ref) error {
	switch {
	case ref.Commit != "" && !plumbing.IsHash(ref.Commit):
		return fmt.Errorf("commit %q, which has not 40 hexadecimal digits: %w", ref.Commit, ErrNoSuchRef)
	case ref.Commit != "" && ref.Branch != "":
		return fmt.Errorf("commit %s of branch %s: %w", ref.Commit, ref.Branch, ErrNoSuchRef)
	case ref.Commit != "":
		return fmt.Errorf("commit %s: %w", ref.Commit, ErrNoSuchRef)
	case ref.Branch != "":
		return fmt.Errorf("branch %q: %w", ref.Branch, ErrNoSuchRef)
	}
	return fmt.Errorf("default branch (HEAD names no branch that exists; add #BRANCH): %w", ErrNoSuchRef)
}

// readCommit returns the tree of the commit that tip is, or that the tag tip names.
func readCommit(all storer.EncodedObjectStorer, tip plumbing.Hash, ref Ref) (Tree, error) {
	objects := boundedObjects{all}
	if tag, err := object.GetTag(objects, tip); err == nil {
		tip = tag.Target
	}
	commit, err := object.GetCommit(objects, tip)
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return Tree{}, missing(ref)
	}
	if err != nil {
		return Tree{}, err
	}
	root, err := commit.Tree()
	if err != nil {
		return Tree{}, err
	}
	return Tree{
		Commit: commit.Hash.String(), Time: commit.Committer.When.UTC(),
		FS: &treeFS{root: root, objects: objects},
	}, nil
}
