package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/publisher/diff"
)

const (
	// maxNamesShown bounds how many assignments with the same change are named.
	maxNamesShown = 8
	// maxValueShown bounds a value in a table, in characters.
	maxValueShown = 60
)

// shown is a value in one line of bounded length.
func shown(v *string) string {
	if v == nil {
		return "none"
	}
	s := *v
	if s == "" || s != strings.TrimSpace(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		s = strconv.Quote(s)
	}
	if runes := []rune(s); len(runes) > maxValueShown {
		s = string(runes[:maxValueShown-1]) + "…"
	}
	return s
}

func because(causes []diff.Cause) string {
	var all []string
	for _, c := range causes {
		text := c.Kind + " " + c.Name
		if c.File != "" {
			text += " (" + c.Position.String() + ")"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// namesShown lists names up to a bound.
func namesShown(names []string, bound int) string {
	if more := len(names) - bound; more > 0 {
		return strings.Join(names[:bound], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}

// planTable writes a plan for a terminal. Long lines are left to it: names of files must stay whole, so
// that they can be clicked and copied.
func planTable(w io.Writer, d *diff.Difference) error {
	var b bytes.Buffer
	for _, r := range d.Renames {
		fmt.Fprintf(&b, "RENAMED? %s\n\n", cli.Line(renameText(r)))
	}
	table := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	typesTable(table, d)
	if err := table.Flush(); err != nil {
		return err
	}
	planRings(&b, d)
	marks := map[diff.Change]string{diff.ChangeAdded: "+", diff.ChangeRemoved: "-", diff.ChangeChanged: "~"}
	for _, g := range planGroups(d) {
		fmt.Fprintf(&b, "\n%s %s %s\n", marks[g.change], g.change, cli.Line(namesShown(g.names, maxNamesShown)))
		for _, l := range g.lines {
			fmt.Fprintf(&b, "    %s\n", cli.Line(l.String()))
		}
	}
	planFailures(&b, d)
	planWaiting(&b, d)
	if empty := emptyTypes(d); len(empty) > 0 {
		fmt.Fprintf(&b, "\nNothing is on these cluster types: %s\n", cli.Line(namesShown(empty, maxNamesShown)))
	}
	fmt.Fprintf(&b, "\n%s\n", cli.Line(planSummary(d)))
	_, err := w.Write(bytes.TrimLeft(b.Bytes(), "\n"))
	return err
}

func (l planLine) String() string {
	s := l.text
	if l.key != "" {
		s = fmt.Sprintf("%s: %s → %s", l.key, l.old, l.new)
	}
	if l.because != "" {
		s += "  ← " + l.because
	}
	return strings.TrimSpace(s)
}

// typesTable lists the cluster types of which there is something to say.
func typesTable(w io.Writer, d *diff.Difference) {
	rows := notable(d)
	if len(rows) == 0 {
		return
	}
	fmt.Fprintln(w, "CLUSTER TYPE\tRESULT\tASSIGNMENTS\tADDED\tREMOVED\tCHANGED\tFAILED\tNOTE")
	for _, ct := range rows {
		n := ct.Count()
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\n",
			cell(ct.ClusterType), ct.Result, ct.Assignments, n.Added, n.Removed, n.Changed, n.Failed, cell(typeNote(ct)))
	}
	if same := len(d.ClusterTypes) - len(rows); same > 0 {
		fmt.Fprintf(w, "%d more\t%s\n", same, diff.StandingUnchanged)
	}
}

// ringLines says of a cluster type what becomes of each of its rings, the names and the rest apart; nil where all rings
// go on with the same.
func ringLines(ct diff.TypeDifference) [][2]string {
	var lines [][2]string
	differs := false
	for _, r := range ct.ByRing {
		names := slices.Clone(r.Rings)
		if r.Latest {
			names = append(names, bundle.LatestTag)
		}
		text := string(r.Result)
		if r.Result == diff.StandingKept && r.OldDigest != "" {
			text = "keeps " + bundle.ReleaseName(r.OldNumber, r.OldDigest)
		}
		if r.Differs() {
			differs = true
			counts := fmt.Sprintf("%d added, %d removed, %d changed", r.Added, r.Removed, r.Changed)
			if r.Result == diff.StandingKept {
				text += ", from which the plan differs by " + counts
			} else {
				text += ": " + counts
			}
		}
		if r.Renewed != "" {
			text += "; signed again: " + r.Renewed
		}
		lines = append(lines, [2]string{strings.Join(names, ", "), text})
	}
	if !differs {
		return nil
	}
	return lines
}

func planRings(b *bytes.Buffer, d *diff.Difference) {
	for _, ct := range d.ClusterTypes {
		lines := ringLines(ct)
		if len(lines) == 0 {
			continue
		}
		fmt.Fprintf(b, "\nRings of %s:\n", ct.ClusterType)
		for _, l := range lines {
			fmt.Fprintf(b, "    %s: %s\n", l[0], l[1])
		}
	}
}

func notable(d *diff.Difference) []diff.TypeDifference {
	return slices.DeleteFunc(slices.Clone(d.ClusterTypes), func(ct diff.TypeDifference) bool {
		return ct.Result == diff.StandingUnchanged && len(ct.Failed) == 0 && !ct.Renewed
	})
}

// emptyTypes names the cluster types that would have nothing on them.
func emptyTypes(d *diff.Difference) []string {
	var names []string
	for _, ct := range d.ClusterTypes {
		if ct.Assignments == 0 && len(ct.Failed) == 0 && !ct.Left {
			names = append(names, ct.ClusterType)
		}
	}
	return names
}

// typeNote is what there is to say of a cluster type beside the numbers.
func typeNote(ct diff.TypeDifference) string {
	switch {
	case ct.Blocked != "":
		return ct.Blocked
	case ct.Left:
		return "has left the environment"
	case ct.Rings != nil:
		return fmt.Sprintf("for rings: %s, until now: %s", orAll(ct.Rings.New), orAll(ct.Rings.Old))
	case ct.Renewed:
		return "the same content would be signed again, because it expires"
	}
	return ""
}

func renameText(r diff.Rename) string {
	return fmt.Sprintf("%s → %s on %s. To clusters a renamed target is a removal and an addition: this deletes %s with what belongs to it, and creates %s anew.",
		r.From, r.To, namesShown(r.ClusterTypes, maxNamesShown), r.From, r.To)
}

func planFailures(b *bytes.Buffer, d *diff.Difference) {
	for _, u := range d.Unread {
		fmt.Fprintf(b, "\n! registration %s cannot be read, so what it had is kept\n%s", cli.Line(u.Registration), firstLines(u.Error))
	}
	for _, f := range d.FailedPolicies {
		fmt.Fprintf(b, "\n! policy %s has a mistake, so what it selected is kept\n%s", f.Policy, firstLines(f.Error))
	}
	for _, ct := range d.ClusterTypes {
		for _, f := range ct.Failed {
			fmt.Fprintf(b, "\n! failed %s/%s%s\n%s", cli.Line(ct.ClusterType), cli.Line(f.Name), stands(f), firstLines(f.Error))
		}
	}
}

// maxErrorLines bounds the mistakes that are shown of one failure; stderr has more of them.
const maxErrorLines = 3

// firstLines is the beginning of an error, set apart.
func firstLines(text string) string {
	lines := strings.Split(text, "\n")
	if more := len(lines) - maxErrorLines; more > 0 {
		lines = append(lines[:maxErrorLines], fmt.Sprintf("… and %s", cli.Count(more, "more line")))
	}
	return "    " + strings.Join(lines, "\n    ") + "\n"
}

func stands(f diff.FailedDifference) string {
	if f.Stands {
		return ", which keeps what it has"
	}
	return ""
}

func planWaiting(b *bytes.Buffer, d *diff.Difference) {
	if len(d.Waiting) == 0 {
		return
	}
	fmt.Fprintf(b, "\nNo policy selects these deployment targets of %s:\n", cli.Line(d.Environment))
	for _, w := range d.Waiting {
		fmt.Fprintf(b, "    %s: %s\n", cli.Line(workspaceName(w.Workspace)), cli.Line(namesShown(waitingNames(w), maxNamesShown)))
	}
}

func workspaceName(name string) string { return cmp.Or(name, "(no workspace)") }

func waitingNames(w diff.WaitingWorkspace) []string {
	var names []string
	for _, t := range w.Targets {
		names = append(names, fmt.Sprintf("%s (%s)", t.Name, t.Position))
	}
	return names
}

// planSummary is the plan in one line.
func planSummary(d *diff.Difference) string {
	n := d.Count()
	what := "nothing would change"
	if d.Changes() {
		what = fmt.Sprintf("%d added, %d removed, %d changed, %d failed, on %d of %s",
			n.Added, n.Removed, n.Changed, n.Failed, n.ClusterTypes, cli.Count(len(d.ClusterTypes), "cluster type"))
	}
	if d.OldBaseCommit != d.BaseCommit && d.OldBaseCommit != "" {
		what += fmt.Sprintf(", base commit %s → %s", d.OldBaseCommit, cmp.Or(d.BaseCommit, "none"))
	}
	return fmt.Sprintf("%s: %s, against %s", d.Environment, what, d.Against)
}
