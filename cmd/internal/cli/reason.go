package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/docs"
)

// FindReason returns the rows of the documentation about a reason and its name, in whatever case of letters it is given. Its error
// names the nearest of the reasons and of the other words that the caller knows, or else hint.
func FindReason(name, hint string, others ...string) (found string, rows []docs.Reason, err error) {
	known := docs.Reasons()
	rows = known[name]
	if rows == nil {
		for other := range known {
			if strings.EqualFold(other, name) {
				name, rows = other, known[other]
			}
		}
	}
	if rows == nil {
		if near := show.Nearest(name, append(slices.Sorted(maps.Keys(known)), others...)); near != "" {
			hint = fmt.Sprintf("did you mean %s?", near)
		}
		return "", nil, &UnknownReasonError{name, hint}
	}
	return name, rows, nil
}

// WriteReason writes what FindReason has found.
func WriteReason(w io.Writer, name string, rows []docs.Reason) {
	for i, r := range rows {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s (%s, wherry help %s)\n", name, r.Section, r.Topic)
		for _, c := range r.Cells {
			text := c[1]
			if c[0] != "" {
				text = c[0] + ": " + text
			}
			fmt.Fprintln(w, IndentLines(Wrap(text, 98)))
		}
	}
}

// UnknownReasonError is the error of a reason that the documentation does not have.
type UnknownReasonError struct{ Name, Hint string }

func (e *UnknownReasonError) Error() string { return fmt.Sprintf("unknown reason %q", e.Name) }

// Wrap breaks a text into lines of at most width characters.
func Wrap(s string, width int) string {
	var lines []string
	current := ""
	for word := range strings.FieldsSeq(s) {
		if current != "" && len(current)+1+len(word) > width {
			lines, current = append(lines, current), ""
		}
		current = strings.TrimSpace(current + " " + word)
	}
	return strings.Join(append(lines, current), "\n")
}

// IndentLines sets all lines of a text apart.
func IndentLines(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n  ")
}
