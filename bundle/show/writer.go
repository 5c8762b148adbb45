// Package show writes words that came from others, and values, so that a person reads what is there and no terminal or CI
// system obeys it.
//
// Writer goes around the output of a program. Line, Cell and Value are for one line, one cell of a table, and one value in
// a sentence. Nothing here says what the words mean, and what is written is for people: it is no format to parse.
package show

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Writer writes text for terminals and for the logs of CI systems, and escapes what either would obey: control
// characters other than newline and tab, characters that reorder or hide text, bytes that are no UTF-8, and the
// beginnings of the commands that CI systems read in logs (a line that starts with "::" for GitHub; "##[" and "##vso["
// anywhere for GitHub, Azure and TeamCity). A program puts one around all of its output, so that no part of it
// has to remember what came from others.
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

// lineState says where in a line the writer is, as far as "::" is concerned.
type lineState int

const (
	lineBegins lineState = iota // nothing but white space yet
	lineColon                   // white space, then a colon
	lineGoesOn
)

// hashState says how much of "##vso[" has been written.
type hashState int

const (
	noHash hashState = iota
	oneHash
	twoHashes // and perhaps letters after them
)

// NewWriter returns a writer that escapes what it writes to w.
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

// Close writes what Write has kept back, the beginning of a character at the very end, and returns the first error that
// there was. It does not close the writer below.
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

// obeyed reports whether a terminal does something at r other than to show it: control characters, and format
// characters, such as those that turn text around. The joiners that some scripts are written with, and the space
// without width, do no harm; nor do the tags that flags are made of, the only ones beyond what JSON and YAML escape alike.
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
