// Package finding describes mistakes and oddities in the input of a platform, with their place.
//
// A [Finding] is a warning or a note; an [Error] is a mistake that makes the input unusable. Both have a place, a
// message of one line, often a hint, and a code such as W1203. [New] and [Errorf] make them, [In] lists the findings in
// an error, and [Explain] returns the long text about a code. Codes and texts are declared here and nowhere else.
package finding

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/show"
)

// Position is a place in the input. The zero value is no place.
type Position struct {
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
}

// Finding is a remark about the input, in most cases a warning or a note.
type Finding struct {
	Position
	// Code identifies the kind of finding, such as W1203; it may be empty. See "wherry explain".
	Code string
	// Column counts characters from 1; zero if unknown.
	Column int
	// Note marks a remark that is no reason to be strict, such as about a file without an object.
	Note    bool
	Message string
	Hint    string
	// Group marks findings about several assignments that have one cause, such as one check. Empty means the message.
	Group string
}

// Error is a mistake in the input. Several of them are joined in one error; errors.As finds the first, and [In] lists
// them all.
type Error struct {
	Position
	Code    string // as a finding has it; may be empty
	Column  int    // counted from 1; zero if unknown
	Message string
	Hint    string // advice; may be empty
	Group   string // as a finding has it; may be empty
	Err     error  // the cause, such as the error of text/template; may be nil
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Error gives the place, the message and, in parentheses, the hint.
func (e *Error) Error() string {
	return Finding{Position: e.Position, Message: e.Message, Hint: e.Hint}.String()
}

// Errorf returns an [Error] with a message of one line. The code may be empty.
func Errorf(code string, at Position, hint, format string, args ...any) error {
	return &Error{Position: at, Code: code, Message: Sentence(format, args...), Hint: hint}
}

// maxMessage bounds a message, because it may quote a long file.
const maxMessage = 2000

// Sentence formats a message, and cuts one that is too long for a terminal.
func Sentence(format string, args ...any) string {
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

// String is file:line, or the file alone if the line is not known.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// Compare orders positions by file and line.
func (p Position) Compare(other Position) int {
	return cmp.Or(cmp.Compare(p.File, other.File), cmp.Compare(p.Line, other.Line))
}

// MaxReported bounds how many mistakes the text of one error lists.
const MaxReported = 20

// mistakes are several errors, of which the text lists only the first.
type mistakes []error

func (m mistakes) Error() string {
	shown := []error(m)
	if more := len(m) - MaxReported; more > 0 {
		shown = append(shown[:MaxReported:MaxReported], fmt.Errorf("and %d more mistakes", more))
	}
	return errors.Join(shown...).Error()
}

// Unwrap returns all of them.
func (m mistakes) Unwrap() []error { return m }

// Join joins errs in the order of their positions. It returns nil if there are none. The text lists the first
// [MaxReported].
func Join(errs []error) error {
	slices.SortStableFunc(errs, func(a, b error) int {
		var x, y *Error
		if !errors.As(a, &x) || !errors.As(b, &y) {
			return 0
		}
		return x.Position.Compare(y.Position)
	})
	if len(errs) == 0 {
		return nil
	}
	return mistakes(errs)
}

// DidYouMean returns a hint that names the known word nearest to word, or nothing.
func DidYouMean(word string, known []string) string {
	if best := show.Nearest(word, known); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return ""
}

// The severities of findings.
const (
	SeverityError   = "error"
	SeverityWarning = "warning"
	SeverityNote    = "note"
)

// Severity is [SeverityError], [SeverityWarning] or [SeverityNote].
func (f Finding) Severity() string {
	switch {
	case strings.HasPrefix(f.Code, "E"):
		return SeverityError
	case f.Note:
		return SeverityNote
	default:
		return SeverityWarning
	}
}

// New returns a Finding. The first letter of the code decides about its severity.
func New(code string, at Position, hint, format string, args ...any) Finding {
	return Finding{Code: code, Position: at, Note: strings.HasPrefix(code, "N"), Message: Sentence(format, args...), Hint: hint}
}

// WithCode sets the code of the first [Error] in err, and returns err.
func WithCode(code string, err error) error {
	var input *Error
	if errors.As(err, &input) {
		input.Code = code
	}
	return err
}

// In lists the findings in an error, which has one for each [Error] that it wraps. It returns none for an error that
// is not about the input.
func In(err error) []Finding {
	switch e := err.(type) { // it walks the tree itself
	case *Error:
		return []Finding{{Code: e.Code, Position: e.Position, Column: e.Column, Message: e.Message, Hint: e.Hint, Group: e.Group}}
	case interface{ Unwrap() []error }:
		var all []Finding
		for _, inner := range e.Unwrap() {
			all = append(all, In(inner)...)
		}
		return all
	case interface{ Unwrap() error }:
		inner := e.Unwrap()
		all := In(inner)
		if inner == nil {
			return all
		}
		if before, ok := strings.CutSuffix(err.Error(), inner.Error()); ok {
			for i := range all {
				all[i].Message = before + all[i].Message
			}
		}
		return all
	}
	return nil
}
