// Package gittest makes git repositories for tests, without a git program and with the same commits each time.
package gittest

import (
	"errors"
	"fmt"
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
	isNew := err == nil
	store := filesystem.NewStorage(osfs.New(repo), cache.NewObjectLRUDefault())
	head, err := store.Reference(plumbing.HEAD)
	if err != nil {
		return "", err
	}
	name := plumbing.NewBranchReferenceName(branch)
	if isNew {
		head = plumbing.NewSymbolicReference(plumbing.HEAD, name)
	}
	if err := store.SetReference(plumbing.NewSymbolicReference(plumbing.HEAD, name)); err != nil {
		return "", err
	}
	hash, err := commit(store, dir)
	return hash, errors.Join(err, store.SetReference(head))
}

// CommitWorkTree commits all that is in the folder dir to the branch that is checked out there and returns the
// commit. It makes the repository, with that branch, if need be.
func CommitWorkTree(dir, branch string) (string, error) {
	_, err := git.PlainInitWithOptions(dir, &git.PlainInitOptions{InitOptions: git.InitOptions{DefaultBranch: plumbing.NewBranchReferenceName(branch)}})
	if err != nil && !errors.Is(err, git.ErrRepositoryAlreadyExists) {
		return "", fmt.Errorf("make repository in %s: %w", dir, err)
	}
	return commit(filesystem.NewStorage(osfs.New(filepath.Join(dir, git.GitDirName)), cache.NewObjectLRUDefault()), dir)
}

// commit commits dir to the branch that is HEAD.
func commit(store *filesystem.Storage, dir string) (string, error) {
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
