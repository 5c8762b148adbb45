// Package yamltext changes YAML as text: every byte that does not belong to the change stays, so that comments, order, blank
// lines, line ends, anchors and document markers survive.
//
// Begin with [Parse], find nodes in [File.Documents], and call [File.Replace], [File.Set], [File.Unset] or [File.Remove]. Each
// returns the new text. Before it does, it parses that text and compares it with the old one: if anything but the change
// would differ, the error is a [*HardError], and a person has to do it by hand.
package yamltext

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// HardError means that text is written in a way that this package cannot change safely.
type HardError struct {
	Line int
	Text string
}

func (e *HardError) Error() string { return e.Text }

func hard(n *yaml.Node, format string, args ...any) error {
	return &HardError{Line: n.Line, Text: fmt.Sprintf(format, args...)}
}

// File is a YAML file as text, with its nodes.
type File struct {
	data    []byte
	starts  []int // of lines, as YAML counts them
	newline string
	// firsts are the numbers of the lines' first characters, and marks the offsets of every markEvery-th character. They are nil if
	// each character is one byte.
	firsts, marks []int
	Documents     []*yaml.Node // their content; nil for an empty document
}

// markEvery is a compromise: a mark takes 8 bytes, and an offset costs at most that many characters after a mark.
const markEvery = 64

// Open returns a file without its documents, for nodes that were parsed elsewhere.
func Open(data []byte) *File {
	f := &File{data: data, starts: lineStarts(data), newline: "\n"}
	if i := bytes.IndexByte(data, '\n'); i > 0 && data[i-1] == '\r' {
		f.newline = "\r\n"
	}
	if !bytes.ContainsFunc(data, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return f
	}
	character := 0
	for at := range string(data) {
		if character%markEvery == 0 {
			f.marks = append(f.marks, at)
		}
		if line := len(f.firsts); line < len(f.starts) && f.starts[line] == at {
			f.firsts = append(f.firsts, character)
		}
		character++
	}
	for len(f.firsts) < len(f.starts) { // an empty last line
		f.firsts = append(f.firsts, character)
	}
	return f
}

// Parse reads a file. Its errors are those of yaml.v3, or say that the file is not UTF-8.
func Parse(data []byte) (*File, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("the file is not UTF-8")
	}
	f := Open(data)
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var n yaml.Node
		err := decoder.Decode(&n)
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		if err != nil {
			return nil, err
		}
		var content *yaml.Node
		if len(n.Content) == 1 {
			content = n.Content[0]
		}
		f.Documents = append(f.Documents, content)
	}
}

// byteOrderMark may begin a file; YAML does not count it as a character.
const byteOrderMark = "\ufeff"

// lineStarts returns where the lines of a file begin, as YAML 1.1 counts them.
func lineStarts(data []byte) []int {
	start := 0
	if bytes.HasPrefix(data, []byte(byteOrderMark)) {
		start = len(byteOrderMark)
	}
	starts := []int{start}
	for i := start; i < len(data); {
		n := breakLength(data[i:])
		if i += max(n, 1); n > 0 {
			starts = append(starts, i)
		}
	}
	return starts
}

// breakLength returns the length of the line break that data begins with, as YAML 1.1 has them; zero if there is none.
func breakLength(data []byte) int {
	switch {
	case bytes.HasPrefix(data, []byte("\r\n")):
		return 2
	case bytes.HasPrefix(data, []byte("\n")), bytes.HasPrefix(data, []byte("\r")):
		return 1
	case bytes.HasPrefix(data, []byte("\u0085")):
		return 2
	case bytes.HasPrefix(data, []byte("\u2028")), bytes.HasPrefix(data, []byte("\u2029")):
		return 3
	}
	return 0
}

// line returns the text of a line, counted from 1, without its end.
func (f *File) line(number int) []byte {
	from, to := f.starts[number-1], f.lineEnd(number)
	return f.data[from:to]
}

// lineEnd returns the offset of the end of a line, before its line break.
func (f *File) lineEnd(number int) int {
	if number == len(f.starts) {
		return len(f.data)
	}
	begin, end := f.starts[number-1], f.starts[number]
	for _, long := range []string{"\r\n", "\n", "\r", "\u0085", "\u2028", "\u2029"} {
		if bytes.HasSuffix(f.data[begin:end], []byte(long)) {
			return end - len(long)
		}
	}
	return end
}

// nextLine returns the offset after the line break that ends a line.
func (f *File) nextLine(number int) int {
	if number >= len(f.starts) {
		return len(f.data)
	}
	return f.starts[number]
}

