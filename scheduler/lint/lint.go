// Package lint finds mistakes in a loaded platform, and in the files that are rendered from it.
//
// [Run] applies all rules to the model of one environment. A rule is a method that inspects objects or rendered files and
// adds findings; each finding has a code that package finding explains. The package writes nothing, and findings do not
// affect rendering.
package lint

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// Report holds the findings about one environment, in the order of their places.
type Report struct {
	Findings []finding.Finding
	// Unused is about objects of bases that this environment does not use. Another one may use them.
	Unused []finding.Finding
	// Rendered is the inspected result, without its files; empty if nothing could be rendered.
	Rendered *scheduler.Result
	// ClusterTypes holds the place of each cluster type, by name.
	ClusterTypes map[string]finding.Position
}

// Options are the optional parts of Run. The zero value is ready for use.
type Options struct {
	// Cache, if not nil, has the output and the findings of earlier runs. The result is the same.
	Cache scheduler.Cache
	// Each, if not nil, is called with each cluster type once it is rendered, from several goroutines and in no order,
	// before its files are dropped.
	Each func(*scheduler.ClusterTypeResult)
	// Complete, if not nil, is called once everything is rendered, and adds the embedded files of assignments with embedded
	// delivery. Their cluster types are inspected afterwards.
	Complete func(context.Context, *scheduler.Result) error
}

// Run returns the findings about the environment: those of [scheduler.Model.Render], and those about the
// objects, their references to each other, and the rendered files. Each finding has a code.
//
// Run returns an error if ctx has ended, or if the environment's name is invalid; mistakes in the input are
// findings.
func Run(ctx context.Context, m *scheduler.Model, opts Options) (*Report, error) {
	l := &linter{model: m, objects: m.Objects(), groups: map[string]*group{}, cache: opts.Cache, merged: map[*kinds.ConfigMap][]mergedValue{}}
	var mu sync.Mutex
	inspected := map[string]inspection{} // by cluster type
	var err error
	inspect := func(ct *scheduler.ClusterTypeResult) error {
		files := l.inspect(ct)
		if opts.Each != nil {
			opts.Each(ct)
		}
		for i := range ct.Assignments {
			ct.Assignments[i].Files = nil // those of all cluster types would take much memory
		}
		mu.Lock()
		defer mu.Unlock()
		inspected[ct.Name] = files
		return nil
	}
	l.result, err = m.Render(ctx, scheduler.Options{Cache: opts.Cache, Each: func(ct *scheduler.ClusterTypeResult) error {
		if opts.Complete != nil && embeds(ct) {
			return nil
		}
		return inspect(ct)
	}})
	if err == nil && opts.Complete != nil {
		if err := l.complete(ctx, opts.Complete, inspect); err != nil {
			return nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	l.targets = m.Targets()
	if err != nil {
		mistakes := finding.In(err)
		if len(mistakes) == 0 || mistakes[0].Position == (finding.Position{}) { // such as a wrong name of the environment
			return nil, err
		}
		l.result = &scheduler.Result{}
		l.found = append(mistakes, m.Findings()...)
	} else {
		l.found = append(slices.Clone(l.result.Warnings), l.pending...)
		l.hintPolicies()
		l.failures()
		l.emptyTypes()
		l.useless()
		l.merges()
		l.dependencies()
		l.rendered(inspected)
	}
	for _, p := range m.FailedPolicies() {
		l.found = append(l.found, finding.In(p.Err)...)
	}
	l.references()
	l.annotations()
	l.values()
	l.siteValues()
	l.nameGroups()
	l.found = slices.DeleteFunc(l.found, func(f finding.Finding) bool { return !slices.Contains(refusing, f.Code) && m.Ignores(f.Code) }) // those in files are ignored where they are found
	report := &Report{Findings: sortFindings(l.found), Unused: sortFindings(l.unused), Rendered: l.result, ClusterTypes: map[string]finding.Position{}}
	for name, ct := range l.objects.ClusterTypes {
		report.ClusterTypes[name] = ct.At
	}
	return report, nil
}

// embeds reports whether a cluster type has assignments with embedded delivery.
func embeds(ct *scheduler.ClusterTypeResult) bool {
	return slices.ContainsFunc(ct.Assignments, func(a scheduler.Assignment) bool { return a.Delivery == scheduler.Embedded })
}

// complete has complete add the embedded files, and inspects the cluster types that have any.
func (l *linter) complete(ctx context.Context, complete func(context.Context, *scheduler.Result) error, inspect func(*scheduler.ClusterTypeResult) error) error {
	var later []*scheduler.ClusterTypeResult
	for i := range l.result.ClusterTypes {
		if embeds(&l.result.ClusterTypes[i]) {
			later = append(later, &l.result.ClusterTypes[i])
		}
	}
	if len(later) == 0 {
		return nil
	}
	if err := complete(ctx, l.result); err != nil {
		return err
	}
	for _, ct := range later {
		l.needsAgent(ct)
		if err := inspect(ct); err != nil {
			return err
		}
	}
	return nil
}

// needsAgent notes a cluster type whose embedded bundle an engine cannot consume without the agent.
func (l *linter) needsAgent(ct *scheduler.ClusterTypeResult) {
	i := slices.IndexFunc(ct.Assignments, func(a scheduler.Assignment) bool {
		return a.Delivery == scheduler.Embedded && (a.Adapter == "flux" || a.Adapter == "argo")
	})
	if i < 0 {
		return
	}
	l.pending = append(l.pending, finding.New(finding.CodeNeedsAgent, l.objects.ClusterTypes[ct.Name].At, "",
		"ClusterType %q: %s takes the manifests of embedded assignments, such as %s, from the agent: it cannot consume this bundle directly",
		ct.Name, map[string]string{"flux": "Flux", "argo": "Argo CD"}[ct.Assignments[i].Adapter], ct.Assignments[i].Name))
}

// linter collects findings about one environment.
type linter struct {
	model   *scheduler.Model
	objects scheduler.Objects
	result  *scheduler.Result
	targets []*kinds.Target // of the environment
	found   []finding.Finding
	pending []finding.Finding // about the result, until it is complete
	unused  []finding.Finding
	cache   scheduler.Cache
	merged  map[*kinds.ConfigMap][]mergedValue // see valuesOf
	// groups holds one finding for many assignments with the same mistake, by that mistake.
	groups map[string]*group
}

// group is one finding about several assignments.
type group struct {
	place int // in found
	first string
	more  int
}

// environmentNames lists the environments that Environment objects name.
func (l *linter) environmentNames() (names []string) {
	for _, e := range l.model.Environments() {
		names = append(names, e.Name)
	}
	return names
}

// sortedValues lists the values of a map in the order of its keys.
func sortedValues[V any](m map[string]V) []V {
	var all []V
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, m[key])
	}
	return all
}

