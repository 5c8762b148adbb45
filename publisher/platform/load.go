package platform

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/meter"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

type loader struct {
	Source
	git    *gitrepo.Reader
	times  map[string]time.Time // of the commits that were read
	loaded *Loaded
	known  []scheduler.Environment // of the platform and the folders around it
	given  bool                    // the environment is named by the options, not inferred
	named  bool                    // an Environment object on the default branch has led here
	files  *recordedFS             // of the last folder of the platform or a base that was read
	beside *origin                 // the source in which follow found the environment, for one that names no base
}

// origin is one part of the environment and where it lies.
type origin struct {
	part  Part
	name  string
	at    finding.Position
	place location
	// environments has Environment objects alone read.
	environments bool
}

func (s origin) failed(err error) error {
	return &SourceError{Part: s.part, Name: s.name, Place: s.place.String(), At: s.at, Err: err}
}

func (l *loader) platform(ctx context.Context) error {
	src, err := given(PlatformPart, "", l.Platform)
	if err != nil {
		return err
	}
	if src.place.folder == "" && src.place.repo == (gitrepo.Ref{URL: src.place.repo.URL}) {
		if src, err = l.environmentBranch(ctx, src); err != nil {
			return err
		}
	} else if src, err = l.follow(ctx, src); err != nil {
		return err
	}
	l.loaded.EnvironmentCommit, err = l.read(ctx, l.loaded.Model, src)
	if src.place.folder != "" {
		if l.loaded.EnvironmentCommit = gitrepo.HeadOf(src.place.dir(), true); l.changed(ctx, src) {
			l.loaded.EnvironmentCommit = ""
		}
	} else {
		l.loaded.Source = l.urlOf(src.place.repo.URL)
	}
	return err
}

// urlOf returns the URL of a repository as releases name it: without credentials, and of a clone the origin's.
func (s Source) urlOf(repo string) string {
	if s.Clone != nil && gitrepo.IsLocal(repo) {
		return gitrepo.Redact(s.Clone.Origin())
	}
	return gitrepo.Redact(repo)
}

// environmentBranch follows the Environment object on the default branch. Only its branch and path count,
// so that a mirror of the repository serves as well as the repository that the object names.
func (l *loader) environmentBranch(ctx context.Context, src origin) (origin, error) {
	branches, err := l.environmentsAt(ctx, src)
	if err != nil {
		return src, err
	}
	if l.known = branches; !l.given {
		if err := l.infer(ctx, branches); err != nil {
			return src, err
		}
	}
	var known []string
	for _, e := range branches {
		if e.Name == l.Environment {
			src.place.repo.Branch, src.place.path, src.at = e.ControlPlane.Branch, e.ControlPlane.Path, e.Position
			l.named = true
			return src, nil
		}
		known = append(known, e.Name)
	}
	return src, src.failed(fmt.Errorf("its default branch has no Environment %q%s", l.Environment, orElse(known)))
}

func orElse(known []string) string {
	if len(known) == 0 {
		return ""
	}
	return fmt.Sprintf(" (known: %s)", strings.Join(known, ", "))
}

// environmentTime returns the time of the environment's commit, which is in the platform's folder if it was not fetched.
func (l *loader) environmentTime() time.Time {
	if t, ok := l.times[l.loaded.EnvironmentCommit]; ok || l.loaded.EnvironmentCommit == "" || l.loaded.Source != "" {
		return t
	}
	return gitrepo.TimeOf(l.Platform, l.loaded.EnvironmentCommit)
}

