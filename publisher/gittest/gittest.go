// Package gittest makes git repositories for tests, without a git program and with the same commits each time.
package gittest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// Commit commits the files below dir, and nothing else, to a branch of the bare repository repo and
// returns the commit. It makes the repository, with that branch as its default, and the branch, without
// history, if need be.
func Commit(repo, branch, dir string) (string, error) {
	_, err := git.PlainInit(repo, true)
	if err != nil && !errors.Is(err, git.ErrRepositoryAlreadyExists) {
		return "", fmt.Errorf("make repository %s: %w", repo, err)
	}
	name := plumbing.NewSymbolicReference(plumbing.HEAD, plumbing.NewBranchReferenceName(branch))
	store := newStore(repo)
	if err == nil {
		if err := store.SetReference(name); err != nil {
			return "", err
		}
	}
	store.head = name
	return commit(store, dir)
}

// CommitWorkTree commits all that is in the folder dir to the branch that is checked out there and returns the
// commit. It makes the repository, with that branch, if need be.
func CommitWorkTree(dir, branch string) (string, error) {
	_, err := git.PlainInitWithOptions(dir, &git.PlainInitOptions{InitOptions: git.InitOptions{DefaultBranch: plumbing.NewBranchReferenceName(branch)}})
	if err != nil && !errors.Is(err, git.ErrRepositoryAlreadyExists) {
		return "", fmt.Errorf("make repository in %s: %w", dir, err)
	}
	return commit(newStore(filepath.Join(dir, git.GitDirName)), dir)
}

// store is a repository's storage for a commit while others fetch from the repository. They see each reference as it was or
// as it is: go-git by itself empties the file first.
type store struct {
	*filesystem.Storage
	dir  string
	head *plumbing.Reference // HEAD for this commit, and for nobody else; nil is that of the repository
}

func newStore(dir string) *store {
	return &store{Storage: filesystem.NewStorage(osfs.New(dir), cache.NewObjectLRUDefault()), dir: dir}
}

func (s *store) Reference(name plumbing.ReferenceName) (*plumbing.Reference, error) {
	if name == plumbing.HEAD && s.head != nil {
		return s.head, nil
	}
	return s.Storage.Reference(name)
}

func (s *store) SetReference(r *plumbing.Reference) error {
	temp, err := os.MkdirTemp(s.dir, "reference")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	from, to := filepath.Join(temp, "new"), filepath.Join(s.dir, filepath.FromSlash(r.Name().String()))
	if err := os.WriteFile(from, []byte(r.Strings()[1]+"\n"), 0o644); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// commit commits dir to the branch that is HEAD.
func commit(store *store, dir string) (string, error) {
	repository, err := git.Open(store, osfs.New(dir))
	if err != nil {
		return "", err
	}
	work, err := repository.Worktree()
	if err != nil {
		return "", err
	}
	if err := work.AddWithOptions(&git.AddOptions{All: true}); err != nil {
		return "", err
	}
	who := &object.Signature{Name: "Test", Email: "test@example.com", When: time.Unix(1_700_000_000, 0).UTC()}
	hash, err := work.Commit("a state", &git.CommitOptions{Author: who, Committer: who, AllowEmptyCommits: true})
	if err != nil {
		return "", fmt.Errorf("commit %s: %w", dir, err)
	}
	return hash.String(), nil
}
