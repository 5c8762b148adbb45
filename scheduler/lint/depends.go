package lint

import (
	"slices"

	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// annotations checks annotations that rendering does not read: a validity, which publishing uses, and those of objects to which
// nothing is assigned.
func (l *linter) annotations() {
	unassigned := func(o *kinds.Common) {
		for _, f := range scheduler.AnnotationMistakes(o) {
			if !slices.ContainsFunc(l.found, func(known finding.Finding) bool { return known.Code == f.Code && known.Position == f.Position }) {
				l.found = append(l.found, f)
			}
		}
	}
	for _, w := range l.objects.Workloads {
		unassigned(&w.Common)
	}
	for _, ct := range sortedValues(l.objects.ClusterTypes) {
		unassigned(&ct.Common)
		v, ok := ct.Metadata.Annotations[scheduler.ValidityAnnotation]
		if !ok {
			continue
		}
		if _, err := scheduler.ParseValidity(v.Value); err != nil {
			l.add(finding.CodeAnnotationValue, ct.Position(v.Line), "", "annotation %s: %v", scheduler.ValidityAnnotation, err)
		}
	}
}

// dependencies adds assignments that come, by their wave, before one that they depend on.
func (l *linter) dependencies() {
	for _, ct := range l.result.ClusterTypes {
		waves := map[string]int{}
		for _, a := range ct.Assignments {
			waves[a.Name] = a.Wave
		}
		for _, a := range ct.Assignments {
			for _, name := range a.DependsOn {
				if late := waves[name]; late > a.Wave {
					l.addFor(name, ct.Name+"/"+a.Name, finding.New(finding.CodeDependencyLater, l.target(a.Name).Workload.At, "give it a wave that is not lower",
						"it depends on %s of wave %d and is itself of wave %d", name, late, a.Wave))
				}
			}
		}
	}
}

func (l *linter) target(name string) *kinds.Target {
	i := slices.IndexFunc(l.targets, func(t *kinds.Target) bool { return t.Name == name })
	return l.targets[i]
}
