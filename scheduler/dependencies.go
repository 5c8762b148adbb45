package scheduler

import (
	"cmp"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// annotate sets the fields of a cluster type's rendered assignments, which are some of the selected ones, from their
// annotations. Assignments with invalid annotations become failures.
func (r *renderer) annotate(ct *kinds.ClusterType, selected bitset, released *releasedNames, result *ClusterTypeResult) {
	if !annotated(&ct.Common) && !slices.ContainsFunc(r.model.objects.Workloads, func(w *kinds.Workload) bool { return annotated(&w.Common) }) {
		return
	}
	here := newDependencies(r, ct, selected)
	here.released = released
	circles := here.circles()
	sites, sitesErr := r.siteSchemas.of(ct)
	kept := result.Assignments[:0]
	for _, a := range result.Assignments {
		t := here.targets[a.Name]
		settings, err := settings(ct, t)
		if err == nil {
			settings.DependsOn, err = here.of(t)
		}
		if err == nil {
			settings.SiteValues, err = siteKeys(ct, t, sites, sitesErr)
		}
		if err = cmp.Or(err, circles[t]); err != nil {
			err = because(BadAnnotation, err)
		} else if err = checkFetched(ct, t, a.Adapter); err != nil {
			err = because(NoDigest, err)
		}
		if err != nil {
			result.Failures = append(result.Failures, newFailure(a.Name, ct.Metadata.Name, err))
			continue
		}
		a.Settings = settings
		kept = append(kept, a)
	}
	result.Assignments = kept
	slices.SortStableFunc(result.Failures, func(a, b Failure) int { return strings.Compare(a.Name, b.Name) })
}

// annotated reports whether o may have an annotation of wherry's.
func annotated(o *kinds.Common) bool {
	for key := range o.Metadata.Annotations {
		if strings.Contains(key, kinds.AnnotationPrefix) {
			return true
		}
	}
	return false
}

// dependencies resolves the dependencies of the targets of one cluster type.
type dependencies struct {
	ct        *kinds.ClusterType
	targets   map[string]*target   // by name
	workloads map[string][]*target // by workload
	known     map[*target]needs
	released  *releasedNames
}

// needs is the result of one target's annotation.
type needs struct {
	names []string
	err   error
}

func newDependencies(r *renderer, ct *kinds.ClusterType, selected bitset) *dependencies {
	d := &dependencies{ct: ct, targets: map[string]*target{}, workloads: map[string][]*target{}, known: map[*target]needs{}}
	for t := range selected.all {
		target := r.targets[t]
		name := target.Workload.Metadata.Name
		d.targets[target.Name], d.workloads[name] = target, append(d.workloads[name], target)
	}
	return d
}

// of returns the names of the assignments that t waits for, sorted.
func (d *dependencies) of(t *target) ([]string, error) {
	if n, ok := d.known[t]; ok {
		return n.names, n.err
	}
	var n needs
	if a, ok := kinds.AnnotationFor(d.ct, &t.Target, "depends-on"); ok {
		n.names, n.err = d.resolve(t, a)
	}
	d.known[t] = n
	return n.names, n.err
}

func (d *dependencies) resolve(t *target, a kinds.Annotation) ([]string, error) {
	const form = "write workloads, or one target as WORKLOAD/TARGET, with commas between them"
	words := strings.Split(a.Value, ",")
	if len(words) > maxDependencies {
		return nil, finding.WithCode(finding.CodeDependsOnSyntax, a.Mistake(form, "it names %d, at most %d are permitted", len(words), maxDependencies))
	}
	var names []string
	for i, word := range words {
		if slices.Contains(words[:i], word) {
			continue
		}
		word = strings.TrimSpace(word)
		workload, name, one := strings.Cut(word, "/")
		if workload == "" || one && name == "" {
			return nil, finding.WithCode(finding.CodeDependsOnSyntax, a.Mistake(form, "%q names no workload", word))
		}
		found := false
		named := d.named(t, workload)
		for _, other := range named {
			if one && other.Spec.Name != name || !one && other == t && len(named) > 1 {
				continue // the name stands for the other targets of its workload
			}
			found = true
			names = append(names, other.Name)
		}
		if !found {
			return nil, finding.WithCode(finding.CodeDependencyAbsent, a.Mistake(d.suggestion(word), "%q is not assigned to cluster type %q", word, d.ct.Metadata.Name))
		}
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) > maxDependencies {
		return nil, finding.WithCode(finding.CodeDependsOnSyntax, a.Mistake("name single targets", "it stands for %d targets, at most %d are permitted", len(names), maxDependencies))
	}
	return names, nil
}

// named returns the targets of the workload that t names. If several registrations have a workload of that name, t means
// its own registration's, or the one that it waits for in the last release, or the one that had the name first: a team
// cannot take over the dependency of another by using a workload's name.
func (d *dependencies) named(t *target, workload string) []*target {
	all := d.workloads[workload]
	of := func(registrations ...string) []*target {
		return slices.DeleteFunc(slices.Clone(all), func(other *target) bool { return !slices.Contains(registrations, other.Workload.Registration) })
	}
	if len(all) < 2 || len(of(all[0].Workload.Registration)) == len(all) {
		return all
	}
	if own := of(t.Workload.Registration); len(own) > 0 {
		return own
	}
	var before, first []string // registrations
	for name, a := range d.released.all() {
		if a.Workload != workload {
			continue
		}
		first = append(first, a.Registration)
		if was := d.released.all()[t.Name]; was.Registration == t.Workload.Registration && slices.Contains(was.DependsOn, name) {
			before = append(before, a.Registration)
		}
	}
	for _, registrations := range [][]string{before, first} {
		if found := of(registrations...); len(found) > 0 {
			return found
		}
	}
	return all
}

// maxCompared bounds the targets that a mistyped dependency is compared with, since every target may have a mistyped
// dependency.
const maxCompared = 500

// suggestion returns the known word nearest to a mistyped one; empty if none is similar, or too many would be compared.
func (d *dependencies) suggestion(word string) string {
	if len(d.targets) > maxCompared {
		return ""
	}
	return finding.DidYouMean(word, d.words())
}

// words lists what an annotation could name.
func (d *dependencies) words() []string {
	words := sortedKeys(d.workloads)
	for _, name := range sortedKeys(d.targets) {
		t := d.targets[name]
		words = append(words, t.Workload.Metadata.Name+"/"+t.Spec.Name)
	}
	return words
}

// circles finds the targets that depend on themselves, directly or through others, with an error for each.
func (d *dependencies) circles() map[*target]error {
	circles := map[*target]error{}
	for _, members := range d.components() {
		slices.Sort(members)
		way := d.way(members)
		if way == nil {
			continue
		}
		for _, name := range members {
			a, _ := kinds.AnnotationFor(d.ct, &d.targets[name].Target, "depends-on")
			circles[d.targets[name]] = finding.WithCode(finding.CodeDependencyCycle, a.Mistake("leave out one of these dependencies", "assignments wait for each other: %s", strings.Join(way, " → ")))
		}
	}
	return circles
}

// components groups the targets that reach each other, by Tarjan's algorithm, so that a platform whose
// dependencies are all in order is looked at once.
func (d *dependencies) components() [][]string {
	var groups [][]string
	var open []string
	number, low, isOpen := map[string]int{}, map[string]int{}, map[string]bool{}
	var visit func(string)
	visit = func(name string) {
		number[name] = len(number) + 1
		low[name], isOpen[name], open = number[name], true, append(open, name)
		next, _ := d.of(d.targets[name])
		for _, n := range next {
			switch {
			case number[n] == 0:
				visit(n)
				low[name] = min(low[name], low[n])
			case isOpen[n]:
				low[name] = min(low[name], number[n])
			}
		}
		if low[name] == number[name] {
			var group []string
			for isOpen[name] {
				last := open[len(open)-1]
				group, open, isOpen[last] = append(group, last), open[:len(open)-1], false
			}
			groups = append(groups, group)
		}
	}
	for _, name := range sortedKeys(d.targets) {
		if number[name] == 0 {
			visit(name)
		}
	}
	return groups
}

// way returns the shortest circle from the first of members, which are sorted, through them back to itself; nil if there is
// none.
func (d *dependencies) way(members []string) []string {
	first := members[0]
	before, queue := map[string]string{}, []string{first}
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		next, _ := d.of(d.targets[name])
		for _, n := range next {
			if n == first {
				way := []string{first}
				for ; name != first; name = before[name] {
					way = append(way, name)
				}
				way = append(way, first)
				slices.Reverse(way)
				return way
			}
			_, seen := before[n]
			if _, member := slices.BinarySearch(members, n); member && !seen {
				before[n], queue = name, append(queue, n)
			}
		}
	}
	return nil
}
