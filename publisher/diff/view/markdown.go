package view

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/publisher/diff"
)

const (
	// maxCommentBytes bounds a plan in Markdown: GitHub takes comments of 65,536 characters.
	maxCommentBytes = 60_000
	// maxCommentRows bounds each table in it: a comment is read by people.
	maxCommentRows = 50
)

// comment is a text of bounded length that counts the rows left out.
type comment struct {
	bytes.Buffer
	left int // rows that were left out
}

// Markdown returns a plan as Markdown, for a comment on a pull request.
func Markdown(d *diff.Difference) []byte {
	var c comment
	fmt.Fprintf(&c, "**wherry plan:** %s\n", show.Markdown(Summary(d)))
	if text := ImpactSummary(d); text != "" {
		fmt.Fprintf(&c, "\n**Impact:** %s\n", show.Markdown(text))
	}
	for _, text := range sharedFiles(d) {
		fmt.Fprintf(&c, "\n**Not published:** %s\n", show.Markdown(text))
	}
	for i, w := range d.Decided {
		if i == maxNames {
			fmt.Fprintf(&c, "\n**Without a proof:** %d more workloads by their teams' decision\n", len(d.Decided)-i)
			break
		}
		fmt.Fprintf(&c, "\n**Without a proof:** %s\n", show.Markdown(w.String()))
	}
	if d.NotHeld > 0 {
		fmt.Fprintf(&c, "\n**Without a proof:** %s\n", show.Markdown(notHeldText(d)))
	}
	for _, text := range siteCosts(d) {
		fmt.Fprintf(&c, "\n**Site values:** %s\n", show.Markdown(text))
	}
	for _, text := range lackingRights(d) {
		fmt.Fprintf(&c, "\n**Permissions:** %s\n", show.Markdown(text))
	}
	c.checks(d)
	for _, r := range d.Renames {
		fmt.Fprintf(&c, "\n> [!WARNING]\n> **Renamed?** %s\n", show.Markdown(renameText(r)))
	}
	c.types(d)
	c.rings(d)
	c.impact(d)
	c.changes(d)
	c.failures(d)
	c.awaiting(d)
	c.waiting(d)
	if empty := emptyTypes(d); len(empty) > 0 {
		fmt.Fprintf(&c, "\nNothing is on these cluster types: %s\n", show.Markdown(show.List(empty, maxNames)))
	}
	if c.left > 0 {
		fmt.Fprintf(&c, "\n%d more lines are not shown; `wherry plan -o table` shows all.\n", c.left)
	}
	return c.Bytes()
}

// row writes a line of a table, if there is room for it.
func (c *comment) row(n int, cells ...string) {
	line := "| " + strings.Join(cells, " | ") + " |\n"
	if n >= maxCommentRows || c.Len()+len(line) > maxCommentBytes {
		c.left++
		return
	}
	c.WriteString(line)
}

func (c *comment) head(title string, columns ...string) {
	if title != "" {
		fmt.Fprintf(c, "\n%s\n", title)
	}
	fmt.Fprintf(c, "\n| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("-|", len(columns)))
}

func (c *comment) types(d *diff.Difference) {
	rows := notable(d)
	if len(rows) == 0 {
		return
	}
	c.head("", "cluster type", "result", "assignments", "added", "removed", "changed", "failed", "note")
	for i, ct := range rows {
		n := ct.Count()
		c.row(i, show.MarkdownCode(ct.ClusterType), string(ct.Result), fmt.Sprint(ct.Assignments), fmt.Sprint(n.Added), fmt.Sprint(n.Removed),
			fmt.Sprint(n.Changed), fmt.Sprint(n.Failed), show.Markdown(typeNote(ct)))
	}
	if same := len(d.ClusterTypes) - len(rows); same > 0 {
		fmt.Fprintf(c, "\n%s more: unchanged.\n", show.Count(same, "cluster type"))
	}
}

func (c *comment) rings(d *diff.Difference) {
	n := 0
	for _, ct := range d.ClusterTypes {
		for _, l := range ringLines(ct) {
			if n == 0 {
				c.head("**Rings**", "cluster type", "rings", "what becomes of them")
			}
			c.row(n, show.MarkdownCode(ct.ClusterType), show.Markdown(l[0]), show.Markdown(l[1]))
			n++
		}
	}
}

func (c *comment) changes(d *diff.Difference) {
	groups := groupsOf(d)
	if len(groups) == 0 {
		return
	}
	c.head("", "", "assignments", "what", "because")
	n := 0
	for _, g := range groups {
		names := show.Markdown(show.List(g.names, maxNames))
		for i, l := range g.lines {
			change := string(g.change)
			if g.change == diff.ChangeRemoved {
				change = "**removed**"
			}
			if i > 0 {
				change, names = "", ""
			}
			what := show.Markdown(l.text)
			if l.key != "" {
				what = fmt.Sprintf("%s: %s → %s", show.MarkdownCode(l.key), show.MarkdownCode(l.old), show.MarkdownCode(l.new))
			}
			c.row(n, change, names, what, show.Markdown(l.because))
			n++
		}
	}
}

func (c *comment) failures(d *diff.Difference) {
	var rows [][]string
	for _, u := range slices.Concat(d.Unread, d.Dropping) {
		rows = append(rows, []string{"registration " + show.MarkdownCode(u.Registration) + ", which keeps what it has", show.Markdown(strings.TrimSpace(firstLines(u.Error)))})
	}
	for _, f := range d.FailedPolicies {
		rows = append(rows, []string{"policy " + show.MarkdownCode(f.Policy) + ", whose assignments are kept", show.Markdown(strings.TrimSpace(firstLines(f.Error)))})
	}
	for _, ct := range d.ClusterTypes {
		for _, f := range ct.Failed {
			rows = append(rows, []string{show.MarkdownCode(ct.ClusterType+"/"+f.Name) + stands(f), show.Markdown(strings.TrimSpace(firstLines(f.Error)))})
		}
		for _, f := range ct.FailedSites {
			rows = append(rows, []string{show.Markdown(siteName(ct.ClusterType, f)) + siteStands(f), show.Markdown(strings.TrimSpace(firstLines(f.Error)))})
		}
	}
	if len(rows) > 0 {
		c.head("**Failed**", "what", "why")
	}
	for i, cells := range rows {
		c.row(i, cells...)
	}
}

func (c *comment) awaiting(d *diff.Difference) {
	for i, w := range d.AwaitingProof {
		if i == 0 {
			c.head("**These workloads keep what they have until it is proved**", "workload", "why")
		}
		c.row(i, show.MarkdownCode(strings.TrimPrefix(w.Registration+"/"+w.Workload, "/")), show.Markdown(w.Reason))
	}
}

func (c *comment) waiting(d *diff.Difference) {
	if len(d.Waiting) == 0 {
		return
	}
	c.head("**No policy selects these deployment targets**", "workspace", "targets")
	for i, w := range d.Waiting {
		c.row(i, show.Markdown(workspaceName(w.Workspace)), show.Markdown(show.List(waitingNames(w), maxNames)))
	}
}
