package platform

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/wherry-dev/wherry/publisher/gitrepo"
)

// location is what PLATFORM, --base and --workload name: a folder, or a state of a git repository.
type location struct {
	folder string // else repo is set
	repo   gitrepo.Ref
	path   string // the folder inside repo or folder
}

// dir is the path of a folder.
func (l location) dir() string { return filepath.Join(l.folder, filepath.FromSlash(l.path)) }

// parseLocation reads FOLDER, URL, URL#BRANCH or URL#BRANCH:FOLDER. The path of a bare repository, and any
// path with #BRANCH, is a repository too.
func parseLocation(s string) (location, error) {
	if s == "" {
		return location{}, errors.New("an empty name is neither a folder nor a git URL")
	}
	if !gitrepo.IsRemote(s) && exists(s) {
		if gitrepo.IsBare(s) {
			return location{repo: gitrepo.Ref{URL: s}}, nil
		}
		return location{folder: s}, nil
	}
	repo, fragment, found := strings.Cut(s, "#")
	if !found && !gitrepo.IsRemote(s) {
		return location{folder: s}, nil
	}
	branch, dir, _ := strings.Cut(fragment, ":")
	if found && branch == "" {
		return location{}, fmt.Errorf("%s: no branch after the #", gitrepo.Redact(s))
	}
	l := location{repo: gitrepo.Ref{URL: repo, Branch: branch}, path: dir}
	if plumbing.IsHash(branch) {
		l.repo.Branch, l.repo.Commit = "", branch
	}
	return l, gitrepo.CheckURL(repo)
}

// String is the location as messages and positions show it: without credentials.
func (l location) String() string {
	if l.folder != "" {
		return filepath.ToSlash(l.dir())
	}
	s := l.repo.String()
	if p, err := gitrepo.CleanPath(l.path); err == nil && p != "." {
		s += ":" + p
	}
	return s
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
