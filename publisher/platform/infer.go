package platform

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/scheduler"
)

// WhichEnvironmentError means that a [Source] names no environment, and that not exactly one fits the platform.
type WhichEnvironmentError struct {
	Place string
	// Fitting are the environments whose folder or branch Place is: none, or several.
	Fitting []scheduler.Environment
	// Known are all that were found, sorted by name; there may be none.
	Known []scheduler.Environment
}

func (e *WhichEnvironmentError) Error() string {
	switch {
	case len(e.Known) == 0:
		return fmt.Sprintf("cannot tell which environment %s is: there is %v", e.Place, ErrNoEnvironments)
	case len(e.Fitting) > 1:
		return fmt.Sprintf("cannot tell which environment %s is, as several fit: %s", e.Place, candidates(e.Fitting))
	}
	return fmt.Sprintf("cannot tell which environment %s is; there are: %s", e.Place, candidates(e.Known))
}

// maxNamedEnvironments bounds how many a message names.
const maxNamedEnvironments = 10

// candidates lists environments with their places; at most maxNamedEnvironments.
func candidates(environments []scheduler.Environment) string {
	var list []string
	for _, e := range environments[:min(len(environments), maxNamedEnvironments)] {
		list = append(list, fmt.Sprintf("%s (%s)", e.Name, placeText(e)))
	}
	text := strings.Join(list, ", ")
	if more := len(environments) - len(list); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// infer chooses the environment whose folder or branch the platform is, or the only one in known, if nothing says that
// the platform is not its. With none or several it returns a [*WhichEnvironmentError].
func (l *loader) infer(ctx context.Context, known []scheduler.Environment) error {
	place, err := parseLocation(l.Platform)
	if err != nil {
		return err
	}
	var fitting []scheduler.Environment
	for _, e := range known {
		if _, around := l.below(ctx, place, e); isPlaceOf(place, e) && !around {
			fitting = append(fitting, e)
		}
	}
	known, fitting = oneOfEachName(known), oneOfEachName(fitting)
	contradicted := func(e scheduler.Environment) bool { return l.contradicts(ctx, place, e) }
	switch {
	case len(fitting) == 1:
		l.choose(fitting[0], "from "+evidence(place, fitting[0]))
	case len(fitting) == 0 && len(known) == 1 && !contradicted(known[0]):
		l.choose(known[0], fmt.Sprintf("the only Environment object, %s", known[0].Position))
	default:
		return &WhichEnvironmentError{Place: place.String(), Fitting: fitting, Known: known}
	}
	return nil
}

func (l *loader) choose(e scheduler.Environment, why string) {
	l.Environment, l.loaded.Inferred = e.Name, why
	l.loaded.Model.SetEnvironment(e.Name)
}

// inferFromAll chooses the environment once the platform and its bases are read. It refuses one that was chosen
// before, from fewer objects, where another one fits now or several do.
func (l *loader) inferFromAll(ctx context.Context) error {
	if l.given {
		return nil
	}
	before := l.Environment
	all := slices.Concat(l.known, l.loaded.Model.Environments())
	if err := l.infer(ctx, all); err != nil {
		return err
	}
	if before != "" && before != l.Environment {
		return &WhichEnvironmentError{Place: l.Platform, Known: oneOfEachName(all)}
	}
	return nil
}

// oneOfEachName sorts environments by name and drops repeated names, of which the first stays.
func oneOfEachName(environments []scheduler.Environment) []scheduler.Environment {
	sorted := slices.Clone(environments)
	slices.SortStableFunc(sorted, func(a, b scheduler.Environment) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(sorted, func(a, b scheduler.Environment) bool { return a.Name == b.Name })
}

// contradicts reports whether place is known to be none of e's: another folder, or another branch. A place of which
// nothing is known, such as a folder outside git, contradicts no environment that has a branch of its own.
func (l *loader) contradicts(ctx context.Context, place location, e scheduler.Environment) bool {
	p, err := gitrepo.CleanPath(e.ControlPlane.Path)
	if err != nil {
		return true
	}
	if _, ok := l.below(ctx, place, e); ok || place.repo == (gitrepo.Ref{URL: place.repo.URL}) && place.folder == "" {
		return false
	}
	if place.folder != "" {
		branch := gitrepo.BranchOf(place.folder)
		return p != "." || branch != "" && branch != e.ControlPlane.Branch
	}
	own, err := gitrepo.CleanPath(place.path)
	return err != nil || own != p || place.repo.Branch != "" && place.repo.Branch != e.ControlPlane.Branch
}

// evidence is what of place, which fits e, says so.
func evidence(place location, e scheduler.Environment) string {
	if place.folder == "" {
		return place.String()
	}
	dir, err := filepath.Abs(place.folder)
	if err != nil {
		return place.String()
	}
	name := path.Base(filepath.ToSlash(dir))
	if p, err := gitrepo.CleanPath(e.ControlPlane.Path); err == nil && p == "." && name != e.Name && name != e.ControlPlane.Branch {
		return "branch " + e.ControlPlane.Branch
	}
	if shown := place.String(); path.Base(shown) == name {
		return shown
	}
	return name // such as of "."
}
