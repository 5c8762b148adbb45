package platform

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// ErrNoEnvironments is returned for a platform that holds no Environment objects.
var ErrNoEnvironments = errors.New("no Environment object")

// Environments returns, sorted by name, the options with which [Load] reads each of the environments that
// the Environment objects of o.Platform name; o.Environment is not asked.
//
// The objects lie on a platform's default branch, with what the environments share. So a folder, or a git
// URL with a branch, is also the base of each environment that is returned, unless o.Bases says otherwise.
// Of a git URL the environments are the branches that the objects name; a folder's come from the
// repositories that they name. Where an object's path is a folder of o.Platform itself, as where one branch has
// a folder for each environment, that folder is read, and the base is the folder beside it that its BaseRepo names.
func Environments(ctx context.Context, o Source) ([]Source, error) {
	if o.Timeout <= 0 {
		o.Timeout = 2 * time.Minute
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	access := o.access()
	repositories := gitrepo.NewReader(o.Timeout, o.Mirrors, access)
	repositories.Use(o.Clone)
	defer func() { _ = repositories.Close() }() // removes temporary files only
	l := &loader{Source: o, git: repositories, times: map[string]time.Time{}, loaded: &Loaded{Access: access}}
	src, err := given(PlatformPart, "", o.Platform)
	if err != nil {
		return nil, err
	}
	environments, err := l.environmentsAt(ctx, src)
	if err != nil {
		return nil, err
	}
	var all []Source
	for _, e := range environments {
		one := o
		one.Environment = e.Name
		if place, ok := l.below(ctx, src.place, e); ok {
			if len(o.Bases) == 0 {
				one.Bases = []string{l.baseBeside(ctx, src.place, place)}
			}
		} else if src.place.folder != "" || src.place.repo != (gitrepo.Ref{URL: src.place.repo.URL}) {
			one.Platform = environmentPlace(src.place, e.ControlPlane)
			if o.Clone != nil {
				one.Platform = l.clonePlace(e.ControlPlane, one.Platform)
			} else if src.place.folder != "" && (e.ControlPlane.Repo == "." || e.ControlPlane.Repo == "") {
				one.Platform = filepath.Join(src.place.dir(), filepath.FromSlash(e.ControlPlane.Path)) // outside git
			}
			if len(o.Bases) == 0 {
				one.Bases = []string{o.Platform}
			}
		}
		all = append(all, one)
	}
	if len(all) == 0 {
		return nil, src.failed(fmt.Errorf("there is %w", ErrNoEnvironments))
	}
	return all, nil
}

// clonePlace is where an environment lies in the clone: the work tree that has its branch, else the branch. It is
// elsewhere if the clone has neither.
func (l *loader) clonePlace(r kinds.Repository, elsewhere string) string {
	p, err := gitrepo.CleanPath(r.Path)
	if err != nil {
		return elsewhere
	}
	if top := l.Clone.WorkTree(r.Branch); top != "" {
		return filepath.Join(top, filepath.FromSlash(p))
	}
	if l.Clone.Has(r.Branch) {
		return gitrepo.BranchPlace(l.Clone.Top, r.Branch, p)
	}
	return elsewhere
}

// environmentPlace is where an Environment object says that its environment lies.
func environmentPlace(base location, r kinds.Repository) string {
	repo := r.Repo
	if base.folder == "" {
		repo = base.repo.URL // a mirror serves as well
	}
	return strings.TrimSuffix(fmt.Sprintf("%s#%s:%s", repo, r.Branch, strings.TrimPrefix(r.Path, "./")), ":")
}
