package yamltext

import (
	"bytes"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Format returns the text in its canonical form, which means the same. It indents by two spaces, lists too; puts apiVersion,
// kind, metadata and spec first; removes space at the ends of lines, and all but one of several blank lines; and ends the
// file with one line break. Quotes, comments, anchors, document markers and line ends stay as they are.
//
// Lines are moved and never written anew. The result is compared with the text before, value by value and line by line, so
// that what would change gets less of the form: at last none. Formatting twice is formatting once. The error is that of a
// text that is no YAML.
func Format(data []byte) ([]byte, error) {
	if _, err := Parse(data); err != nil {
		return nil, err
	}
	out := data
	for range rounds {
		next := formatOnce(out)
		if bytes.Equal(next, out) {
			return out, nil
		}
		out = next
	}
	return data, nil // it would never end
}

// rounds bounds the passes over a text.
const rounds = 6

// formatOnce returns the text with as much of the form as keeps its meaning.
func formatOnce(data []byte) []byte {
	for _, form := range []struct{ indent, order bool }{{true, true}, {true, false}, {false, false}} {
		if out, ok := format(data, form.indent, form.order); ok && same(data, out) {
			return out
		}
	}
	return data
}

// same reports whether two texts have the same values, but for the order of headers, and the same lines, but for their order
// and the space around words.
func same(a, b []byte) bool {
	one, err := Parse(a)
	if err != nil {
		return false
	}
	other, err := Parse(b)
	if err != nil || len(one.Documents) != len(other.Documents) || !slices.Equal(words(a), words(b)) {
		return false
	}
	for i := range one.Documents {
		if difference(sortedHeader(one.Documents[i]), sortedHeader(other.Documents[i])) != nil {
			return false
		}
	}
	return true
}

// words returns the sorted lines of a text, with one space between words.
func words(data []byte) []string {
	var all []string
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 0 {
			all = append(all, strings.Join(fields, " "))
		}
	}
	slices.Sort(all)
	return all
}

// header are the keys that begin an object.
var header = []string{"apiVersion", "kind", "metadata", "spec"}

// rank returns the place of a key at the root of an object.
func rank(key *yaml.Node) int {
	if i := slices.Index(header, key.Value); i >= 0 {
		return i
	}
	return len(header)
}

// sortedHeader returns a copy of an object with the keys of its header first.
func sortedHeader(n *yaml.Node) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return n
	}
	var pairs [][]*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		pairs = append(pairs, n.Content[i:i+2])
	}
	slices.SortStableFunc(pairs, func(a, b []*yaml.Node) int { return rank(a[0]) - rank(b[0]) })
	c := *n
	c.Content = slices.Concat(pairs...)
	return &c
}

// formatting is one pass over a text.
type formatting struct {
	*File
	lines   []textLine
	strange bool // written in a way that is left alone
}

// textLine is a line with what becomes of its indentation.
type textLine struct {
	indent  int  // new; of text that a line of its own begins
	known   bool // indent is set
	text    bool // it is in a scalar of several lines: the space at its end stays
	content int  // of a line of a block scalar: the width of the indentation, which is not part of the text
	block   bool // content is set
	gaps    []gap
	columns []column // that values begin at
}

// gap is space after a dash.
type gap struct{ at, length int }

// column is the first column of a value, before and after the change.
type column struct{ before, after int }

func format(data []byte, indent, order bool) ([]byte, bool) {
	f, err := Parse(data)
	if err != nil {
		return nil, false
	}
	w := &formatting{File: f, lines: make([]textLine, len(f.starts)+1)}
	for _, n := range f.Documents {
		if n != nil {
			w.node(n, 0, -1, -1)
		}
	}
	if w.strange && indent {
		return nil, false
	}
	if indent {
		w.comments()
	}
	out := w.write(indent)
	if order {
		return ordered(out)
	}
	return out, true
}

func (w *formatting) line(number int) *textLine { return &w.lines[number] }

