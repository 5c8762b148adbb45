package scheduler

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/similar"
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

// didYouMean is a hint that names the known word nearest to word, or nothing.
func didYouMean(word string, known []string) string {
	if best := similar.To(word, known); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return ""
}
