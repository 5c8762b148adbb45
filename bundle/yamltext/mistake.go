package yamltext

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

// plain are words for messages of the parser that tell of its grammar.
var plain = map[string]string{
	"mapping values are not allowed in this context":         `there is a ": " too many: put the text in quotes, or correct the indentation`,
	"did not find expected key":                              "the indentation differs from that of the lines above, or text follows a closing quote",
	"could not find expected ':'":                            `a key has no ":" after it, or more than 1024 characters`,
	"did not find expected ',' or ']'":                       "a list that begins with [ is not closed, or lacks a comma",
	"did not find expected ',' or '}'":                       "a mapping that begins with { is not closed, or lacks a comma",
	"found unexpected end of stream":                         "a text that begins with a quote is not closed",
	"found unknown escape character":                         "a backslash in double quotes is followed by a character that YAML does not know: use single quotes",
	"block sequence entries are not allowed in this context": `a list of "- " begins on a line of its own`,
	"did not find expected '-' indicator":                    `an item of a list does not begin with "- "`,
	"did not find expected comment or line break":            "a text after | or > begins on the next line",
	"did not find expected node content":                     "a value is missing, or a bracket is not closed or never opened",
}

// lineBefore are the messages for which the parser names the line before that of the mistake.
var lineBefore = []string{"did not find expected key", "did not find expected '-' indicator"}

// unquoted finds the beginning of a value that needs quotes.
var unquoted = lazyregexp.New("(?:^|[:\\-,\\[{?] *)([@`%*&])")

// Mistake returns the line of a parser's error about a text, and what is wrong there in words for people. The line is zero if it
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
	if strings.Contains(message, "cannot start any token") || strings.Contains(message, "alphabetic or numeric") {
		for _, at := range []int{max(line, 1), line + 1} {
			if m := unquoted.FindStringSubmatch(string(lineOf(data, at))); m != nil {
				return at, fmt.Sprintf("a text that begins with %s needs quotes", m[1])
			}
		}
	}
	if anchor, ok := strings.CutPrefix(message, "unknown anchor '"); ok {
		word := "*" + strings.TrimSuffix(anchor, "' referenced")
		return 1 + bytes.Count(data[:max(0, bytes.Index(data, []byte(word)))], []byte("\n")), "a text that begins with * needs quotes: " + word + " refers to an anchor that is not there"
	}
	if strings.Contains(message, "UTF-") || line == 0 && bytes.Count(data, []byte{0}) > len(data)/3 { // UTF-16 without a mark
		return max(line, lineOfNoText(data)), "the text is not UTF-8: save it as UTF-8"
	}
	if slices.Contains(lineBefore, message) {
		return line + 1, plain[message]
	}
	if words := plain[message]; words != "" {
		return max(line, 1), words // a parser leaves out the first
	}
	if line == 0 {
		line = lineOfNoText(data)
	}
	return line, message
}

// lineOf returns a line, which is counted from 1, without its break.
func lineOf(data []byte, line int) []byte {
	n := 0
	for text := range bytes.Lines(data) {
		if n++; n == line {
			return bytes.TrimRight(text, "\r\n")
		}
	}
	return nil
}

// isAboutTabs reports whether a parser's message may be about a line that a tab indents.
func isAboutTabs(message string) bool {
	return strings.Contains(message, "cannot start any token") || strings.Contains(message, "found a tab character")
}

// indentedByTab reports whether a tab is among the white space at the beginning of a line, which is counted from 1.
func indentedByTab(data []byte, line int) bool {
	text := lineOf(data, line)
	return bytes.ContainsRune(text[:len(text)-len(bytes.TrimLeft(text, " \t"))], '\t')
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