// begins reports whether a node is the first on its line.
func (w *formatting) begins(n *yaml.Node) bool {
	line := w.File.line(n.Line)
	return len(line)-len(bytes.TrimLeft(line, " ")) == n.Column-1
}

// place sets the new column of a node, if it begins its line.
func (w *formatting) place(n *yaml.Node, to int) {
	l := w.line(n.Line)
	l.columns = append(l.columns, column{n.Column - 1, to})
	if w.begins(n) && !l.known {
		l.indent, l.known = to, true
	}
}

// node places a node at the column to. parent and newParent are the columns of the mapping or list that has it, before and
// after.
func (w *formatting) node(n *yaml.Node, to, parent, newParent int) {
	block := n.Style&yaml.FlowStyle == 0
	switch {
	case n.Kind == yaml.MappingNode && block:
		w.mapping(n, to)
	case n.Kind == yaml.SequenceNode && block:
		w.sequence(n, to)
	default:
		w.single(n, to, parent, newParent)
	}
}

func (w *formatting) mapping(n *yaml.Node, to int) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode && k.Kind != yaml.AliasNode || k.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
			w.strange = true // a key of several lines, after a question mark
			w.node(k, to+2, k.Column-1, to)
			w.node(v, to+2, k.Column-1, to)
			continue
		}
		own := k.Column - 1
		if end, err := w.end(k); err != nil || w.lineOf(end) != k.Line {
			w.strange = true
		}
		w.place(k, to)
		w.node(v, to+2, own, to)
	}
}

func (w *formatting) sequence(n *yaml.Node, to int) {
	own := n.Column - 1
	if n.Anchor != "" || n.Tag != "" && n.Style&yaml.TaggedStyle != 0 { // its place is that of the anchor or tag
		if len(n.Content) == 0 {
			return
		}
		dash := w.dashAbove(n.Content[0])
		if dash < 0 {
			w.strange = true
			return
		}
		own = dash
	}
	last := n.Line
	for _, item := range n.Content {
		line := w.dash(own, last, item.Line)
		if line == 0 {
			w.strange = true
			return
		}
		last = line
		l := w.line(line)
		l.columns = append(l.columns, column{own, to})
		text := w.File.line(line)
		if len(text)-len(bytes.TrimLeft(text, " ")) == own && !l.known {
			l.indent, l.known = to, true
		}
		if item.Line == line && item.Column-1 > own+1 {
			between := text[min(own+1, len(text)):min(item.Column-1, len(text))]
			if len(bytes.TrimLeft(between, " ")) > 0 { // a character of several bytes, or a tab
				w.strange = w.strange || len(bytes.TrimSpace(between)) > 0
			} else if len(between) > 1 && (item.Kind != yaml.ScalarNode || item.Value != "") {
				l.gaps = append(l.gaps, gap{own + 2, len(between) - 1})
			}
		}
		w.node(item, to+2, own, to)
		if end, err := w.end(item); err == nil {
			last = max(last, w.lineOf(end))
		}
	}
}

// dash returns the line between two lines, the later one first, that has a dash at a column; zero if there is none.
func (w *formatting) dash(at, from, to int) int {
	for number := to; number >= from; number-- {
		text := w.File.line(number)
		if at < len(text) && text[at] == '-' && (at+1 == len(text) || isSpace(text[at+1])) && len(bytes.Trim(text[:at], " -")) == 0 {
			return number
		}
	}
	return 0
}

// dashAbove returns the column of the dash before an item, on its line or on the nearest one above that has text; -1 if there
// is none.
func (w *formatting) dashAbove(item *yaml.Node) int {
	for number := item.Line; number > 0; number-- {
		text := bytes.TrimLeft(w.File.line(number), " ")
		switch {
		case len(text) == 0 || text[0] == '#':
		case text[0] == '-':
			return len(w.File.line(number)) - len(text)
		case number < item.Line:
			return -1
		}
	}
	return -1
}

