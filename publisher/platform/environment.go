package platform

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// environmentsAt returns the Environment objects of a source, and reads nothing else of it.
func (l *loader) environmentsAt(ctx context.Context, src origin) ([]scheduler.Environment, error) {
	src.environments = true
	m := scheduler.NewModel(l.Environment)
	_, err := l.read(ctx, m, src)
	return m.Environments(), err
}

// follow leads to the folder that the environment's own Environment object in src names, where one branch has a
// folder for each environment. Without one, src is the environment.
func (l *loader) follow(ctx context.Context, src origin) (origin, error) {
	environments, err := l.environmentsAt(ctx, src)
	if err != nil {
		return src, err
	}
	if l.known = append(environments, l.around(ctx, src.place)...); !l.given && len(l.known) > 0 { // else a base may say it
		if err := l.infer(ctx, l.known); err != nil {
			return src, err
		}
	}
	var known []string
	for _, e := range environments {
		if e.Name != l.Environment {
			known = append(known, e.Name)
			continue
		}
		if place, ok := l.below(ctx, src.place, e); ok {
			l.beside = &origin{part: BasePart, place: src.place}
			src.place, src.at, l.named = place, e.Position, true
		} else if there := l.besides(ctx, src.place, e, environments); len(there) > 0 && !isPlaceOf(src.place, e) {
			return src, &finding.Error{
				Code: finding.CodeUnknownEnvironment, Position: e.Position,
				Message: fmt.Sprintf("Environment %q is in folder %s, which is not in %s", e.Name, path.Clean(e.ControlPlane.Path), src.place),
				Hint:    "environments with a folder there: " + strings.Join(there, ", "),
			}
		}
		return src, nil
	}
	if len(known) > 0 {
		return src, l.noEnvironment(known)
	}
	return src, nil
}

// besides names the environments of e's branch that have a folder below root.
func (l *loader) besides(ctx context.Context, root location, e scheduler.Environment, all []scheduler.Environment) (names []string) {
	for _, o := range all {
		if _, ok := l.below(ctx, root, o); ok && o.ControlPlane.Branch == e.ControlPlane.Branch {
			names = append(names, o.Name)
		}
	}
	return names
}

// below returns the folder of root that e names by its path, and reports whether it is one and not root itself.
func (l *loader) below(ctx context.Context, root location, e scheduler.Environment) (location, bool) {
	p, err := gitrepo.CleanPath(e.ControlPlane.Path)
	if err != nil || p == "." {
		return root, false
	}
	if root.folder != "" {
		root.path = path.Join(root.path, p)
		info, err := os.Stat(root.dir())
		return root, err == nil && info.IsDir()
	}
	if root.repo.Branch != "" && root.repo.Branch != e.ControlPlane.Branch || root.repo == (gitrepo.Ref{URL: root.repo.URL}) {
		return root, false
	}
	tree, err := l.git.Tree(ctx, root.repo)
	if err != nil {
		return root, false
	}
	root.path = path.Join(root.path, p)
	info, err := fs.Stat(tree.FS, root.path)
	return root, err == nil && info.IsDir()
}

// hidden lists the folders of a source that are not read: the output, and of a base those that its Environment
// objects name, which are the environments' own.
func (l *loader) hidden(ctx context.Context, src origin) []string {
	var hidden []string
	if out := within(src.place.dir(), l.Output); src.place.folder != "" && out != "" {
		hidden = append(hidden, out)
	}
	if src.part != BasePart || src.environments {
		return hidden
	}
	environments, err := l.environmentsAt(ctx, src)
	if err != nil {
		return hidden // it is said when all is read
	}
	for _, e := range environments {
		twin := slices.ContainsFunc(environments, func(o scheduler.Environment) bool {
			return o.ControlPlane.Branch != e.ControlPlane.Branch && path.Clean(o.ControlPlane.Path) == path.Clean(e.ControlPlane.Path)
		})
		if _, ok := l.below(ctx, src.place, e); ok && !twin { // else each is on a branch of its own
			p, _ := gitrepo.CleanPath(e.ControlPlane.Path)
			hidden = append(hidden, p)
		}
	}
	return hidden
}

// baseBeside returns the base of an environment whose folder is below root: the folder of root that its BaseRepo
// called main names, else root, of which the environments' folders are left out.
func (l *loader) baseBeside(ctx context.Context, root, environment location) string {
	m := scheduler.NewModel("")
	if _, err := l.read(ctx, m, origin{part: PlatformPart, place: environment}); err == nil {
		for _, b := range m.BaseRepos() {
			beside := scheduler.Environment{ControlPlane: kinds.Repository{Branch: root.repo.Branch, Path: b.Path}}
			if place, ok := l.below(ctx, root, beside); ok && b.Name == scheduler.MainBase {
				return place.written()
			}
		}
	}
	return root.written()
}