func (l *linter) add(code string, at finding.Position, hint, format string, args ...any) {
	l.found = append(l.found, finding.New(code, at, hint, format, args...))
}

// addUnused is add for an object that, if it is of a base, another environment may use.
func (l *linter) addUnused(o *kinds.Common, code, hint, format string, args ...any) {
	f := finding.New(code, o.At, hint, format, args...)
	if o.InBase {
		l.unused = append(l.unused, f)
	} else {
		l.found = append(l.found, f)
	}
}

// addFor adds f about an assignment. Of the findings with one key, only the first is added; the others are counted.
func (l *linter) addFor(key, assignment string, f finding.Finding) {
	key = f.Code + " " + f.Position.String() + " " + key
	if g, ok := l.groups[key]; ok {
		g.more++
		return
	}
	l.groups[key] = &group{place: len(l.found), first: assignment}
	l.found = append(l.found, f)
}

func sortFindings(found []finding.Finding) []finding.Finding {
	slices.SortStableFunc(found, func(a, b finding.Finding) int {
		return cmp.Or(a.Position.Compare(b.Position), strings.Compare(a.Code, b.Code), strings.Compare(a.Message, b.Message))
	})
	return slices.Compact(found)
}

// failures adds the reasons why assignments could not be rendered. Templates that do not exist are found by the objects'
// references, even without an assignment.
func (l *linter) failures() {
	for _, ct := range l.result.ClusterTypes {
		for _, failure := range ct.Failures {
			mistakes := finding.In(failure.Err)
			if len(mistakes) == 0 {
				mistakes = []finding.Finding{{Position: l.objects.ClusterTypes[ct.Name].At, Message: failure.Err.Error()}}
			}
			for _, f := range mistakes {
				if f.Code == finding.CodeNoTemplate {
					continue
				}
				f.Code = cmp.Or(f.Code, finding.CodeNotRendered)
				l.addFor(cmp.Or(f.Group, f.Message), ct.Name+"/"+failure.Name, f)
			}
		}
	}
}

func (l *linter) emptyTypes() {
	if len(l.result.ClusterTypes) == 0 {
		l.add(finding.CodeNoClusterTypes, finding.Position{}, "of a repository with a branch per environment, give the URL or PATH#BRANCH", "environment %q has no ClusterType", l.model.EnvironmentName())
	}
	for _, ct := range l.result.ClusterTypes {
		if len(ct.Assignments)+len(ct.Failures) == 0 {
			o := l.objects.ClusterTypes[ct.Name]
			l.add(finding.CodeEmptyClusterType, o.At, "", "nothing is assigned to ClusterType %q in environment %q", ct.Name, l.model.EnvironmentName())
		}
	}
}