func (l *loader) bases(ctx context.Context) error {
	repos := l.loaded.Model.BaseRepos()
	if l.Commit != "" && !commitName.MatchString(l.Commit) {
		return fmt.Errorf("%q is not a commit", l.Commit)
	}
	if len(l.Bases) > 0 {
		return l.givenBases(ctx, repos)
	}
	l.loaded.BaseCommit = l.Commit
	if len(repos) == 0 && l.beside != nil {
		if _, err := l.read(ctx, l.loaded.Model, *l.beside); err != nil || l.beside.place.folder == "" {
			return err
		}
		if l.changed(ctx, *l.beside) {
			l.loaded.EnvironmentCommit, l.loaded.BaseCommit = "", "" // the platform's folder is both
			return nil
		}
		return l.checkCommit(*l.beside)
	}
	for read := map[string]bool{}; len(read) < len(repos); repos = l.loaded.Model.BaseRepos() {
		for _, b := range repos {
			if read[b.Name] {
				continue
			}
			if read[b.Name] = true; len(read) > maxBases {
				return fmt.Errorf("%s: more than %d base repositories", b.Position, maxBases)
			}
			if err := l.base(ctx, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxBases bounds the base repositories, because one can name the next: what a base holds is applied
// like the rest, BaseRepo objects among it.
const maxBases = 32

func (l *loader) base(ctx context.Context, b scheduler.BaseRepo) error {
	src := origin{part: BasePart, name: b.Name, at: b.Position, place: location{
		repo: gitrepo.Ref{URL: b.Repo, Branch: b.Branch, Commit: b.Commit}, path: b.Path,
	}}
	if b.Name == scheduler.MainBase && l.BaseAt != "" {
		src.place.repo.Commit = l.BaseAt
	}
	l.loaded.Access.Own(b.Repo)
	commit, err := l.read(ctx, l.loaded.Model, src)
	if err == nil && b.Name == scheduler.MainBase {
		l.useMain(b, commit)
	}
	if err == nil {
		l.noteShared(ctx, src, commit)
	}
	return err
}

var commitName = lazyregexp.New(`^[0-9A-Za-z._-]{1,128}$`)

func (l *loader) useMain(b scheduler.BaseRepo, commit string) {
	if l.Commit != "" && l.Commit != commit {
		l.warn(finding.CodeBaseCommitUnused, b.Position, fmt.Sprintf("base commit %s is not used: the base was read at commit %s", l.Commit, commit), "")
	}
	l.loaded.BaseCommit = commit
}

// givenBases reads the bases that replace what the BaseRepo objects name. Such a base stands for the
// commit that a person gives, else for the one that BaseRepo main pins, else for its own.
func (l *loader) givenBases(ctx context.Context, repos []scheduler.BaseRepo) error {
	own, changed := "", false
	for i, base := range l.Bases {
		src, err := given(BasePart, "", base)
		if err != nil {
			return err
		}
		commit, err := l.read(ctx, l.loaded.Model, src)
		if err != nil {
			return err
		}
		if src.place.folder != "" {
			commit = gitrepo.HeadOf(src.place.folder, false)
			if changed = l.changed(ctx, src) || changed; i == 0 && !changed {
				err = l.checkCommit(src)
			}
		}
		if err != nil {
			return err
		}
		if i == 0 {
			own = commit
		}
	}
	if changed { // no commit has the content that was read
		l.loaded.Model.ForgetBaseCommit()
		return nil
	}
	pinned := ""
	for _, b := range repos {
		if b.Name == scheduler.MainBase {
			pinned = b.Commit
		}
	}
	for _, commit := range []string{own, pinned, l.Commit} {
		if commit != "" {
			l.loaded.BaseCommit = commit
		}
	}
	return nil
}

// checkCommit returns an error if git knows that another commit than the one that a person names is checked out in the folder of a base.
func (l *loader) checkCommit(src origin) error {
	head := gitrepo.HeadOf(src.place.folder, true)
	if l.Commit == "" || head == "" || strings.HasPrefix(head, l.Commit) {
		return nil
	}
	return src.failed(fmt.Errorf("commit %s is checked out there, and not %s: leave out the commit, or check it out", head, l.Commit))
}

func (l *loader) workloads(ctx context.Context) error {
	registrations := l.loaded.Model.Registrations()
	names := make([]string, 0, len(registrations))
	for _, r := range registrations {
		names = append(names, r.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(l.Workloads)) {
		if !slices.Contains(names, name) {
			return &SourceError{Part: WorkloadPart, Name: name, Err: fmt.Errorf("no WorkloadRegistration has this name%s", orElse(names))}
		}
	}
	for _, r := range registrations {
		src := origin{part: WorkloadPart, name: r.Name, at: r.Position, place: location{
			repo: gitrepo.Ref{URL: r.Workload.Repo, Branch: r.Workload.Branch}, path: r.Workload.Path,
		}}
		place, replaced := l.Workloads[r.Name]
		if !replaced {
			place, replaced = l.Checkouts[r.Name]
		}
		if replaced {
			var err error
			if src, err = given(WorkloadPart, r.Name, place); err != nil {
				return err
			}
		} else if l.WorkloadsAt != nil {
			src.place.repo.Commit = l.WorkloadsAt(r.Name, r.Workload.Repo, r.Workload.Branch)
		}
		err := l.loaded.Model.CheckRegistration(r) // before anything is fetched
		if err == nil {
			var commit string
			metered, end := l.loaded.meters.Of(r.Name).Start(ctx)
			commit, err = l.read(metered, l.loaded.Model, src)
			if at := &src.place.repo; !replaced && at.Commit != "" && gitrepo.IsGone(err) { // a force-push has removed it
				at.Commit = ""
				commit, err = l.read(metered, l.loaded.Model, src)
			}
			end()
			l.noteShared(ctx, src, commit)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var notThere *SourceError
		if replaced && errors.As(err, &notThere) { // more likely mistyped than the app team's mistake
			return err
		}
		if err != nil {
			l.loaded.Unread = append(l.loaded.Unread, Unread{Registration: r.Name, Err: err})
		}
	}
	return nil
}

// given is a source that a person named.
func given(part Part, name, place string) (origin, error) {
	parsed, err := parseLocation(place)
	if err != nil {
		return origin{}, &SourceError{Part: part, Name: name, Err: err}
	}
	return origin{part: part, name: name, place: parsed}, nil
}

// read loads a source into model and returns its commit, if it is one of git.
func (l *loader) read(ctx context.Context, model *scheduler.Model, src origin) (commit string, err error) {
	l.loaded.Followed.add(src.place, l.Mirrors, l.Clone)
	var files fs.FS
	if src.place.folder != "" {
		root, err := os.OpenRoot(src.place.folder)
		if err != nil {
			return "", src.failed(cause(err))
		}
		defer func() { _ = root.Close() }()
		files = root.FS()
		if src.part != WorkloadPart && !src.environments {
			l.files = recording(files)
			files = l.files
		}
		if files, err = fs.Sub(ignoring(files), filepath.ToSlash(filepath.Clean(src.place.path))); err != nil {
			return "", src.failed(err)
		}
	} else if files, commit, err = l.readGit(ctx, src); err != nil {
		return "", err
	}
	if model == l.loaded.Model && !src.environments {
		l.remember(src, commit)
	}
	l.Log.Debug("source read", "part", src.part, "name", src.name, "place", src.place.String(), "commit", commit)
	hidden := l.hidden(ctx, src)
	if src.part == BasePart && src.name == scheduler.MainBase && src.place.folder == "" && !src.environments {
		if l.loaded.BaseID, err = gitrepo.ID(files, hidden...); err != nil {
			return "", src.failed(err)
		}
	}
	s := scheduler.Source{FS: gitrepo.Guard(files, hidden...), Name: src.place.String(), OnlyEnvironments: src.environments}
	switch src.part {
	case BasePart:
		s.Base = cmp.Or(src.name, scheduler.MainBase) // a base that a person gives stands for any
	case WorkloadPart:
		s.Registration = src.name
	}
	return commit, model.Load(ctx, s)
}

// remember notes where workloads were read from, and at which commit.
func (l *loader) remember(src origin, commit string) {
	if src.place.folder == "" && commit != "" {
		src.place.repo.Commit = commit
	}
	if l.loaded.places == nil { // only the environments are read
		return
	}
	switch src.part {
	case WorkloadPart:
		l.loaded.places[src.name] = src.place
	case PlatformPart:
		l.loaded.places[""] = src.place
	}
}

func (l *loader) readGit(ctx context.Context, src origin) (fs.FS, string, error) {
	err := gitrepo.CheckURL(src.place.repo.URL)
	var path string
	if err == nil {
		path, err = gitrepo.CleanPath(src.place.path)
	}
	if err != nil {
		return nil, "", src.failed(err)
	}
	tree, err := l.git.Tree(ctx, src.place.repo)
	if err != nil {
		failure := &SourceError{Part: src.part, Name: src.name, Place: src.place.String(), At: src.at, Err: err}
		failure.Unreachable = !errors.Is(err, gitrepo.ErrNoSuchRef) && !errors.Is(err, gitrepo.ErrTooLarge) && !errors.Is(err, meter.ErrExceeded)
		return nil, "", failure
	}
	l.times[tree.Commit] = tree.Time
	files, err := fs.Sub(ignoring(tree.FS), path)
	if err == nil {
		err = isFolder(files)
	}
	if err != nil {
		return nil, "", src.failed(fmt.Errorf("folder %q at commit %s: %w", path, tree.Commit, cause(err)))
	}
	return files, tree.Commit, nil
}

func isFolder(files fs.FS) error {
	info, err := fs.Stat(files, ".")
	if err == nil && !info.IsDir() {
		err = errors.New("not a folder")
	}
	return err
}

// cause drops the operation and path that an error of the file system repeats.
func cause(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// within is the path of output below folder, empty where it is not inside.
func within(folder, output string) string {
	if folder == "" || output == "" {
		return ""
	}
	from, err := filepath.Abs(folder)
	if err != nil {
		return ""
	}
	to, err := filepath.Abs(output)
	if err != nil {
		return ""
	}
	rel, err := filepath.Rel(from, to)
	if err != nil || !filepath.IsLocal(rel) || rel == "." {
		return ""
	}
	return filepath.ToSlash(rel)
}

func (l *loader) warn(code string, at finding.Position, message, hint string) {
	l.loaded.Warnings = append(l.loaded.Warnings, finding.Finding{Code: code, Position: at, Message: message, Hint: hint})
}