// written is the location as parseLocation reads it.
func (l location) written() string {
	if l.folder != "" {
		return l.dir()
	}
	branch := l.repo.Branch
	if l.repo.Commit != "" {
		branch = l.repo.Commit
	}
	return strings.TrimSuffix(l.repo.URL+"#"+branch+":"+l.path, ":")
}

// around returns the Environment objects in the nearest folder .environments above a folder, up to the top of its
// git work tree or else the current folder.
func (l *loader) around(ctx context.Context, place location) []scheduler.Environment {
	dir, err := filepath.Abs(place.folder)
	if place.folder == "" || err != nil {
		return nil
	}
	top := gitrepo.WorkTreeOf(dir)
	if top == "" {
		top, _ = os.Getwd()
	}
	for dir != top && strings.HasPrefix(dir, strings.TrimSuffix(top, "/")+"/") {
		dir = filepath.Dir(dir)
		if found := filepath.Join(dir, environmentsFolder); exists(found) {
			environments, _ := l.environmentsAt(ctx, origin{part: PlatformPart, place: location{folder: found}})
			return environments
		}
	}
	return nil
}

// checkPlace refuses a platform that, by the Environment objects, is another environment's: what would be signed
// would be its configuration. A place that says nothing about any environment may be anything.
func (l *loader) checkPlace() error {
	place, err := parseLocation(l.Platform)
	if err != nil {
		return err
	}
	all := slices.Concat(l.known, l.loaded.Model.Environments())
	own := slices.IndexFunc(all, func(e scheduler.Environment) bool { return e.Name == l.Environment })
	if own < 0 || slices.ContainsFunc(all, func(e scheduler.Environment) bool { return e.Name == l.Environment && isPlaceOf(place, e) }) {
		return nil
	}
	for _, e := range all {
		if isPlaceOf(place, e) {
			return &finding.Error{
				Code:    finding.CodeOtherEnvironment,
				Message: fmt.Sprintf("%s is environment %q by %s, not %q, which is %s by %s", place, e.Name, e.Position, l.Environment, placeText(all[own]), all[own].Position),
				Hint:    fmt.Sprintf("give --environment %s, or the folder or branch of %s", e.Name, l.Environment),
			}
		}
	}
	return nil
}

func placeText(e scheduler.Environment) string {
	text := "branch " + e.ControlPlane.Branch
	if p, err := gitrepo.CleanPath(e.ControlPlane.Path); err == nil && p != "." {
		text += ", folder " + p
	}
	return text
}

// isPlaceOf reports whether a folder or branch is where e says that it lives. A folder is where its path ends with e's,
// its checked-out branch is e's, or it has the name of e.
func isPlaceOf(place location, e scheduler.Environment) bool {
	p, err := gitrepo.CleanPath(e.ControlPlane.Path)
	if err != nil {
		return false
	}
	if place.folder == "" {
		own, err := gitrepo.CleanPath(place.path)
		return err == nil && place.repo.Branch != "" && place.repo.Branch == e.ControlPlane.Branch && own == p
	}
	dir, err := filepath.Abs(place.folder)
	if err != nil {
		return false
	}
	dir = filepath.ToSlash(dir)
	switch name := path.Base(dir); {
	case name == e.Name:
		return true
	case p != ".":
		return strings.HasSuffix(dir, "/"+p)
	default:
		return e.ControlPlane.Branch != "" && (name == e.ControlPlane.Branch || gitrepo.BranchOf(place.folder) == e.ControlPlane.Branch)
	}
}

// checkEnvironment refuses an environment whose name is most probably mistyped: no workload has targets for it, so only
// empty releases would be published. Without any Environment object, the right names are unknown.
func (l *loader) checkEnvironment(ctx context.Context) error {
	if err := l.inferFromAll(ctx); err != nil {
		return err
	}
	var known []string
	for _, e := range l.loaded.Model.Environments() {
		known = append(known, e.Name)
	}
	if l.named {
		return nil
	}
	if len(known) == 0 || slices.Contains(known, l.Environment) {
		return l.checkPlace()
	}
	return l.noEnvironment(known)
}

func (l *loader) noEnvironment(known []string) error {
	return &finding.Error{
		Code: finding.CodeUnknownEnvironment, Message: fmt.Sprintf("no Environment object is called %q", l.Environment), Hint: "known: " + strings.Join(known, ", "),
	}
}
