// Package view writes a difference for people: Table for a terminal, and Markdown for a comment on a change request. Both
// say the same. Text of others is escaped for its place.
package view

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/publisher/diff"
)

// maxNames bounds how many assignments with the same change are named.
const maxNames = 8

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

// Table writes a plan for a terminal. Long lines are left to it: names of files must stay whole, so
// that they can be clicked and copied.
func Table(w io.Writer, d *diff.Difference) error {
	var b bytes.Buffer
	writeChecks(&b, d)
	for _, r := range d.Renames {
		fmt.Fprintf(&b, "RENAMED? %s\n\n", show.Line(renameText(r)))
	}
	table := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	typesTable(table, d)
	if err := table.Flush(); err != nil {
		return err
	}
	writeRings(&b, d)
	if err := writeImpact(&b, d); err != nil {
		return err
	}
	marks := map[diff.Change]string{diff.ChangeAdded: "+", diff.ChangeRemoved: "-", diff.ChangeChanged: "~"}
	for _, g := range groupsOf(d) {
		fmt.Fprintf(&b, "\n%s %s %s\n", marks[g.change], g.change, show.Line(show.List(g.names, maxNames)))
		for _, l := range g.lines {
			fmt.Fprintf(&b, "    %s\n", show.Line(l.String()))
		}
	}
	writeFailures(&b, d)
	writeWaiting(&b, d)
	if empty := emptyTypes(d); len(empty) > 0 {
		fmt.Fprintf(&b, "\nNothing is on these cluster types: %s\n", show.Line(show.List(empty, maxNames)))
	}
	fmt.Fprintf(&b, "\n%s\n", show.Line(Summary(d)))
	for _, text := range slices.Concat(sharedFiles(d), siteCosts(d), lackingRights(d)) {
		fmt.Fprintf(&b, "%s: %s\n", show.Line(d.Environment), show.Line(text))
	}
	if text := ImpactSummary(d); text != "" {
		fmt.Fprintf(&b, "%s: %s\n", show.Line(d.Environment), text)
	}
	_, err := w.Write(bytes.TrimLeft(b.Bytes(), "\n"))
	return err
}

func (l line) String() string {
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
			show.Cell(ct.ClusterType), ct.Result, ct.Assignments, n.Added, n.Removed, n.Changed, n.Failed, show.Cell(typeNote(ct)))
	}
	if same := len(d.ClusterTypes) - len(rows); same > 0 {
		fmt.Fprintf(w, "%d more\t%s\n", same, diff.ResultUnchanged)
	}
}