// single places a scalar, an alias or a collection in brackets. Its further lines move with it.
func (w *formatting) single(n *yaml.Node, to, parent, newParent int) {
	at, err := w.start(n)
	if err != nil {
		w.strange = true
		return
	}
	if n.Kind == yaml.ScalarNode && n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		w.blockText(n, at, newParent)
		return
	}
	end, err := w.end(n)
	if err != nil {
		w.strange = true
		return
	}
	if n.Kind != yaml.ScalarNode || n.Value != "" || n.Style != 0 {
		w.place(n, to)
	}
	first, last := w.lineOf(at), w.lineOf(end)
	scalar := n.Kind == yaml.ScalarNode
	for number := n.Line; number <= last; number++ {
		l := w.line(number)
		l.text = l.text || scalar && number >= first && number < last
		if number == n.Line || l.known {
			continue
		}
		text := w.File.line(number)
		old := len(text) - len(bytes.TrimLeft(text, " "))
		least := max(newParent, 0)
		if scalar {
			least = newParent + 2
		}
		if parent < 0 {
			least = old
		}
		l.indent, l.known = max(least, old+newParent-parent), true
	}
}

// blockText places the lines of a block scalar two columns right of what has it, or as its indicator says.
func (w *formatting) blockText(n *yaml.Node, at, newParent int) {
	if w.begins(n) {
		w.place(n, max(newParent, 0)+2)
	}
	width, last := w.block(n, at)
	first := w.lineOf(at) + 1
	to := max(newParent, 0) + 2
	indicator, _, _ := strings.Cut(string(w.data[at:w.lineEnd(first-1)]), " ")
	for _, c := range indicator {
		if c >= '1' && c <= '9' {
			to = max(newParent, 0) + int(c-'0')
		}
	}
	if newParent < 0 {
		to = width
	}
	for number := first; number <= last; number++ {
		l := w.line(number)
		l.indent, l.known, l.text, l.block, l.content = to, true, true, true, width
	}
}

// comments places lines with nothing but a comment: with the value that follows in the same column, else with one before.
func (w *formatting) comments() {
	for number := 1; number <= len(w.starts); number++ {
		text := w.File.line(number)
		trimmed := bytes.TrimLeft(text, " \t")
		if w.lines[number].known || len(trimmed) == 0 || trimmed[0] != '#' {
			continue
		}
		old := len(text) - len(trimmed)
		next := w.next(number)
		w.lines[number].indent, w.lines[number].known = w.columnFor(number, next, old), true
	}
}

// next returns the line of the next value in the document; zero if there is none.
func (w *formatting) next(number int) int {
	for number++; number <= len(w.starts); number++ {
		if isMarker(w.File.line(number)) {
			return 0
		}
		if l := w.lines[number]; l.known && len(l.columns) > 0 {
			return number
		}
	}
	return 0
}

func (w *formatting) columnFor(number, next, old int) int {
	if next > 0 && w.lines[next].columns[0].before == old {
		return w.lines[next].indent
	}
	for above := number - 1; above > 0; above-- {
		if isMarker(w.File.line(above)) {
			break
		}
		for _, c := range w.lines[above].columns {
			if c.before == old {
				return c.after
			}
		}
	}
	if next > 0 {
		return w.lines[next].indent
	}
	return old
}

// write returns the lines with their new indentation, without space at their ends and with one blank line at most.
func (w *formatting) write(indent bool) []byte {
	var out bytes.Buffer
	out.Write(w.data[:w.starts[0]])
	blank := 0 // blank lines that may still be written
	began := false
	var pending []byte // the blank line
	for number := 1; number <= len(w.starts); number++ {
		l, text := w.lines[number], w.File.line(number)
		end := w.data[w.lineEnd(number):w.nextLine(number)]
		if number == len(w.starts) && len(text) == 0 {
			break
		}
		trimmed := bytes.TrimRight(text, " \t")
		if len(trimmed) == 0 && !l.text {
			if blank++; blank == 1 && began {
				pending = slices.Clone(end)
			}
			continue
		}
		if blank > 0 && began {
			out.Write(pending)
		}
		blank, began = 0, true
		out.Write(l.written(text, indent))
		if len(end) == 0 && !l.block { // a block scalar without a line break at its end has none in its value
			end = []byte(w.newline)
		}
		out.Write(end)
	}
	return out.Bytes()
}

