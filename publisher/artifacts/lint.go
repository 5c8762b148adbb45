package artifacts

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/lint"
	"github.com/wherry-dev/wherry/scheduler/memo"
)

// Linter collects what assignments need without naming it by digest or commit. The zero value is ready.
type Linter struct {
	Finder

	mu         sync.Mutex
	references map[string]bool
	examples   map[string]example // the first of each cluster type that has any
	// carry says why artifacts cannot be carried, by cluster type and assignment.
	carry map[string]map[string]error
}

// example is an artifact without digest or commit, and the assignment that needs it.
type example struct{ kind, reference, usedBy string }

// Take looks at a cluster type, unless that asks for pins: publishing finds those out. It may be called by several
// goroutines.
func (l *Linter) Take(ct *scheduler.ClusterTypeResult) {
	if problems := l.uncarried(ct, false); len(problems) > 0 {
		l.mu.Lock()
		if l.carry == nil {
			l.carry = map[string]map[string]error{}
		}
		l.carry[ct.Name] = problems
		l.mu.Unlock()
	}
	if IsPinned(*ct) {
		return
	}
	kept := memo.Open(l.Cache, "unresolved "+l.Scope+"/"+ct.Name)
	defer kept.Close()
	texts, ok := memo.Texts(kept.Of(inputOfAll(ct.Assignments), func() []byte { return memo.AppendTexts(nil, l.unresolved(ct)...) }))
	if !ok || len(texts)%3 != 0 { // of a damaged entry
		texts = l.unresolved(ct)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.references == nil {
		l.references, l.examples = map[string]bool{}, map[string]example{}
	}
	for ; len(texts) > 0; texts = texts[3:] {
		e := example{texts[0], texts[1], texts[2]}
		l.references[e.kind+" "+e.reference] = true
		if _, known := l.examples[ct.Name]; !known {
			l.examples[ct.Name] = e
		}
	}
}

// unresolved lists the kind, the reference and the first user of each artifact without digest or commit.
func (l *Linter) unresolved(ct *scheduler.ClusterTypeResult) []string {
	var texts []string
	floating := slices.DeleteFunc(slices.Clone(ct.Assignments), IsEmbedded) // publishing pins the others
	for _, a := range l.Of(floating) {
		if a.Unresolved {
			texts = append(texts, string(a.Type), a.Reference, a.UsedBy[0])
		}
	}
	return texts
}

// Findings returns one note about artifacts without digests, at the first cluster type that is concerned, and an error for
// each cluster type with assignments whose artifacts cannot be carried.
func (l *Linter) Findings(report *lint.Report) []finding.Finding {
	return append(l.floating(report), l.uncarriable(report)...)
}

func (l *Linter) uncarriable(report *lint.Report) (all []finding.Finding) {
	for _, ct := range report.Rendered.ClusterTypes {
		problems := l.carry[ct.Name]
		if len(problems) == 0 {
			continue
		}
		names := slices.Sorted(maps.Keys(problems))
		reason, _, _ := strings.Cut(problems[names[0]].Error(), "\n")
		all = append(all, finding.Finding{
			Code: finding.CodeNotCarried, Position: report.ClusterTypes[ct.Name],
			Message: fmt.Sprintf("assignments of %s whose artifacts cannot be carried: %d, such as %s: %s", ct.Name, len(names), names[0], reason),
		})
	}
	return all
}

func (l *Linter) floating(report *lint.Report) []finding.Finding {
	for _, ct := range report.Rendered.ClusterTypes {
		example, concerned := l.examples[ct.Name]
		if !concerned {
			continue
		}
		return []finding.Finding{{
			Code: finding.CodeMovingReference, Note: true, Position: report.ClusterTypes[ct.Name],
			Message: fmt.Sprintf("artifacts without digest or commit: %d, on %d of the cluster types, such as %s %s for %s/%s",
				len(l.references), len(l.examples), example.kind, example.reference, ct.Name, example.usedBy),
			Hint: fmt.Sprintf("name them by digest or commit, or have publishing do so with the annotation %s: %s", scheduler.PinAnnotation, scheduler.PinCommit),
		}}
	}
	return nil
}
