package manifests

import (
	"bytes"
	"slices"
	"strings"
)

// plain reads a document in the form that templates usually write: block mappings and lists, of words, numbers and texts
// within one line, and of block texts. That is twenty times faster than parsing all of YAML. ok is false for anything else,
// and for anything that is, or might be, a mistake; a fuzz test compares it with the whole parser.
func plain(doc []byte) (value any, ok bool) {
	p := &plainReader{rest: doc, depth: maxPlainDepth, whole: bytes.HasSuffix(doc, []byte("\n"))}
	p.next()
	if p.done() {
		return nil, !p.failed
	}
	value = p.block(p.indent)
	if _, isMapping := value.(map[string]any); !isMapping || !p.done() || p.failed {
		return nil, false
	}
	return value, true
}

// Plain returns the documents of a file in the form that templates usually write, which takes a tenth of the time; ok is
// false if one of them has another form. Empty documents are left out.
func Plain(data []byte) (documents []map[string]any, ok bool) {
	for _, doc := range splitDocuments(data) {
		value, ok := plain(doc.data)
		if !ok {
			return nil, false
		}
		if value != nil {
			documents = append(documents, value.(map[string]any))
		}
	}
	return documents, true
}

const (
	maxPlainDepth = 50
	maxPlainKey   = 128
)

// plainReader is at one line with content, or at the end.
type plainReader struct {
	rest   []byte // the lines after it
	text   []byte // of the line, without the spaces around it
	indent int    // the number of spaces before text; -1 at the end
	depth  int    // what is left of it
	whole  bool   // the last line has an end
	failed bool
}

func (p *plainReader) done() bool { return p.indent < 0 }

func (p *plainReader) fail() any {
	p.failed, p.indent, p.rest = true, -1, nil
	return nil
}

// next goes to the next line with content.
func (p *plainReader) next() {
	for len(p.rest) > 0 {
		line := p.line()
		if p.failed {
			return
		}
		text := bytes.TrimLeft(line, " ")
		indent := len(line) - len(text)
		if text = bytes.TrimRight(text, " "); len(text) == 0 || text[0] == '#' {
			continue
		}
		p.text, p.indent = text, indent
		return
	}
	p.indent = -1
}

// line takes a line of printable ASCII.
func (p *plainReader) line() []byte {
	line, rest, _ := bytes.Cut(p.rest, []byte("\n"))
	for _, c := range line {
		if c < ' ' || c > '~' {
			p.fail()
			return nil
		}
	}
	p.rest = rest
	return line
}

func (p *plainReader) block(indent int) any {
	if p.depth--; p.depth < 0 {
		return p.fail()
	}
	defer func() { p.depth++ }()
	if isItem(p.text) {
		return p.list(indent)
	}
	return p.mapping(indent)
}

func isItem(text []byte) bool {
	return text[0] == '-' && (len(text) == 1 || text[1] == ' ')
}

func (p *plainReader) mapping(indent int) any {
	made := map[string]any{}
	for p.indent == indent && !isItem(p.text) {
		key, rest, ok := plainKey(p.text)
		if _, twice := made[key]; !ok || twice {
			return p.fail()
		}
		switch {
		case len(rest) > 0:
			made[key] = p.scalar(rest, indent)
		default:
			if p.next(); p.indent > indent {
				made[key] = p.block(p.indent)
			} else if p.indent == indent && isItem(p.text) {
				made[key] = p.list(indent)
			} else {
				made[key] = nil
			}
		}
		if p.indent > indent {
			return p.fail()
		}
	}
	return made
}

func (p *plainReader) list(indent int) any {
	made := []any{}
	for p.indent == indent && isItem(p.text) {
		rest := bytes.TrimLeft(p.text[1:], " ")
		switch {
		case len(rest) == 0:
			if p.next(); p.indent > indent {
				made = append(made, p.block(p.indent))
			} else {
				made = append(made, nil)
			}
		case isItem(rest), isKey(rest):
			p.indent += len(p.text) - len(rest)
			p.text = rest
			made = append(made, p.block(p.indent))
		default:
			made = append(made, p.scalar(rest, indent))
		}
		if p.indent > indent {
			return p.fail()
		}
	}
	return made
}

