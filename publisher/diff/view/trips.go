package view

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/publisher/catalog"
	"github.com/wherry-dev/wherry/publisher/impact"
)

// Trips writes what media would carry, the totals first.
func Trips(w io.Writer, t *catalog.Trips) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n", show.Line(TripsSummary(t)))
	if len(t.Sites) > 0 {
		b.WriteByte('\n')
	}
	table := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	for i, cells := range tripRows(t) {
		for k, c := range cells {
			if cells[k] = show.Cell(c); i == 0 {
				cells[k] = head(c)
			}
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// head returns the name of a column in capitals, but for the rate in it.
func head(column string) string {
	if rate, ok := strings.CutPrefix(column, "at "); ok {
		return "AT " + rate
	}
	return strings.ToUpper(column)
}

// TripsMarkdown returns what media would carry as Markdown, with at most 50 sites.
func TripsMarkdown(t *catalog.Trips) []byte {
	var c comment
	fmt.Fprintf(&c, "**wherry plan --offline:** %s\n", show.Markdown(TripsSummary(t)))
	rows := tripRows(t)
	if len(rows) > 0 {
		c.head("", rows[0]...)
		for n, cells := range rows[1:] {
			for i, cell := range cells {
				cells[i] = show.Markdown(show.Line(cell))
			}
			c.row(n, cells...)
		}
	}
	if c.left > 0 {
		fmt.Fprintf(&c, "\n%d more sites are not shown; `-o table` shows all.\n", c.left)
	}
	return c.Bytes()
}

// TripsSummary returns one line about all sites.
func TripsSummary(t *catalog.Trips) string {
	if len(t.Sites) == 0 {
		return t.Environment + ": no clusters are known"
	}
	text := fmt.Sprintf("%s: %s, none of them behind", t.Environment, show.Count(len(t.Sites), "site"))
	if t.Behind > 0 {
		verb := "are"
		if t.Behind == 1 {
			verb = "is"
		}
		text = fmt.Sprintf("%s: %d of %s %s behind; a medium for each would carry %s in all", t.Environment, t.Behind, show.Count(len(t.Sites), "site"), verb, tripSize(t.Bytes, t.About))
	}
	if first := firstEnd(t); first != nil {
		text += fmt.Sprintf("; the first has to be imported by %s, at %s", show.Time(first.ExpiresAt), first.Name)
	}
	return text
}

// firstEnd returns the site for which a medium has to be imported first; nil if there is none.
func firstEnd(t *catalog.Trips) *catalog.TripSite {
	var first *catalog.TripSite
	for i, s := range t.Sites {
		if s.Behind && !s.ExpiresAt.IsZero() && (first == nil || s.ExpiresAt.Before(first.ExpiresAt)) {
			first = &t.Sites[i]
		}
	}
	return first
}

// tripRows returns the table, the head first.
func tripRows(t *catalog.Trips) [][]string {
	if len(t.Sites) == 0 {
		return nil
	}
	rows := [][]string{{"site", "clusters", "types", "behind", "bytes", "valid", "last heard"}}
	for _, s := range t.Sites {
		rows = append(rows, []string{
			s.Name, strconv.Itoa(s.Clusters), show.List(s.ClusterTypes, maxNames), tripBehind(s), tripContent(s), tripValid(s), tripHeard(s),
		})
	}
	if t.Link == 0 {
		return rows
	}
	for i := range rows {
		cell := "at " + t.Link.String()
		if i > 0 {
			cell = impact.Time(t.Sites[i-1].Seconds)
		}
		rows[i] = slices.Insert(rows[i], 5, cell)
	}
	return rows
}

func tripBehind(s catalog.TripSite) string {
	switch {
	case !s.Behind:
		return "no"
	case s.Releases == nil:
		return "unknown"
	}
	return show.Count(int(*s.Releases), "release")
}

// tripContent returns the size of a site's package, and how much of it signatures and other referrers take.
func tripContent(s catalog.TripSite) string {
	if s.ReferrerBytes == 0 {
		return tripSize(s.Bytes, s.About)
	}
	return fmt.Sprintf("%s (referrers %s)", tripSize(s.Bytes, s.About), show.Size(s.ReferrerBytes))
}

func tripSize(bytes int64, about bool) string {
	if about {
		return "about " + show.Size(bytes)
	}
	return show.Size(bytes)
}

func tripValid(s catalog.TripSite) string {
	switch {
	case s.DaysLeft == nil:
		return "-"
	case *s.DaysLeft < 0:
		return "expired"
	}
	return show.Days(int64(*s.DaysLeft))
}

func tripHeard(s catalog.TripSite) string {
	if s.LastHeard.IsZero() {
		return "never"
	}
	return show.Time(s.LastHeard)
}