// written returns a line as it is to be.
func (l textLine) written(text []byte, indent bool) []byte {
	if l.block {
		if !indent {
			return text
		}
		spaces := len(text) - len(bytes.TrimLeft(text, " "))
		if spaces == len(text) && spaces <= l.content {
			return nil
		}
		return append(bytes.Repeat([]byte(" "), l.indent), text[min(l.content, spaces):]...)
	}
	if !l.text {
		text = bytes.TrimRight(text, " \t")
	}
	if !indent || !l.known || len(bytes.TrimSpace(text)) == 0 {
		return text
	}
	old := len(text) - len(bytes.TrimLeft(text, " "))
	for _, g := range slices.Backward(l.gaps) {
		text = slices.Concat(text[:g.at], text[min(g.at+g.length, len(text)):])
	}
	rest := text[min(old, len(text)):]
	if bytes.HasPrefix(bytes.TrimLeft(rest, " \t"), []byte("#")) {
		rest = bytes.TrimLeft(rest, " \t")
	}
	return append(bytes.Repeat([]byte(" "), l.indent), rest...)
}

// ordered returns the text with the keys of each object's header in their order. Comments directly above a key move with it.
func ordered(data []byte) ([]byte, bool) {
	f, err := Parse(data)
	if err != nil {
		return nil, false
	}
	var splices []Splice
	for i, n := range f.Documents {
		if n == nil || n.Kind != yaml.MappingNode || n.Style&yaml.FlowStyle != 0 || n.Column != 1 || n.Anchor != "" {
			continue
		}
		if k, _ := Pair(n, "kind"); k == nil {
			continue
		}
		s, ok := f.orderedHeader(i)
		if !ok {
			return nil, false
		}
		splices = append(splices, s)
	}
	out, err := f.Splice(splices)
	return out, err == nil
}

// orderedHeader returns the keys of a document in their order, in place of those that there are.
func (f *File) orderedHeader(document int) (Splice, bool) {
	n := f.Documents[document]
	type section struct {
		key      *yaml.Node
		from, to int // lines, the last one not included
	}
	var sections []section
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		from := k.Line
		for i > 0 && from > 1 && strings.HasPrefix(string(f.line(from-1)), "#") {
			from--
		}
		if len(sections) > 0 {
			sections[len(sections)-1].to = from
		}
		sections = append(sections, section{key: k, from: from})
	}
	if len(sections) == 0 {
		return Splice{}, true
	}
	last := &sections[len(sections)-1]
	end, err := f.end(n)
	if err != nil {
		return Splice{}, false
	}
	last.to = f.lineOf(end) + 1
	from, to := f.starts[sections[0].from-1], f.nextLine(last.to-1)
	byRank := func(a, b section) int { return rank(a.key) - rank(b.key) }
	if slices.IsSortedFunc(sections, byRank) {
		return Splice{}, true
	}
	slices.SortStableFunc(sections, byRank)
	var out strings.Builder
	for _, s := range sections {
		for s.to-1 > s.from && len(bytes.TrimSpace(f.line(s.to-1))) == 0 {
			s.to-- // a blank line separates what no longer follows
		}
		text := string(f.data[f.starts[s.from-1]:f.nextLine(s.to-1)])
		out.WriteString(text)
		if !strings.HasSuffix(text, "\n") {
			out.WriteString(f.newline)
		}
	}
	text := out.String()
	if !bytes.HasSuffix(f.data[from:to], []byte("\n")) {
		text = strings.TrimSuffix(text, f.newline)
	}
	return Splice{from, to, text}, true
}
