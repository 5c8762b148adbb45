package artifacts

import (
	"bytes"
	"strings"

	"go.yaml.in/yaml/v3"
)

// written is a scalar or an alias as a file has it: behind its anchor and tag, up to its end.
type written struct {
	from, to int
	// quote is that of a quoted scalar; empty for a plain one.
	quote string
	// folded is true if the scalar cannot be written in its place as it is: of several lines, or an alias.
	folded bool
	// comment is what the line with the mark of a block scalar ends with.
	comment string
}

// writtenAt finds a scalar or an alias that begins at from in data. It returns false if what is there does not read as n.
func writtenAt(data []byte, from int, n *yaml.Node) (written, bool) {
	at := from + skipProperties(data[from:])
	if at >= len(data) {
		return written{}, false
	}
	w, rest, length := written{from: at}, data[at:], 0
	switch {
	case n.Kind == yaml.AliasNode:
		w.folded, length = true, len(n.Value)+1
		return w.endingAt(at + length), rest[0] == '*' && bytes.HasPrefix(rest[1:], []byte(n.Value))
	case n.Kind != yaml.ScalarNode:
		return w, false
	case n.Style&yaml.SingleQuotedStyle != 0 && rest[0] == '\'':
		w.quote, length = "'", quotedLength(rest, '\'')
	case n.Style&yaml.DoubleQuotedStyle != 0 && rest[0] == '"':
		w.quote, length = `"`, quotedLength(rest, '"')
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 && (rest[0] == '|' || rest[0] == '>'):
		w.folded = true
		w.comment, length = block(rest)
	default:
		length = plainLength(rest, n.Value)
	}
	whole := rest[:length]
	w.folded = w.folded || bytes.ContainsAny(whole, "\r\n\u0085\u2028\u2029")
	return w.endingAt(at + length), length > 0 && reads(whole, n.Value)
}

func (w written) endingAt(to int) written {
	w.to = to
	return w
}

// reads reports whether a scalar by itself has a value. Parsing it is the proof that its end was found.
func reads(scalar []byte, value string) bool {
	if scalar[0] == '|' || scalar[0] == '>' { // the number that some have counts from the indentation of the parent
		mark, lines, _ := bytes.Cut(scalar, []byte("\n"))
		scalar = append(bytes.Map(func(r rune) rune {
			if '0' <= r && r <= '9' {
				return -1
			}
			return r
		}, blockMark(mark)), append([]byte("\n"), lines...)...)
	}
	var n yaml.Node
	return yaml.Unmarshal(scalar, &n) == nil && len(n.Content) == 1 && n.Content[0].Kind == yaml.ScalarNode && n.Content[0].Value == value
}

// skipProperties returns the length of the anchor and the tag that data begins with, and of what follows them up to the scalar.
func skipProperties(data []byte) int {
	at := 0
	for at < len(data) && (data[at] == '&' || data[at] == '!') {
		for at < len(data) && !isSpace(data[at]) {
			at++
		}
		for at < len(data) && (isSpace(data[at]) || data[at] == '#') {
			if data[at] == '#' { // a comment
				for at < len(data) && data[at] != '\n' && data[at] != '\r' {
					at++
				}
				continue
			}
			at++
		}
	}
	return at
}

func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\n' || b == '\r' }

// quotedLength is the length of the quoted scalar that data begins with; zero if it has no end.
func quotedLength(data []byte, quote byte) int {
	for i := 1; i < len(data); i++ {
		switch {
		case data[i] == '\\' && quote == '"':
			i++
		case data[i] == quote && quote == '\'' && i+1 < len(data) && data[i+1] == quote:
			i++
		case data[i] == quote:
			return i + 1
		}
	}
	return 0
}

// plainLength is the length of the plain scalar of that value that data begins with; zero if there is another one. A scalar of several
// lines has line breaks for spaces.
func plainLength(data []byte, value string) int {
	at := 0
	for i, word := range strings.Fields(value) {
		for i > 0 && at < len(data) && isSpace(data[at]) {
			at++
		}
		if !bytes.HasPrefix(data[at:], []byte(word)) {
			return 0
		}
		at += len(word)
	}
	return at
}

// block returns the comment behind the mark of the block scalar that data begins with, and the length without the last line break.
func block(data []byte) (comment string, length int) {
	mark, _, _ := bytes.Cut(data, []byte("\n"))
	comment = strings.TrimRight(string(mark[len(blockMark(mark)):]), " \t\r")
	indent := 0
	for at := len(mark) + 1; at < len(data); {
		line, _, _ := bytes.Cut(data[at:], []byte("\n"))
		text := bytes.TrimRight(line, " \t\r")
		spaces := len(text) - len(bytes.TrimLeft(text, " "))
		switch {
		case len(text) == 0:
		case indent == 0 && spaces == 0, spaces < indent:
			return comment, length
		default:
			if indent == 0 {
				indent = spaces
			}
			length = at + len(bytes.TrimRight(line, "\r"))
		}
		at += len(line) + 1
	}
	return comment, length
}

// blockMark is the mark of a block scalar, without the comment behind it.
func blockMark(line []byte) []byte {
	end := bytes.IndexAny(line, " \t\r")
	if end < 0 {
		return line
	}
	return line[:end]
}
