package view

import (
	"bytes"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/publisher/diff"
	"github.com/wherry-dev/wherry/publisher/impact"
)

// impactRows returns what the plan costs each cluster type, the head first; nil if it costs nothing. Columns of which
// nothing is known are left out.
func impactRows(d *diff.Difference) [][]string {
	f := d.Impact
	if f == nil {
		return nil
	}
	known, fetched, linked := f.ClustersFrom != "", f.Bytes > 0, f.Link > 0 && f.Bytes > 0
	var rows [][]string
	add := func(name, clusters, each, time, together, restarts string) {
		row := []string{name}
		for _, column := range []struct {
			text  string
			shown bool
		}{{clusters, known}, {each, fetched}, {time, linked}, {together, known && fetched}, {restarts, true}} {
			if column.shown {
				row = append(row, column.text)
			}
		}
		rows = append(rows, row)
	}
	add("CLUSTER TYPE", "CLUSTERS", "EACH FETCHES", "AT "+f.Link.String(), "TOGETHER", "RESTARTS")
	for _, t := range f.ClusterTypes {
		if t.Bytes == 0 && t.ChangedClusters == 0 && t.Restarts+t.RestartsUnknown == 0 {
			continue
		}
		add(t.ClusterType, fmt.Sprintf("%d of %d", t.ChangedClusters, t.Clusters), upTo(t.UpTo)+show.Size(t.Bytes),
			upTo(t.UpTo)+impact.Time(t.Seconds), show.Size(t.TotalBytes), restarts(t.Counts))
	}
	if len(rows) == 1 {
		return nil
	}
	return rows
}

func upTo(is bool) string {
	if is {
		return "up to "
	}
	return ""
}

// restarts says on how many of the changed assignments pods restart.
func restarts(n impact.Counts) string {
	switch {
	case n.Changed == 0:
		return "none"
	case n.Restarts+n.RestartsUnknown == 0:
		return "none"
	case n.RestartsUnknown == 0:
		return fmt.Sprintf("%d of %d changed", n.Restarts, n.Changed)
	case n.Restarts == 0:
		return fmt.Sprintf("unknown for %d", n.RestartsUnknown)
	}
	return fmt.Sprintf("%d of %d changed, unknown for %d", n.Restarts, n.Changed, n.RestartsUnknown)
}

// ImpactSummary is the impact of a plan in one line; empty if there is none.
func ImpactSummary(d *diff.Difference) string {
	if len(impactRows(d)) == 0 {
		return ""
	}
	f := d.Impact
	var parts []string
	if f.ClustersFrom != "" {
		parts = append(parts, fmt.Sprintf("%d of %s would change (%s)", f.ChangedClusters, show.Count(f.Clusters, "cluster"), f.ClustersFrom))
	} else {
		parts = append(parts, "the number of clusters is unknown")
	}
	if f.Bytes > 0 {
		most := "a cluster fetches "
		if len(impactRows(d)) > 2 || f.UpTo {
			most += "up to "
		}
		text := most + show.Size(f.Bytes)
		if f.Link > 0 {
			text += fmt.Sprintf(", %s at %s", impact.Time(f.Seconds), f.Link)
		}
		if f.TotalBytes > 0 {
			text += fmt.Sprintf(", and all together %s%s", upTo(f.UpTo), show.Size(f.TotalBytes))
		}
		parts = append(parts, text)
	}
	if f.Carried > 0 {
		parts = append(parts, "it carries up to "+show.Size(f.Carried)+" of new artifacts")
	}
	if f.Refused > 0 {
		parts = append(parts, fmt.Sprintf("%s cannot change so, and would fail", show.Count(f.Refused, "assignment")))
	}
	switch {
	case f.Restarts > 0 && f.RestartsUnknown > 0:
		parts = append(parts, fmt.Sprintf("pods of %s restart, and perhaps of %d more", show.Count(f.Restarts, "assignment"), f.RestartsUnknown))
	case f.Restarts > 0:
		parts = append(parts, fmt.Sprintf("pods of %s restart", show.Count(f.Restarts, "assignment")))
	case f.RestartsUnknown > 0:
		parts = append(parts, fmt.Sprintf("pods of %s may restart", show.Count(f.RestartsUnknown, "assignment")))
	default:
		parts = append(parts, "no pods restart")
	}
	return strings.Join(parts, "; ")
}

func writeImpact(b *bytes.Buffer, d *diff.Difference) error {
	rows := impactRows(d)
	if rows == nil {
		return nil
	}
	b.WriteByte('\n')
	table := tabwriter.NewWriter(b, 0, 4, 2, ' ', 0)
	for _, cells := range rows {
		for i, c := range cells {
			cells[i] = show.Cell(c)
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	return table.Flush()
}

func (c *comment) impact(d *diff.Difference) {
	rows := impactRows(d)
	if rows == nil {
		return
	}
	c.head("", strings.Split(strings.ToLower(strings.Join(rows[0], "\t")), "\t")...)
	for i, cells := range rows[1:] {
		cells[0] = show.MarkdownCode(cells[0])
		c.row(i, cells...)
	}
}
