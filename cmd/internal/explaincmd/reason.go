package explaincmd

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/similar"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/docs"
)

// reasonName is the form of the reasons that agents, adapters and hubs give.
var reasonName = regexp.MustCompile(`^[A-Za-z]{3,}$`)

// reasonRow is a row of a table of reasons: who gives it, and the other cells under their heads.
type reasonRow struct {
	where string // a section's title
	page  string
	cells [][2]string
}

// reasons reads the tables of the documentation, by name.
func reasons() map[string][]reasonRow {
	all := map[string][]reasonRow{}
	for _, p := range []struct{ name, text string }{{"docs/operations.md", docs.Operations}, {"docs/adapters.md", docs.Adapters}, {"docs/hub.md", docs.Hub}} {
		section, heads := "", []string(nil)
		for line := range strings.Lines(p.text) {
			line = strings.TrimSpace(line)
			if title, ok := strings.CutPrefix(line, "## "); ok {
				section = title
			}
			if !strings.HasPrefix(line, "|") {
				heads = nil
				continue
			}
			cells := strings.Split(strings.Trim(strings.ReplaceAll(line, `\|`, "∣"), "|"), "|")
			for i, c := range cells {
				cells[i] = strings.TrimSpace(strings.ReplaceAll(c, "∣", "|"))
			}
			if heads == nil {
				heads = cells
				continue
			}
			if !strings.HasSuffix(heads[0], "reason") {
				continue
			}
			row := reasonRow{where: section, page: p.name}
			for i := 1; i < min(len(cells), len(heads)); i++ {
				row.cells = append(row.cells, [2]string{heads[i], plainMarkdown(cells[i])})
			}
			for _, name := range backticked.FindAllStringSubmatch(cells[0], -1) {
				if reasonName.MatchString(name[1]) {
					all[name[1]] = append(all[name[1]], row)
				}
			}
		}
	}
	return all
}

var (
	backticked   = regexp.MustCompile("`([^`]*)`")
	markdownLink = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// plainMarkdown is a cell without links and backticks.
func plainMarkdown(s string) string {
	return strings.ReplaceAll(markdownLink.ReplaceAllString(s, "$1"), "`", "")
}

// printReason prints what the documentation says of a reason, for each that may give it.
func printReason(cmd *cobra.Command, name string) error {
	known := reasons()
	rows := known[name]
	if rows == nil {
		for other := range known {
			if strings.EqualFold(other, name) {
				name, rows = other, known[other]
			}
		}
	}
	if rows == nil {
		names := slices.Sorted(maps.Keys(known))
		for _, c := range cmd.Commands() {
			names = append(names, c.Name())
		}
		hint := "docs/operations.md and docs/adapters.md list the reasons, docs/lint.md the codes"
		if near := similar.To(name, names); near != "" {
			hint = fmt.Sprintf("did you mean %s?", near)
		}
		return cli.Fail(cli.Usage, fmt.Errorf("there is no command, code or reason %q", name), hint)
	}
	out := cmd.OutOrStdout()
	for i, r := range rows {
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "%s (%s, %s)\n", name, r.where, r.page)
		for _, c := range r.cells {
			text := c[1]
			if c[0] != "" {
				text = c[0] + ": " + text
			}
			fmt.Fprintln(out, indentLines(wrap(text, 98)))
		}
	}
	return nil
}
