package show

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// maxValue bounds a value, in characters.
const maxValue = 60

// Line returns untrusted text for use within one line. It escapes newlines and tabs as \n and \t, besides the characters
// that Writer escapes, so that the text can neither begin a line of its own nor be taken for a column.
func Line(s string) string {
	if !strings.ContainsFunc(s, obeyed) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case obeyed(r):
			b.WriteString(escape(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Cell returns s for a cell of a table: a dash if s is empty, and quoted if it has unprintable characters.
func Cell(s string) string {
	if s == "" {
		return "-"
	}
	if strings.ContainsFunc(s, unprintable) {
		return strconv.Quote(s)
	}
	return s
}

// Value returns a value in one line of bounded length: "none" for nil, and quoted if its ends would be invisible.
func Value(v *string) string {
	if v == nil {
		return "none"
	}
	s := *v
	if s == "" || s != strings.TrimSpace(s) || strings.ContainsFunc(s, unprintable) {
		s = strconv.Quote(s)
	}
	return Short(s)
}

// Short returns the beginning of s, with an ellipsis if there is more of it.
func Short(s string) string {
	if runes := []rune(s); len(runes) > maxValue {
		return string(runes[:maxValue-1]) + "…"
	}
	return s
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// List joins names, and counts those beyond the bound: "a, b and 3 more".
func List(names []string, bound int) string {
	if more := len(names) - bound; more > 0 {
		return strings.Join(names[:bound], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}

// Count returns a number of things: "1 file", "2 files", "2 policies".
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if stem, ok := strings.CutSuffix(thing, "cy"); ok {
		return fmt.Sprintf("%d %scies", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Size returns a number of bytes for people: "812 bytes", "12 KiB", "3 MiB", "20 GiB".
func Size(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}

// Days returns a number of whole days in words: "2 days", and "less than a day" for none.
func Days(n int64) string {
	if n == 0 {
		return "less than a day"
	}
	return Count(int(n), "day")
}

// Time returns a time for people, in UTC, to the minute.
func Time(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }
