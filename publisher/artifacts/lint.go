package artifacts

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/wherry-dev/wherry/bundle/yamltext"
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
	// unpinned says what cannot be pinned, by cluster type.
	unpinned map[string][]unpinned
}

// unpinned is a text about what cannot be pinned, and the assignments that have it.
type unpinned struct {
	code, text string
	usedBy     []string
}

// example is an artifact without digest or commit, and the assignment that needs it.
type example struct{ kind, reference, usedBy string }

// Take looks at a cluster type. It may be called by several goroutines.
func (l *Linter) Take(ct *scheduler.ClusterTypeResult) {
	if problems := l.uncarried(ct, false); len(problems) > 0 {
		l.mu.Lock()
		if l.carry == nil {
			l.carry = map[string]map[string]error{}
		}
		l.carry[ct.Name] = problems
		l.mu.Unlock()
	}
	l.takeUnpinned(ct)
	if IsPinned(*ct) {
		return // publishing resolves them
	}
	kept := memo.Open(l.Cache, "unresolved 2 "+l.Scope+"/"+ct.Name)
	defer kept.Close()
	texts, ok := memo.Texts[string](kept.Of(inputOfAll(ct.Assignments), func() []byte { return memo.AppendTexts(nil, l.unresolved(ct)...) }))
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

// takeUnpinned notes what cannot be pinned in the rendered files of the assignments for which Pin is to do so.
func (l *Linter) takeUnpinned(ct *scheduler.ClusterTypeResult) {
	pinned := slices.DeleteFunc(slices.Clone(ct.Assignments), func(a scheduler.Assignment) bool { return !isPinned(*ct, a) })
	if len(pinned) == 0 {
		return
	}
	kept := memo.Open(l.Cache, "unpinned "+l.Scope+"/"+ct.Name)
	defer kept.Close()
	var all []unpinned
	for i := range pinned {
		a := &pinned[i]
		look := func() []string { return unpinnable(a) }
		texts, ok := memo.Texts[string](kept.Of(inputOf(a), func() []byte { return memo.AppendTexts(nil, look()...) }))
		if !ok || len(texts)%2 != 0 { // of a damaged entry
			texts = look()
		}
		for ; len(texts) > 0; texts = texts[2:] {
			at := slices.IndexFunc(all, func(u unpinned) bool { return u.code == texts[0] && u.text == texts[1] })
			if at < 0 {
				at = len(all)
				all = append(all, unpinned{code: texts[0], text: texts[1]})
			}
			all[at].usedBy = append(all[at].usedBy, a.Name)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unpinned == nil {
		l.unpinned = map[string][]unpinned{}
	}
	l.unpinned[ct.Name] = all
}

// unpinnable lists code and text of what cannot be pinned in a's rendered files, whatever it resolves to.
func unpinnable(a *scheduler.Assignment) []string {
	only := *a
	only.Files = RenderedFiles(a)
	found, err := scan(&only)
	var texts []string
	if err != nil {
		texts = append(texts, finding.CodeNotPinned, err.Error())
	}
	files := map[int]*yamltext.File{}
	for _, n := range toPin(&only, found.needs) {
		if problem := n.unwritable(&only, files); problem != "" {
			texts = append(texts, finding.CodeNotPinned, problem)
		}
	}
	for _, m := range found.missed {
		texts = append(texts, finding.CodeImageMissed, m)
	}
	return texts
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

// Findings returns one note about artifacts without digests, at the first cluster type that is concerned, an error for
// each cluster type with assignments whose artifacts cannot be carried, and each reference that cannot be pinned.
func (l *Linter) Findings(report *lint.Report) []finding.Finding {
	return slices.Concat(l.floating(report), l.uncarriable(report), l.unpinnedIn(report))
}

// maxUnpinned bounds the findings about what cannot be pinned, of each cluster type.
const maxUnpinned = 50

func (l *Linter) unpinnedIn(report *lint.Report) (all []finding.Finding) {
	for _, ct := range report.Rendered.ClusterTypes {
		found := l.unpinned[ct.Name]
		for _, u := range found[:min(len(found), maxUnpinned)] {
			message := fmt.Sprintf("%s/%s: %s", ct.Name, u.usedBy[0], u.text)
			if more := len(u.usedBy) - 1; more > 0 {
				message += fmt.Sprintf(" (so it is in %d more)", more)
			}
			all = append(all, finding.Finding{Code: u.code, Position: report.ClusterTypes[ct.Name], Message: message})
		}
		if more := len(found) - maxUnpinned; more > 0 {
			all = append(all, finding.Finding{Code: finding.CodeNotPinned, Position: report.ClusterTypes[ct.Name], Message: fmt.Sprintf("%s: %d more references cannot be pinned", ct.Name, more)})
		}
	}
	return all
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
