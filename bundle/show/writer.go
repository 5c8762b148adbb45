// Package show writes untrusted text and values such that people can read them and no terminal or CI system executes
// them as commands.
//
// Begin with Writer, which wraps the output of a program. Line, Cell and Value format text for one line, one cell of a
// table, and one value in a sentence; Markdown and MarkdownCode for Markdown as forges render it, which stays text: no link,
// image, mention, HTML, cell or line comes of it. Nearest finds the known word that a person has probably mistyped, and Mask
// hides a value that looks like a secret. The output is for people, and no format to parse.
package show

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Writer writes text for terminals and for the logs of CI systems, and escapes everything that either would execute:
// control characters other than newline and tab, characters that reorder or hide text, bytes that are no UTF-8, and the
// beginnings of the commands that CI systems read in logs (a line that starts with "::" for GitHub; "##[" and "##vso["
// anywhere for GitHub, Azure and TeamCity). A program wraps all of its output in one Writer, so that no part of it has to
// track which text is untrusted.
//
// The escapes are those of JSON (U+202E becomes \u202e), so that JSON stays JSON and means the same. It may be used by
// several goroutines; each Write stays whole.
type Writer struct {
	w io.Writer

	mu   sync.Mutex
	tail []byte // the beginning of a character whose rest is still to come
	err  error  // the first failure of w

	line lineState
	hash hashState
}

// lineState is the position within a line, as far as "::" is concerned.
type lineState int

const (
	lineBegins lineState = iota // nothing but white space yet
	lineColon                   // white space, then a colon
	lineGoesOn
)

// hashState is the part of "##vso[" that has been written.
type hashState int

const (
	noHash hashState = iota
	oneHash
	twoHashes // and perhaps letters after them
)

// NewWriter returns a Writer on w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write writes p. It returns len(p) if all of it was taken, whatever its length as escaped.
func (s *Writer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data := p
	if len(s.tail) > 0 {
		data = append(s.tail, p...)
		s.tail = nil
	}
	if err := s.write(data, false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close writes the bytes that Write has kept back, the beginning of a character at the very end, and returns the first
// error of all writes. It does not close the underlying writer.
func (s *Writer) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.write(s.tail, true)
	s.tail = nil
	return s.err
}

func (s *Writer) write(data []byte, last bool) error {
	var out bytes.Buffer
	out.Grow(len(data))
	for len(data) > 0 {
		if !last && !utf8.FullRune(data) {
			s.tail = bytes.Clone(data)
			break
		}
		r, size := utf8.DecodeRune(data)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, data[0])
		case s.commands(r) || obeyed(r) && r != '\n' && r != '\t':
			out.WriteString(escape(r))
		default:
			out.Write(data[:size])
		}
		data = data[size:]
	}
	if out.Len() == 0 {
		return nil
	}
	_, err := s.w.Write(out.Bytes())
	if err != nil && s.err == nil {
		s.err = err
	}
	return err
}

// commands takes the next character and reports whether it would complete the beginning of a CI system's command.
func (s *Writer) commands(r rune) bool {
	line := s.line
	switch {
	case r == '\n':
		s.line = lineBegins
	case line == lineBegins && r == ':':
		s.line = lineColon
	case line != lineBegins || !unicode.IsSpace(r):
		s.line = lineGoesOn
	}
	hash := s.hash
	switch {
	case r == '#':
		s.hash = min(hash+1, twoHashes)
	case hash != twoHashes || !unicode.IsLetter(r):
		s.hash = noHash
	}
	return line == lineColon && r == ':' || hash == twoHashes && r == '['
}

// obeyed reports whether a terminal would act on r instead of showing it: control characters, and format characters such
// as those that reverse text. The joiners that some scripts need and the zero-width space are harmless. So are the tag
// characters of flag emoji, the only format characters that JSON and YAML escape differently.
func obeyed(r rune) bool {
	if r >= '\u200b' && r <= '\u200d' || r > '\uffff' {
		return false
	}
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
}

// escape is r as JSON and YAML escape it.
func escape(r rune) string { return fmt.Sprintf(`\u%04x`, r) }

// IsSafe reports whether a Writer would write data as it is.
func IsSafe(data []byte) bool {
	var out bytes.Buffer
	s := NewWriter(&out)
	_, _ = s.Write(data)
	_ = s.Close()
	return bytes.Equal(out.Bytes(), data)
}