// lineOf returns the number of the line that an offset is on.
func (f *File) lineOf(offset int) int {
	i, found := slices.BinarySearch(f.starts, offset)
	if found {
		return i + 1
	}
	return max(i, 1)
}

// Offset returns where a node begins.
func (f *File) Offset(n *yaml.Node) (int, error) {
	if n.Line < 1 || n.Line > len(f.starts) {
		return 0, hard(n, "its place is not known")
	}
	if f.marks == nil {
		return min(f.starts[n.Line-1]+n.Column-1, len(f.data)), nil
	}
	character := f.firsts[n.Line-1] + n.Column - 1 // YAML counts columns in characters
	mark := min(character/markEvery, len(f.marks)-1)
	at := f.marks[mark]
	for left := character - mark*markEvery; left > 0 && at < len(f.data); left-- {
		_, size := utf8.DecodeRune(f.data[at:])
		at += size
	}
	return at, nil
}

// start returns where the content of a node begins: after its anchor and tag.
func (f *File) start(n *yaml.Node) (int, error) {
	at, err := f.Offset(n)
	if err != nil || n.Kind == yaml.AliasNode {
		return at, err
	}
	for at < len(f.data) && (f.data[at] == '&' || f.data[at] == '!') {
		for at < len(f.data) && !isSpace(f.data[at]) {
			at++
		}
		for at < len(f.data) && (isSpace(f.data[at]) || f.data[at] == '#') {
			if f.data[at] == '#' { // a comment
				at = f.lineEnd(f.lineOf(at))
				continue
			}
			at++
		}
	}
	return at, nil
}

func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\r' || b == '\n' }

// end returns where the text of a node ends.
func (f *File) end(n *yaml.Node) (int, error) {
	at, err := f.start(n)
	if err != nil {
		return 0, err
	}
	switch n.Kind {
	case yaml.AliasNode:
		return at + len("*") + len(n.Value), nil
	case yaml.ScalarNode:
		return f.scalarEnd(n, at)
	}
	for _, child := range n.Content {
		if at, err = f.end(child); err != nil {
			return 0, err
		}
	}
	if n.Style&yaml.FlowStyle == 0 {
		return at, nil
	}
	if len(n.Content) == 0 {
		at++ // the bracket
	}
	return f.closing(n, at)
}

// closing returns the offset after the bracket that ends a flow collection. Only commas, space and comments are before it.
func (f *File) closing(n *yaml.Node, at int) (int, error) {
	for ; at < len(f.data); at++ {
		switch b := f.data[at]; {
		case b == ']' || b == '}':
			return at + 1, nil
		case b == '#':
			at = f.lineEnd(f.lineOf(at))
		case b == ',' || b == ':' || isSpace(b):
		default:
			return 0, hard(n, "the end of this list or mapping is not found")
		}
	}
	return 0, hard(n, "the end of this list or mapping is not found")
}

func (f *File) scalarEnd(n *yaml.Node, at int) (int, error) {
	switch {
	case n.Style&yaml.DoubleQuotedStyle != 0:
		for i := at + 1; i < len(f.data); i++ {
			switch f.data[i] {
			case '\\':
				i++
			case '"':
				return i + 1, nil
			}
		}
	case n.Style&yaml.SingleQuotedStyle != 0:
		for i := at + 1; i < len(f.data); i++ {
			if f.data[i] != '\'' {
				continue
			}
			if i+1 < len(f.data) && f.data[i+1] == '\'' {
				i++
				continue
			}
			return i + 1, nil
		}
	case isBlock(n):
		_, last := f.block(n, at)
		return f.lineEnd(last), nil
	case n.Value == "":
		return at, nil // nothing is written there
	default:
		return f.plainEnd(n, at)
	}
	return 0, hard(n, "the end of this text is not found")
}

// plainEnd follows the words of a plain scalar, which may be on several lines.
func (f *File) plainEnd(n *yaml.Node, at int) (int, error) {
	if bytes.HasPrefix(f.data[at:], []byte(n.Value)) {
		return at + len(n.Value), nil
	}
	for _, word := range strings.Fields(n.Value) {
		for at < len(f.data) && isSpace(f.data[at]) {
			at++
		}
		if !bytes.HasPrefix(f.data[at:], []byte(word)) {
			return 0, hard(n, "the end of this text is not found")
		}
		at += len(word)
	}
	return at, nil
}

