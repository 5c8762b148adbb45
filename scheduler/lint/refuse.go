package lint

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// Refusals finds the assignments of an environment that no cluster would take as they are rendered, by the inspection of
// [Run] and with its cache. What the Platform ignores passes, unless agents cannot parse it. So does what is no Kubernetes
// object, of an assignment whose templates make none and that has no annotation about its reconciler.
//
// Begin with [NewRefusals]. A Refusals may be used by several goroutines.
type Refusals struct {
	model   *scheduler.Model
	objects scheduler.Objects
	targets []*kinds.Target
	cache   scheduler.Cache

	mu     sync.Mutex
	warned linter
}

// NewRefusals returns the Refusals of a loaded environment. The cache may be nil.
func NewRefusals(m *scheduler.Model, cache scheduler.Cache) *Refusals {
	r := &Refusals{model: m, objects: m.Objects(), targets: m.Targets(), cache: cache}
	r.warned = *r.linter()
	return r
}

func (r *Refusals) linter() *linter {
	return &linter{model: r.model, objects: r.objects, targets: r.targets, cache: r.cache, groups: map[string]*group{}}
}

// refusal is a finding about an assignment, by its index, which keeps it from being published.
type refusal struct {
	assignment int
	key        string
	finding.Finding
}

// Fail makes the assignments of a cluster type fail that are refused. The reason of the failure is the code of the finding.
func (r *Refusals) Fail(ct *scheduler.ClusterTypeResult) {
	found := r.in(ct)
	if len(found) == 0 {
		return
	}
	var kept []scheduler.Assignment
	for i, a := range ct.Assignments {
		var errs []error
		for _, f := range found {
			if f.assignment == i {
				errs = append(errs, &finding.Error{Position: f.Position, Code: f.Code, Message: f.Message + " [" + f.Code + "]", Hint: f.Hint, Group: f.Message})
			}
		}
		if len(errs) == 0 {
			kept = append(kept, a)
			continue
		}
		first := slices.IndexFunc(found, func(f refusal) bool { return f.assignment == i })
		ct.Failures = append(ct.Failures, scheduler.Failure{
			Name: a.Name, ClusterType: ct.Name, Reason: scheduler.FailureReason(found[first].Code), Err: finding.Join(errs),
		})
	}
	ct.Assignments = kept
	slices.SortStableFunc(ct.Failures, func(a, b scheduler.Failure) int { return cmp.Compare(a.Name, b.Name) })
}

// Warn notes the assignments of a cluster type that are refused, for Warnings.
func (r *Refusals) Warn(ct *scheduler.ClusterTypeResult) {
	found := r.in(ct)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range found {
		r.warned.addFor(f.key, ct.Name+"/"+ct.Assignments[f.assignment].Name, f.Finding)
	}
}

// Warnings returns what Warn has noted, by position. The same about several assignments is one. It is called once, at the end.
func (r *Refusals) Warnings() []finding.Finding {
	r.warned.nameGroups()
	return sortFindings(r.warned.found)
}

// in returns the refusals of a cluster type, by assignment.
func (r *Refusals) in(ct *scheduler.ClusterTypeResult) (all []refusal) {
	object := r.objects.ClusterTypes[ct.Name]
	if object == nil { // it has left the environment
		return nil
	}
	l := r.linter()
	seen := l.inspect(ct)
	for i := range ct.Assignments {
		if len(ct.Assignments[i].Health) == 0 && (len(seen) == 0 || seen[0].assignment != i) {
			continue // as most are
		}
		files := &renderedFiles{linter: l, ct: object, assignment: ct.Assignments[i]}
		for ; len(seen) > 0 && seen[0].assignment == i; seen = seen[1:] {
			s := seen[0]
			if s.Code == "" {
				files.own = append(files.own, s.id())
			} else if f, ok := files.finding(s); ok && files.refuses(s) {
				all = append(all, refusal{i, s.Place + s.Same, f})
			}
		}
		for _, f := range files.aboutNothing() {
			if !r.model.Ignores(f.Code) {
				all = append(all, refusal{i, f.Group, f})
			}
		}
	}
	return all
}

// refusing are the codes of findings in files that keep an assignment from being published.
var refusing = []string{
	finding.CodeNoTextInConfig, finding.CodeRenderedSyntax, finding.CodeNoKubeObject, finding.CodeKubeName, finding.CodeObjectTwice, finding.CodeRefusedObject,
}

func (r *renderedFiles) refuses(s sighting) bool {
	switch {
	case s.Code == finding.CodeTooManyForAgent:
		return !r.model.Ignores(s.Code)
	case !r.appliesObjects(s.path):
		return false
	case s.About == notKubernetes:
		return r.namesAdapter()
	case s.Unparsed != "":
		return true
	}
	return slices.Contains(refusing, s.Code) && !r.model.Ignores(s.Code)
}

// appliesObjects reports whether a file holds Kubernetes objects.
func (r *renderedFiles) appliesObjects(path string) bool {
	return slices.Contains(objectAdapters, r.assignment.Adapter) || isEmbedded(&r.assignment, scheduler.File{Path: path})
}

// namesAdapter reports whether an annotation says that the assignment's files are Kubernetes objects.
func (r *renderedFiles) namesAdapter() bool {
	i := slices.IndexFunc(r.targets, func(t *kinds.Target) bool {
		return t.Name == r.assignment.Name && t.Workload.Registration == r.assignment.Registration
	})
	if i < 0 {
		return false
	}
	_, named := kinds.AnnotationFor(r.ct, r.targets[i], "adapter")
	return named
}

// nameGroups begins the messages of findings with the assignments that they are about.
func (l *linter) nameGroups() {
	for _, g := range l.groups {
		of := g.first
		if g.more > 0 {
			of += fmt.Sprintf(" and %d more", g.more)
		}
		l.found[g.place].Message = of + ": " + l.found[g.place].Message
	}
}
