package fleetcmd

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub/store"
)

// format is a form of output.
type format string

// The forms. A table is for people, and wide has more columns. JSON and YAML are the document of the hub's route; NDJSON has
// a row of it on each line. CSV has all columns, with times in RFC 3339. Names are what "describe" takes.
const (
	asTable  format = "table"
	asWide   format = "wide"
	asJSON   format = "json"
	asYAML   format = "yaml"
	asNDJSON format = "ndjson"
	asCSV    format = "csv"
	asName   format = "name"
)

// listFormats are the forms of lists, and documentFormats those of what is no list.
var (
	listFormats     = []format{asTable, asWide, asJSON, asYAML, asNDJSON, asCSV, asName}
	documentFormats = []format{asTable, asJSON, asYAML}
)

// forPeople reports whether the form is read by people: only these have a line of totals, and are cut to a terminal.
func (f format) forPeople() bool { return f == asTable || f == asWide }

// formatFlag refuses forms that a command does not have before it does any work.
type formatFlag struct {
	value *format
	known []format
}

func (f formatFlag) String() string {
	if f.value == nil {
		return ""
	}
	return string(*f.value)
}

func (f formatFlag) Type() string { return "format" }

func (f formatFlag) Set(s string) error {
	if !slices.Contains(f.known, format(s)) {
		return fmt.Errorf("must be %s", alternatives(f.known))
	}
	*f.value = format(s)
	return nil
}

// addFormat adds -o, --output with these forms, the first of which is the default.
func addFormat(cmd *cobra.Command, f *format, known []format) {
	*f = known[0]
	cmd.Flags().VarP(formatFlag{f, known}, "output", "o", "print as `FORMAT`: "+alternatives(known))
	fixed := make([]string, len(known))
	for i, k := range known {
		fixed[i] = string(k)
	}
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(fixed, cobra.ShellCompDirectiveNoFileComp))
}

