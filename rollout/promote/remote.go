package promote

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/platform"
)

// Remote returns the platform that s.Platform stands for, in the form that a [Promoter] takes: for a clone the repository that it
// was cloned from, since what decides is there and not in somebody's work tree. A bare repository, and a folder that is in no
// clone of a remote repository, stand for themselves.
//
// The top of a clone stands for the whole platform if the default branch has Environment objects, and any other folder for
// that folder of the branch that is checked out. The error wraps [ErrNoBranch] if none is.
func Remote(ctx context.Context, s platform.Source) (string, error) {
	repo, rest, named := strings.Cut(s.Platform, "#")
	if gitrepo.IsRemote(repo) || gitrepo.IsBare(repo) {
		return s.Platform, nil
	}
	dir, err := filepath.Abs(repo)
	if err != nil {
		return "", err
	}
	top := gitrepo.TopOf(dir)
	if top == "" {
		return s.Platform, nil
	}
	clone, err := gitrepo.OpenClone(top)
	if err != nil {
		return "", err
	}
	origin := clone.Origin()
	if gitrepo.IsLocal(origin) && origin != "" && !gitrepo.HasScheme(origin) && !filepath.IsAbs(origin) {
		origin = filepath.Join(top, origin)
	}
	switch {
	case origin == "":
		return s.Platform, nil
	case named:
		return origin + "#" + rest, nil
	}
	below, err := filepath.Rel(top, dir)
	if err != nil {
		return "", err
	}
	if below == "." {
		s.Platform, s.Clone = origin, nil
		_, err := platform.Environments(ctx, s)
		if err == nil || !errors.Is(err, platform.ErrNoEnvironments) {
			return origin, err
		}
	}
	if clone.Branch() == "" {
		return "", ErrNoBranch
	}
	return gitrepo.BranchPlace(origin, clone.Branch(), filepath.ToSlash(below)), nil
}