// block returns the indentation of a block scalar's text, and the number of its last line. If it has no text, that is the line
// of its indicator. at is the offset of the indicator.
func (f *File) block(n *yaml.Node, at int) (width, last int) {
	last = f.lineOf(at)
	keep := bytes.ContainsRune(f.indicator(at), '+')
	own, known := leadingSpaces(n.Value), false // own is what the first line is indented by beyond width
	for number := last + 1; number <= len(f.starts); number++ {
		line := f.line(number)
		spaces := len(line) - len(bytes.TrimLeft(line, " "))
		blank := spaces == len(line)
		if !known && !blank && own >= 0 {
			width, known = max(spaces-own, 0), true
		}
		switch {
		case blank && (!known || spaces <= width):
			if keep && f.starts[number-1] < len(f.data) {
				last = number
			}
			continue
		case !known || spaces < width || width == 0 && isMarker(line):
			return width, last
		}
		last = number
	}
	return width, last
}

// leadingSpaces returns how many spaces a text's first line that is not blank begins with; -1 if all are blank.
func leadingSpaces(text string) int {
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == 0x2028 || r == 0x2029 }) {
		if rest := strings.TrimLeft(line, " "); rest != "" {
			return len(line) - len(rest)
		}
	}
	return -1
}

// indicator returns the indicator of the block scalar at an offset.
func (f *File) indicator(at int) []byte {
	line := f.data[at:f.lineEnd(f.lineOf(at))]
	if end := bytes.IndexAny(line, " \t"); end >= 0 {
		return line[:end]
	}
	return line
}

// isMarker reports whether a line begins or ends a document.
func isMarker(line []byte) bool {
	for _, marker := range []string{"---", "..."} {
		if rest, ok := bytes.CutPrefix(line, []byte(marker)); ok && (len(rest) == 0 || rest[0] == ' ' || rest[0] == '\t') {
			return true
		}
	}
	return false
}

// Splice is text that takes the place of other text.
type Splice struct {
	From, To int
	Text     string
}

// Splice returns the text with all splices done, which may be in any order. Equal ones count once; the error is a *HardError for
// others that begin at one place, or overlap.
func (f *File) Splice(splices []Splice) ([]byte, error) {
	splices = slices.Compact(slices.SortedStableFunc(slices.Values(splices), func(a, b Splice) int { return cmp.Compare(a.From, b.From) }))
	var out bytes.Buffer
	last := 0
	for i, s := range splices {
		if s.From < last || i > 0 && s.From == splices[i-1].From {
			return nil, &HardError{Line: f.lineOf(s.From), Text: "two changes are at one place"}
		}
		out.Write(f.data[last:s.From])
		out.WriteString(s.Text)
		last = s.To
	}
	out.Write(f.data[last:])
	return out.Bytes(), nil
}

// expected compares the new text with what the documents are to be.
func expected(data []byte, want []*yaml.Node) error {
	got, err := Parse(data)
	if err != nil {
		return &HardError{Text: "the change would make invalid YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")}
	}
	if len(got.Documents) != len(want) {
		return &HardError{Text: "the change would change the number of documents"}
	}
	for i, n := range got.Documents {
		if at := difference(n, want[i]); at != nil {
			return hard(at, "the change would change other values as well")
		}
	}
	return nil
}

// difference returns the first node of got that differs from want in more than its place, style and comments.
func difference(got, want *yaml.Node) *yaml.Node {
	switch {
	case got == nil && want == nil:
		return nil
	case got == nil || want == nil:
		return cmp.Or(got, want)
	case got.Kind == yaml.AliasNode && want.Kind == yaml.AliasNode:
		if got.Value != want.Value {
			return got
		}
		return nil
	case got.Kind != want.Kind || got.ShortTag() != want.ShortTag() || got.Value != want.Value || got.Anchor != want.Anchor || len(got.Content) != len(want.Content):
		return got
	}
	for i := range got.Content {
		if at := difference(got.Content[i], want.Content[i]); at != nil {
			return at
		}
	}
	return nil
}

// clone copies the documents, so that they can be changed into the expected ones; copies maps nodes to their copies.
func (f *File) clone() (documents []*yaml.Node, copies map[*yaml.Node]*yaml.Node) {
	copies = map[*yaml.Node]*yaml.Node{}
	var cloned func(n *yaml.Node) *yaml.Node
	cloned = func(n *yaml.Node) *yaml.Node {
		if n == nil {
			return nil
		}
		c := *n
		c.Content = nil
		for _, child := range n.Content {
			c.Content = append(c.Content, cloned(child))
		}
		copies[n] = &c
		return &c
	}
	for _, n := range f.Documents {
		documents = append(documents, cloned(n))
	}
	return documents, copies
}
