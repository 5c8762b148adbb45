package reconcilertest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// recordVariable makes tests write the adapters' records, and the table made of them, instead of comparing them.
const recordVariable = "WHERRY_CONFORMANCE"

func writes() bool { return os.Getenv(recordVariable) == "write" }

// column is the outcome for one adapter.
type column struct {
	Adapter, On string
	Cells       []cell
}

// cell is the outcome of one case: passed, or impossible for Reason.
type cell struct {
	Case   Case
	Reason string
}

func (a Adapter) check() error {
	if a.Name == "" || a.On == "" || a.Start == nil {
		return fmt.Errorf("an adapter needs Name, On and Start")
	}
	for c, reason := range a.Without {
		switch {
		case !knows(c):
			return fmt.Errorf("%s declares that it cannot have the case %q, which there is not", a.Name, c)
		case strings.TrimSpace(reason) == "" || strings.Contains(reason, "\n"):
			return fmt.Errorf("%s gives no reason of one line why it cannot have the case %q", a.Name, c)
		case slices.Contains(complete, a.Name):
			return fmt.Errorf("%s can have every case, and %q as well", a.Name, c)
		}
	}
	return nil
}

// compare compares the outcome of a run in which no case failed with the record, or records it, if all cases
// were run.
func (a Adapter) compare(t *testing.T, all bool) {
	t.Helper()
	path := a.Record
	if path == "" {
		path = filepath.Join("testdata", "conformance.txt")
	}
	got := a.column().String()
	if writes() {
		require.True(t, all, "only a run of all cases is recorded")
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "%s=write writes it", recordVariable)
	require.Equal(t, string(want), got, "%s is of another run: %s=write writes it, and the table of docs/reference/engines.md after it", path, recordVariable)
}

// String is the record: lines of a word, a colon and the rest.
func (c column) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "adapter: %s\non: %s\n", c.Adapter, c.On)
	for _, cell := range c.Cells {
		if cell.Reason == "" {
			fmt.Fprintf(&b, "ok: %s\n", cell.Case)
		} else {
			fmt.Fprintf(&b, "n/a: %s: %s\n", cell.Case, cell.Reason)
		}
	}
	return b.String()
}

func parseColumn(text string) (c column, err error) {
	for line := range strings.Lines(text) {
		word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch word {
		case "adapter":
			c.Adapter = rest
		case "on":
			c.On = rest
		case "ok":
			c.Cells = append(c.Cells, cell{Case: Case(rest)})
		case "n/a":
			name, reason, _ := strings.Cut(rest, ": ")
			c.Cells = append(c.Cells, cell{Case(name), reason})
		default:
			return column{}, fmt.Errorf("what is %q?", line)
		}
	}
	return c, nil
}

// table returns the table of docs/reference/engines.md, with a column for each adapter, by name.
func table(columns []column) string {
	var b strings.Builder
	row := func(first string, cell func(column) string) {
		b.WriteString("| " + first + " |")
		for _, c := range columns {
			b.WriteString(" " + cell(c) + " |")
		}
		b.WriteString("\n")
	}
	row("", func(c column) string { return "`" + c.Adapter + "`" })
	b.WriteString("|-|" + strings.Repeat("-|", len(columns)) + "\n")
	for i, known := range cases {
		row(string(known.name), func(c column) string {
			if c.Cells[i].Reason != "" {
				return "n/a"
			}
			return "yes"
		})
	}
	b.WriteString("\n")
	for _, c := range columns {
		fmt.Fprintf(&b, "- `%s` runs on %s.\n%s", c.Adapter, c.On, c.notes())
	}
	return b.String()
}

// notes returns the cases that an engine cannot have, grouped by reason.
func (c column) notes() string {
	var reasons []string
	about := map[string][]string{}
	for _, cell := range c.Cells {
		if cell.Reason != "" && about[cell.Reason] == nil {
			reasons = append(reasons, cell.Reason)
		}
		about[cell.Reason] = append(about[cell.Reason], "*"+string(cell.Case)+"*")
	}
	var b strings.Builder
	for _, reason := range reasons {
		fmt.Fprintf(&b, "  - %s: n/a, as %s\n", strings.Join(about[reason], "; "), reason)
	}
	return b.String()
}
