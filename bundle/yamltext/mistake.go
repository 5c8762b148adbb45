package yamltext

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Mistake returns the line of a parser's error about a text, and the error's message without the line. The line is zero if it
// is not known. A tab that indents, for which parsers have many messages, has one of its own.
func Mistake(data []byte, err error) (line int, message string) {
	message = strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(message, "line "); ok {
		if number, text, ok := strings.Cut(rest, ": "); ok {
			if n, err := strconv.Atoi(number); err == nil {
				line, message = n, text
			}
		}
	}
	if isAboutTabs(message) {
		for _, at := range []int{max(line, 1), line + 1} { // a parser may name the line before, and leaves out the first
			if indentedByTab(data, at) {
				return at, fmt.Sprintf("line %d has a tab; YAML is indented with spaces", at)
			}
		}
	}
	if line == 0 {
		line = lineOfNoText(data)
	}
	return line, message
}

// isAboutTabs reports whether a parser's message may be about a line that a tab indents.
func isAboutTabs(message string) bool {
	return strings.Contains(message, "cannot start any token") || strings.Contains(message, "found a tab character")
}

// indentedByTab reports whether a tab is among the white space at the beginning of a line, which is counted from 1.
func indentedByTab(data []byte, line int) bool {
	n := 0
	for text := range bytes.Lines(data) {
		if n++; n == line {
			indent := text[:len(text)-len(bytes.TrimLeft(text, " \t"))]
			return bytes.ContainsRune(indent, '\t')
		}
	}
	return false
}

// lineOfNoText returns the line of the first invalid UTF-8 byte or control character, or zero.
func lineOfNoText(data []byte) int {
	for line, i := 1, 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == '\n':
			line++
		case r == utf8.RuneError && size == 1, r != '\t' && r != '\r' && unicode.IsControl(r):
			return line
		}
		i += size
	}
	return 0
}
