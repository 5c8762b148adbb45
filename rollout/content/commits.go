package content

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle/ledger"
)

// Commit is a commit of an application team's repository, and how far what was made of it is on its way into own.
type Commit struct {
	Repo, ID string
	Progress Progress
	// Workloads are those of it with this progress, each once, such as "menu 2.4.1".
	Workloads []string
}

// Progress is how far a commit is on its way.
type Progress string

// The kinds of progress, the worst first.
const (
	KeptOut Progress = "keptOut" // time alone does not bring it
	Coming  Progress = "coming"  // the environment below has it
	Arrived Progress = "arrived" // own has it
)

var progresses = []Progress{KeptOut, Coming, Arrived}

// Commits lists the commits of which something may still come to own, or came to it after a time, each with the worst progress of its
// workloads, sorted. Their texts do not change with time.
func (d *Decision) Commits(after time.Time) []Commit {
	type place struct{ repo, id string }
	found := map[place]*Commit{}
	add := func(p Progress, w, version string, source ledger.Source, targets []ledger.Target) {
		w = strings.TrimSpace(w + " " + version)
		for _, s := range sourcesOf(source, targets) {
			at := place{s.Repo, s.Commit}
			if s.Repo == "" || s.Commit == "" {
				continue
			}
			c := found[at]
			if c == nil || slices.Index(progresses, p) < slices.Index(progresses, c.Progress) {
				c = &Commit{Repo: s.Repo, ID: s.Commit, Progress: p}
				found[at] = c
			}
			if c.Progress == p && !slices.Contains(c.Workloads, w) {
				c.Workloads = append(c.Workloads, w)
			}
		}
	}
	for _, t := range d.Takes {
		came := func(s ledger.Stay) bool { return s.Since.After(after) }
		if e := t.Entry; e != nil && slices.ContainsFunc(e.In, came) {
			add(Arrived, t.Workload, e.Version, e.Source, e.Targets)
		}
		if t.Kind == Head { // below is not asked
			continue
		}
		for _, n := range t.Newer {
			p := Coming
			if n.Fails {
				p = KeptOut
			}
			add(p, t.Workload, n.Version, n.Source, n.Targets)
		}
	}
	var all []Commit
	for _, c := range found {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b Commit) int { return cmp.Or(cmp.Compare(a.Repo, b.Repo), cmp.Compare(a.ID, b.ID)) })
	return all
}

// Text says in one line how far a commit is on its way from below into own.
func (c Commit) Text(own, below string) string {
	what, is := c.Workloads[0], "is"
	if n := len(c.Workloads); n > 1 {
		what, is = fmt.Sprintf("%d workloads", n), "are"
	}
	switch c.Progress {
	case Arrived:
		return own + " has " + what
	case KeptOut:
		return fmt.Sprintf("%s %s in %s and kept out of %s: see wherry gate check", what, is, below, own)
	}
	return fmt.Sprintf("%s %s in %s and not in %s yet", what, is, below, own)
}
