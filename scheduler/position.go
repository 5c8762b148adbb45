package scheduler

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// InputError is a mistake in the input. Errors that [Model.Load] and [Model.Render] return, and those
// of failures, hold one for each mistake that has a place; errors.As finds the first.
type InputError struct {
	Position
	Code    string // as a finding has it; may be empty
	Column  int    // counted from 1; zero where it is not known
	Message string
	Hint    string // what to do about it; may be empty
	cause   error
}

// Unwrap returns what the mistake led to, such as a template's own error; it may be nil.
func (e *InputError) Unwrap() error { return e.cause }

// Error gives the place, the message and, in parentheses, the hint.
func (e *InputError) Error() string {
	return Finding{Position: e.Position, Message: e.Message, Hint: e.Hint}.String()
}

// mistake is an InputError in one line.
func mistake(at Position, hint, format string, args ...any) error {
	return &InputError{Position: at, Message: sentence(format, args...), Hint: hint}
}

// maxMessage bounds a message, because what it quotes may be as long as its file.
const maxMessage = 2000

func sentence(format string, args ...any) string {
	s := fmt.Sprintf(format, args...)
	if len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:maxMessage], "") + "…"
	}
	return s
}

// String gives the place, the message and, in parentheses, the hint.
func (f Finding) String() string {
	var b strings.Builder
	if f.Position != (Position{}) {
		b.WriteString(f.Position.String() + ": ")
	}
	b.WriteString(f.Message)
	if f.Hint != "" {
		b.WriteString(" (" + f.Hint + ")")
	}
	return b.String()
}

// String is file:line, or what of it is known.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

func comparePositions(a, b Position) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
}

// maxReported bounds how many mistakes one error lists.
const maxReported = 20

// mistakes are several errors, of which the text lists only the first.
type mistakes []error

func (m mistakes) Error() string {
	shown := []error(m)
	if more := len(m) - maxReported; more > 0 {
		shown = append(shown[:maxReported:maxReported], fmt.Errorf("and %d more mistakes", more))
	}
	return errors.Join(shown...).Error()
}

// Unwrap returns all of them.
func (m mistakes) Unwrap() []error { return m }

// joinMistakes joins errs in the order of their places.
func joinMistakes(errs []error) error {
	slices.SortStableFunc(errs, func(a, b error) int {
		var x, y *InputError
		if !errors.As(a, &x) || !errors.As(b, &y) {
			return 0
		}
		return comparePositions(x.Position, y.Position)
	})
	if len(errs) == 0 {
		return nil
	}
	return mistakes(errs)
}

// didYouMean is a hint that names the known word nearest to word, or nothing. Case counts only between
// words that are equally near.
func didYouMean(word string, known []string) string {
	best, nearest, same := "", 1+min(3, max(1, len(word)/2)), 0
	for _, k := range known {
		distance, exact := editDistance(strings.ToLower(word), strings.ToLower(k)), editDistance(word, k)
		if distance < nearest || best != "" && distance == nearest && exact < same {
			best, nearest, same = k, distance, exact
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %q?", best)
}

// editDistance counts the insertions, deletions, replacements and swaps of neighbours between a and b.
func editDistance(a, b string) int {
	if len(a) > 64 || len(b) > 64 { // nobody mistypes these, and the product would be large
		return 64
	}
	var before, last, row []int
	for j := range len(b) + 1 {
		last = append(last, j)
	}
	for i := 1; i <= len(a); i++ {
		row = append([]int{i}, make([]int, len(b))...)
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(last[j]+1, row[j-1]+1, change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