// ringLines returns the names and the outcome of each ring of a cluster type; nil if the plan
// differs from no ring's release.
func ringLines(ct diff.TypeDifference) [][2]string {
	var lines [][2]string
	differs := false
	for _, r := range ct.ByRing {
		names := slices.Clone(r.Rings)
		if r.Latest {
			names = append(names, bundle.LatestTag)
		}
		text := string(r.Result)
		if r.Result == diff.ResultKept && r.OldDigest != "" {
			text = "keeps " + bundle.ReleaseName(r.OldNumber, r.OldDigest)
		}
		if r.Differs() {
			differs = true
			counts := fmt.Sprintf("%d added, %d removed, %d changed", r.Added, r.Removed, r.Changed)
			if r.Result == diff.ResultKept {
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

func writeRings(b *bytes.Buffer, d *diff.Difference) {
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
		return ct.Result == diff.ResultUnchanged && len(ct.Failed)+len(ct.FailedSites) == 0 && !ct.Renewed
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
	case ct.Renewed:
		return "the same content would be signed again, because it expires"
	}
	return ""
}

func renameText(r diff.Rename) string {
	return fmt.Sprintf("%s → %s on %s. To clusters a renamed target is a removal and an addition: this deletes %s with what belongs to it, and creates %s anew.",
		r.From, r.To, show.List(r.ClusterTypes, maxNames), r.From, r.To)
}

// notHeldText counts the workloads that the rule about content does not hold.
func notHeldText(d *diff.Difference) string {
	return fmt.Sprintf("not held by content: %s (branches or tags that move, or content: any)", show.Count(d.NotHeld, "workload"))
}

func writeFailures(b *bytes.Buffer, d *diff.Difference) {
	for _, u := range d.Unread {
		fmt.Fprintf(b, "\n! registration %s cannot be read, so what it had is kept\n%s", show.Line(u.Registration), firstLines(u.Error))
	}
	for _, u := range d.Dropping {
		fmt.Fprintf(b, "\n! registration %s keeps what it has\n%s", show.Line(u.Registration), firstLines(u.Error))
	}
	for _, w := range d.AwaitingProof {
		fmt.Fprintf(b, "\n! %s\n", show.Line(w.Reason))
	}
	for _, w := range d.Decided {
		fmt.Fprintf(b, "\n%s\n", show.Line(w.String()))
	}
	if d.NotHeld > 0 {
		fmt.Fprintf(b, "\n%s\n", notHeldText(d))
	}
	for _, f := range d.FailedPolicies {
		fmt.Fprintf(b, "\n! policy %s has a mistake, so what it selected is kept\n%s", f.Policy, firstLines(f.Error))
	}
	for _, ct := range d.ClusterTypes {
		for _, f := range ct.Failed {
			fmt.Fprintf(b, "\n! failed %s/%s%s\n%s", show.Line(ct.ClusterType), show.Line(f.Name), stands(f), firstLines(f.Error))
		}
		for _, f := range ct.FailedSites {
			fmt.Fprintf(b, "\n! failed %s%s\n%s", show.Line(siteName(ct.ClusterType, f)), siteStands(f), firstLines(f.Error))
		}
	}
}

// maxErrorLines bounds the mistakes that are shown of one failure; stderr has more of them.
const maxErrorLines = 3

// firstLines is the beginning of an error, set apart.
func firstLines(text string) string {
	lines := strings.Split(text, "\n")
	if more := len(lines) - maxErrorLines; more > 0 {
		lines = append(lines[:maxErrorLines], fmt.Sprintf("… and %s", show.Count(more, "more line")))
	}
	return "    " + strings.Join(lines, "\n    ") + "\n"
}

func stands(f diff.FailedDifference) string {
	if f.Stands {
		return ", which keeps what it has"
	}
	return ""
}

// siteName names the site values that have a mistake.
func siteName(clusterType string, f diff.FailedSite) string {
	if f.Cluster == "" {
		return "the site values of " + clusterType
	}
	return "the site values of cluster " + f.Cluster + " of " + clusterType
}

func siteStands(f diff.FailedSite) string {
	if f.Stands || f.Cluster == "" {
		return ", which stay as they are"
	}
	return ""
}

func writeWaiting(b *bytes.Buffer, d *diff.Difference) {
	if len(d.Waiting) == 0 {
		return
	}
	fmt.Fprintf(b, "\nNo policy selects these deployment targets of %s:\n", show.Line(d.Environment))
	for _, w := range d.Waiting {
		fmt.Fprintf(b, "    %s: %s\n", show.Line(workspaceName(w.Workspace)), show.Line(show.List(waitingNames(w), maxNames)))
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

// Summary is the plan in one line.
func Summary(d *diff.Difference) string {
	n := d.Count()
	what := "nothing would change"
	if d.Changes() {
		what = fmt.Sprintf("%d added, %d removed, %d changed, %d failed, on %d of %s",
			n.Added, n.Removed, n.Changed, n.Failed, n.ClusterTypes, show.Count(len(d.ClusterTypes), "cluster type"))
	}
	if d.OldBaseCommit != d.BaseCommit && d.OldBaseCommit != "" {
		what += fmt.Sprintf(", base commit %s → %s", d.OldBaseCommit, cmp.Or(d.BaseCommit, "none"))
	}
	return fmt.Sprintf("%s: %s, against %s", d.Environment, what, d.Against)
}

// Rings lists rings; "all" stands for none.
func Rings(rings []string) string {
	if len(rings) == 0 {
		return "all"
	}
	return strings.Join(rings, ", ")
}

// sharedFiles says which files of the work tree would not be published.
func sharedFiles(d *diff.Difference) []string {
	var all []string
	for _, s := range d.Shared {
		what := strings.TrimSuffix(fmt.Sprintf("%s %s", s.Part, s.Name), " main")
		all = append(all, fmt.Sprintf("%s is read at commit %s, which would be published without what the work tree has in %s: %s",
			what, s.Commit[:min(len(s.Commit), 7)], show.Count(len(s.Files), "file"), show.List(s.Files, maxNames)))
	}
	return all
}