// alternatives returns words as people list them: "table, json or yaml".
func alternatives[S ~string](words []S) string {
	var b strings.Builder
	for i, w := range words {
		switch {
		case i == 0:
		case i == len(words)-1:
			b.WriteString(" or ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(string(w))
	}
	return b.String()
}

// column is one column of the rows of a kind.
type column[T any] struct {
	header string
	// wide columns are in wide and csv alone, narrow ones in table and wide alone.
	wide, narrow bool
	// flexible columns are cut on a narrow terminal.
	flexible bool
	// value is the cell for people, at a moment.
	value func(row T, now time.Time) string
	// raw is the cell of csv; nil is value.
	raw func(row T) string
}

// text is a column whose cells are the same for people and in csv.
func text[T any](header string, value func(T) string) column[T] {
	return column[T]{header: header, value: func(r T, _ time.Time) string { return value(r) }}
}

// wideText is text in wide and csv alone.
func wideText[T any](header string, value func(T) string) column[T] {
	c := text(header, value)
	c.wide = true
	return c
}

// shownColumns returns the columns of a form.
func shownColumns[T any](all []column[T], f format) []column[T] {
	return slices.DeleteFunc(slices.Clone(all), func(c column[T]) bool {
		return c.wide && f == asTable || c.narrow && f == asCSV
	})
}

// table is rows for people.
type table struct {
	headers  []string
	flexible []bool
	rows     [][]string
}

func newTable[T any](columns []column[T], rows []T, now time.Time) *table {
	t := &table{}
	for _, c := range columns {
		t.headers, t.flexible = append(t.headers, c.header), append(t.flexible, c.flexible)
	}
	for _, r := range rows {
		cells := make([]string, len(columns))
		for i, c := range columns {
			cells[i] = c.value(r, now)
		}
		t.add(cells...)
	}
	return t
}

// add appends a row. Text of others stays in its cell, and an empty cell is a dash.
func (t *table) add(cells ...string) {
	for i, c := range cells {
		cells[i] = cmp.Or(show.Line(c), "-")
	}
	t.rows = append(t.rows, cells)
}

// Bounds of a table on a terminal.
const (
	gap      = 2
	minWidth = 12 // of a cell that is cut
)

// write writes the table. Flexible columns are cut to a terminal of width characters; zero means that nothing is cut.
func (t *table) write(w io.Writer, width int) error {
	widths := make([]int, len(t.headers))
	for _, row := range append([][]string{t.headers}, t.rows...) {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	t.fit(widths, width)
	var b strings.Builder
	for _, row := range append([][]string{t.headers}, t.rows...) {
		for i, c := range row {
			c = cut(c, widths[i])
			b.WriteString(c)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+gap))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// fit makes flexible columns narrower, the widest first, until the table has the width.
func (t *table) fit(widths []int, width int) {
	total := gap * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for width > 0 && total > width {
		widest := -1
		for i, f := range t.flexible {
			if f && widths[i] > minWidth && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return // the terminal breaks the lines
		}
		widths[widest]--
		total--
	}
}

// cut returns the beginning of s, with an ellipsis if there is more of it.
func cut(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return strings.TrimRight(string([]rune(s)[:width-1]), " ") + "…"
}

// printer writes the rows of a list in a form.
type printer[T any] struct {
	w       io.Writer
	format  format
	columns []column[T]
	name    func(T) string

	begun bool
}

// stream writes rows of a form that needs not know all of them.
func (p *printer[T]) stream(rows []T) error {
	switch p.format {
	case asNDJSON:
		enc := json.NewEncoder(p.w)
		enc.SetEscapeHTML(false)
		for _, r := range rows {
			if err := enc.Encode(r); err != nil {
				return err
			}
		}
	case asName:
		for _, r := range rows {
			if _, err := fmt.Fprintln(p.w, show.Line(p.name(r))); err != nil {
				return err
			}
		}
	case asCSV:
		return p.csv(rows)
	}
	return nil
}

// streams reports whether rows are written as they come.
func (f format) streams() bool { return f == asNDJSON || f == asName || f == asCSV }

func (p *printer[T]) csv(rows []T) error {
	out := csv.NewWriter(p.w)
	if !p.begun {
		p.begun = true
		header := make([]string, len(p.columns))
		for i, c := range p.columns {
			header[i] = strings.ToLower(strings.ReplaceAll(c.header, " ", "_"))
		}
		if err := out.Write(header); err != nil {
			return err
		}
	}
	for _, r := range rows {
		cells := make([]string, len(p.columns))
		for i, c := range p.columns {
			if c.raw != nil {
				cells[i] = csvCell(c.raw(r))
			} else {
				cells[i] = csvCell(c.value(r, time.Time{}))
			}
		}
		if err := out.Write(cells); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// csvCell returns text that no spreadsheet executes: one that begins like a formula gets an apostrophe, and control
// characters are removed.
func csvCell(s string) string {
	s = store.Plain(s)
	if strings.ContainsRune("=+-@", firstRune(strings.TrimLeft(s, " "))) {
		return "'" + s
	}
	return s
}

// firstRune returns the first character, and a space for no text.
func firstRune(s string) rune {
	if s == "" {
		return ' '
	}
	r, _ := utf8.DecodeRuneInString(s)
	return r
}

// terminalWidth returns the width of the terminal that standard output is, and zero if it is none.
func terminalWidth() int {
	if !term.IsTerminal(int(os.Stdout.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// document writes v as JSON or YAML.
func document(w io.Writer, f format, v any) error { return cli.Print(w, string(f), v, nil) }

// number returns n with commas between the thousands.
func number(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// count returns a number of things, such as "1,204 clusters".
func count(n int, thing string) string {
	_, plural, _ := strings.Cut(show.Count(2, thing), " ")
	if n == 1 {
		plural = thing
	}
	return number(n) + " " + plural
}