func isKey(text []byte) bool {
	_, _, ok := plainKey(text)
	return ok
}

// plainKey splits a line after its key, which is a word that is neither a boolean nor a null.
func plainKey(text []byte) (key string, rest []byte, ok bool) {
	n := 0
	for n < len(text) && (isLetter(text[n]) || n > 0 && (text[n] >= '0' && text[n] <= '9' || strings.IndexByte("_./-", text[n]) >= 0)) {
		n++
	}
	if n == 0 || n > maxPlainKey || n == len(text) || text[n] != ':' || n+1 < len(text) && text[n+1] != ' ' || isKeyword(text[:n]) {
		return "", nil, false
	}
	return string(text[:n]), bytes.TrimLeft(text[n+1:], " "), true
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// keywords are the words that YAML 1.1 takes for something else than a text, in small letters.
var keywords = []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null"}

func isKeyword(word []byte) bool {
	return len(word) <= 5 && slices.Contains(keywords, strings.ToLower(string(word)))
}

// scalar reads a value, and goes to the next line. The key or item that has it is indented by indent.
func (p *plainReader) scalar(text []byte, indent int) any {
	if text[0] == '|' {
		return p.blockText(text, indent)
	}
	value, ok := plainScalar(text)
	if !ok {
		return p.fail()
	}
	if p.next(); p.indent > indent { // which may go on with the text
		return p.fail()
	}
	return value
}

func plainScalar(text []byte) (value any, ok bool) {
	first, last := text[0], text[len(text)-1]
	switch {
	case first == '"':
		inner := text[1:]
		return string(text[1:max(1, len(text)-1)]), len(text) > 1 && last == '"' && bytes.IndexByte(inner, '\\') < 0 && bytes.IndexByte(inner, '"') == len(inner)-1
	case first == '\'':
		inner := text[1:]
		return string(text[1:max(1, len(text)-1)]), len(text) > 1 && bytes.IndexByte(inner, '\'') == len(inner)-1
	case string(text) == "{}":
		return map[string]any{}, true
	case string(text) == "[]":
		return []any{}, true
	case last == ':' || bytes.Contains(text, []byte(": ")) || bytes.Contains(text, []byte(" #")):
		return nil, false
	case string(text) == "true", string(text) == "false":
		return first == 't', true
	case isLetter(first):
		return string(text), !isKeyword(text)
	case first == '/', first == '.' && len(text) > 1 && text[1] == '/':
		return string(text), true
	case first >= '0' && first <= '9':
		return plainNumber(text)
	}
	return nil, false
}

// plainNumber reads a decimal number, or a text that begins with a digit and has a letter that no number and no time has.
func plainNumber(text []byte) (value any, ok bool) {
	if bytes.ContainsAny(text, "ghijklmqrsuvwyGHIJKLMQRSUVWY") {
		return string(text), true
	}
	if len(text) > 15 || text[0] == '0' && len(text) > 1 {
		return nil, false
	}
	number := int64(0)
	for _, c := range text {
		if c < '0' || c > '9' {
			return nil, false
		}
		number = number*10 + int64(c-'0')
	}
	return number, true
}

// blockText reads a text of several lines, and goes to the line after it.
func (p *plainReader) blockText(header []byte, indent int) any {
	strip := string(header) == "|-"
	if !strip && string(header) != "|" {
		return p.fail()
	}
	var text []byte
	base := -1
	for len(p.rest) > 0 {
		before := p.rest
		line := p.line()
		if p.failed {
			return nil
		}
		own := len(line) - len(bytes.TrimLeft(line, " "))
		switch {
		case own == len(line): // an empty line
			if base < 0 || own > base {
				return p.fail()
			}
			text = append(text, '\n')
			continue
		case base < 0 && own > indent:
			base = own
		case own <= indent:
			p.rest = before
		}
		if own <= indent {
			break
		}
		if own < base {
			return p.fail()
		}
		text = append(append(text, line[base:]...), '\n')
	}
	if base < 0 || len(p.rest) == 0 && !p.whole {
		return p.fail()
	}
	if text = bytes.TrimRight(text, "\n"); !strip {
		text = append(text, '\n')
	}
	p.next()
	return string(text)
}
