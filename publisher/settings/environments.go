package settings

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// Environment is an environment of a platform, as its Environment object has it.
type Environment struct {
	Name string
	// Repo, Branch and Path are where its objects lie. Path is clean, and "." for the top.
	Repo, Branch, Path string
}

// place returns the folder or branch of an environment, for messages.
func (e Environment) place() string {
	if e.Path != "." {
		return "folder " + e.Path
	}
	return "branch " + e.Branch
}

// Environments returns the environments of a platform, sorted by name: those of the Environment objects in the folder
// .environments and in the files beside it, here or else on the default branch. Objects elsewhere are not looked for.
func (r *Repository) Environments() []Environment {
	for _, dir := range r.places() {
		root, err := os.OpenRoot(dir)
		if err != nil {
			continue
		}
		found := environmentsIn(gitrepo.Tree{FS: root.FS()})
		_ = root.Close()
		if len(found) > 0 {
			return found
		}
	}
	if tree, ok := r.defaultTree(); ok {
		return environmentsIn(tree)
	}
	return nil
}

func environmentsIn(tree gitrepo.Tree) (all []Environment) {
	files := append(objectFiles(tree.FS, environmentsFolder, maxEnvironments), objectFiles(tree.FS, ".", maxObjectFiles)...)
	for _, name := range files {
		for _, o := range objects(tree.FS, name, "Environment") {
			e := new(kinds.Environment)
			if kinds.StringField(o, "apiVersion") != kinds.KalypsoAPI || len(kinds.Decode(name, o, e, false).Errs) > 0 || e.Metadata.Name == "" {
				continue
			}
			at := e.Spec.ControlPlane
			path, err := gitrepo.CleanPath(at.Path)
			if err != nil || slices.ContainsFunc(all, func(other Environment) bool { return other.Name == e.Metadata.Name }) {
				continue
			}
			all = append(all, Environment{Name: e.Metadata.Name, Repo: at.Repo, Branch: at.Branch, Path: path})
		}
	}
	slices.SortFunc(all, func(a, b Environment) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Place is an environment and where its objects lie.
type Place struct {
	// Platform is the folder, or the branch as REPOSITORY#BRANCH:FOLDER, as platform.Source has it.
	Platform string
	// Environment is empty if only the whole platform can tell, or stands for all.
	Environment string
	// Because says why it is this environment; empty if the caller named it.
	Because string
}

// WhichError means that an environment has to be named.
type WhichError struct {
	Dir   string
	Known []Environment
}

// maxNamed bounds how many environments a message names.
const maxNamed = 10

func (e *WhichError) Error() string {
	var names []string
	for _, k := range e.Known[:min(len(e.Known), maxNamed)] {
		names = append(names, fmt.Sprintf("%s (%s)", k.Name, k.place()))
	}
	if more := len(e.Known) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("cannot tell which environment of %s is meant; there are: %s", e.Dir, strings.Join(names, ", "))
}

// UnknownError means that a platform has no environment of a name.
type UnknownError struct {
	Name, Because, Near string // Because and Near may be empty
	Known               []string
}

func (e *UnknownError) Error() string {
	text := fmt.Sprintf("no Environment object is called %q", e.Name)
	if e.Because != "" {
		text += " (" + e.Because + ")"
	}
	return text
}

// Locate returns the place of an environment. Name is empty if the caller names none: then it is that of the variable,
// else the one whose folder or branch the current folder is in, else the default of the settings, else the only one. The
// error is a [*WhichError] if several are left, and an [*UnknownError] for a name that no object has.
func (s *Settings) Locate(name string) (Place, error) {
	known := s.Platform.Environments()
	e, because, err := s.choose(known, name)
	if err != nil {
		return Place{}, err
	}
	if len(known) == 0 {
		return Place{Platform: s.Platform.shown(s.Platform.Dir), Environment: e.Name, Because: because}, nil
	}
	return Place{Platform: s.Platform.of(e, known), Environment: e.Name, Because: because}, nil
}

// LocateAll returns the whole platform for a command that looks at all environments. It is one environment if name, the
// variable or the current folder says so, or if no Environment object names them.
func (s *Settings) LocateAll(name string) (Place, error) {
	known := s.Platform.Environments()
	_, inside := s.Platform.inside(known)
	if name != "" || inside || strings.HasPrefix(s.Environment.Origin, "variable ") || !s.Platform.HasEnvironments() && (len(known) > 0 || s.Environment.Given()) {
		return s.Locate(name)
	}
	return Place{Platform: s.Platform.shown(s.Platform.Dir)}, nil
}

// HasEnvironments reports whether the platform's own folder has Environment objects.
func (r *Repository) HasEnvironments() bool {
	root, err := os.OpenRoot(r.Dir)
	if err != nil {
		return false
	}
	defer func() { _ = root.Close() }()
	return len(environmentsIn(gitrepo.Tree{FS: root.FS()})) > 0
}

// choose returns the environment that is meant, and why.
func (s *Settings) choose(known []Environment, name string) (e Environment, because string, err error) {
	if name == "" && strings.HasPrefix(s.Environment.Origin, "variable ") {
		name, because = s.Environment.Text, s.Environment.Origin
	}
	if name == "" {
		var ok bool
		if e, ok = s.Platform.inside(known); ok {
			return e, s.Platform.evidence(e), nil
		}
		name, because = s.Environment.Text, s.Environment.Origin
	}
	switch {
	case name != "" && len(known) == 0:
		return Environment{Name: name}, because, nil
	case name != "":
		return find(known, name, because)
	case len(known) == 1:
		return known[0], "the only environment", nil
	case len(known) == 0:
		return Environment{}, "", nil
	}
	return Environment{}, "", &WhichError{Dir: s.Platform.shown(s.Platform.Dir), Known: known}
}

func find(known []Environment, name, because string) (Environment, string, error) {
	var names []string
	for _, e := range known {
		if e.Name == name {
			return e, because, nil
		}
		names = append(names, e.Name)
	}
	return Environment{}, "", &UnknownError{Name: name, Because: because, Known: names, Near: show.Nearest(name, names)}
}

// Inside returns the environment whose folder or branch the folder is in that the repository was looked for from.
func (r *Repository) Inside() (name string, ok bool) {
	e, ok := r.inside(r.Environments())
	return e.Name, ok
}

func (r *Repository) inside(known []Environment) (Environment, bool) {
	var found []Environment
	for _, e := range known {
		if r.byFolder(e, known) && below(r.Here, filepath.Join(r.Dir, filepath.FromSlash(e.Path))) {
			found = append(found, e)
		}
	}
	if len(found) == 0 && r.Clone != nil {
		branch := r.Clone.Branch()
		for _, e := range known {
			if branch != "" && e.Branch == branch && !r.byFolder(e, known) {
				found = append(found, e)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b Environment) int { return len(b.Path) - len(a.Path) })
	if len(found) == 0 || len(found) > 1 && found[0].Path == found[1].Path {
		return Environment{}, false
	}
	return found[0], true
}

func below(dir, top string) bool {
	rel, err := filepath.Rel(top, dir)
	return err == nil && filepath.IsLocal(rel)
}

func (r *Repository) evidence(e Environment) string {
	if e.Path != "." {
		return "from " + e.Path
	}
	return "from branch " + e.Branch
}

// byFolder reports whether an environment is a folder of the platform. It is not if another one has a folder of the same
// name on another branch.
func (r *Repository) byFolder(e Environment, known []Environment) bool {
	return e.Path != "." && isFolder(filepath.Join(r.Dir, filepath.FromSlash(e.Path))) && !slices.ContainsFunc(known, func(o Environment) bool {
		return o.Path == e.Path && o.Branch != e.Branch
	})
}

// lacks reports whether an environment should be a folder here, as others of its branch are, and is not.
func (r *Repository) lacks(e Environment, known []Environment) bool {
	if e.Path == "." || isFolder(filepath.Join(r.Dir, filepath.FromSlash(e.Path))) || r.Clone != nil && r.Clone.Branch() != e.Branch {
		return false
	}
	return slices.ContainsFunc(known, func(o Environment) bool { return o.Repo == e.Repo && o.Branch == e.Branch && r.byFolder(o, known) })
}

// of returns the place of an environment: its folder here, the work tree with its branch, the branch in this repository,
// or the place that its object names. A work tree with a branch that is nobody's, or with none, is the environment's if
// it does not hold the whole platform: then somebody is at work on a change to it.
func (r *Repository) of(e Environment, known []Environment) string {
	switch {
	case r.byFolder(e, known), r.lacks(e, known): // reading it says what there is
		return r.shown(r.Dir)
	case r.Clone == nil:
		return r.shown(filepath.Join(r.Dir, filepath.FromSlash(e.Path)))
	}
	r.Clone.AddURL(e.Repo)
	branch := r.Clone.Branch()
	taken := slices.ContainsFunc(known, func(o Environment) bool { return o.Branch == branch })
	if branch == e.Branch || !taken && branch != r.Clone.DefaultBranch() && !r.HasEnvironments() {
		return r.shown(filepath.Join(r.Clone.Top, filepath.FromSlash(e.Path)))
	}
	if top := r.Clone.WorkTree(e.Branch); top != "" {
		return r.shown(filepath.Join(top, filepath.FromSlash(e.Path)))
	}
	if r.Clone.Has(e.Branch) {
		return gitrepo.BranchPlace(r.shown(r.Clone.Top), e.Branch, e.Path)
	}
	return gitrepo.BranchPlace(e.Repo, e.Branch, e.Path)
}

// shown returns a path as it is from the current folder.
func (r *Repository) shown(path string) string { return From(r.cwd, path) }
