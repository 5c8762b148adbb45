package yamltext

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// Set returns the text with another value at a path of a document. Keys that are missing are added at the end of their
// mapping. The value is a text, quoted if need be; with raw it is YAML of one line, such as [a, b], which must not refer
// to anchors.
func (f *File) Set(document int, path Path, value string, raw bool) ([]byte, error) {
	var parsed *yaml.Node
	if raw {
		one, err := Parse([]byte("- " + value))
		if err != nil || len(one.Documents) != 1 || one.Documents[0].Kind != yaml.SequenceNode || len(one.Documents[0].Content) != 1 || strings.ContainsAny(value, "\r\n") {
			return nil, &HardError{Text: "the value is not YAML of one line"}
		}
		parsed = one.Documents[0].Content[0]
	} else {
		parsed = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
	}
	e := &setting{file: f, value: value, raw: raw, parsed: parsed}
	e.want, e.copies = f.clone()
	at := f.Documents[document]
	if at == nil {
		return nil, &HardError{Text: "the document is empty"}
	}
	s, err := e.set(place{node: at, indent: -1}, path)
	if err != nil {
		return nil, err
	}
	data, err := f.Splice([]Splice{s})
	if err != nil {
		return nil, err
	}
	return data, expected(data, e.want)
}

// Append returns the text with one more item in a list of a document, which is YAML of one line. A list that is missing is made.
func (f *File) Append(document int, path Path, value string) ([]byte, error) {
	list := f.Find(document, path)
	if list == nil || list.ShortTag() == "!!null" {
		return f.Set(document, path, "["+value+"]", true)
	}
	if list.Kind != yaml.SequenceNode || len(list.Content) == 0 || list.Anchor != "" {
		return nil, hard(list, "%s is no list that an item can be added to", path)
	}
	one, err := Parse([]byte("- " + value))
	if err != nil || len(one.Documents) != 1 || len(one.Documents[0].Content) != 1 || strings.ContainsAny(value, "\r\n") {
		return nil, &HardError{Text: "the value is not YAML of one line"}
	}
	want, copies := f.clone()
	copies[list].Content = append(copies[list].Content, one.Documents[0].Content[0])
	last := list.Content[len(list.Content)-1]
	end, err := f.end(last)
	if err != nil {
		return nil, err
	}
	s := Splice{end, end, ", " + value}
	if list.Style&yaml.FlowStyle == 0 {
		line := f.lineOf(end)
		to := f.nextLine(line)
		s = Splice{to, to, strings.Repeat(" ", list.Column-1) + "- " + value + f.newline}
		if to == f.lineEnd(line) { // the file ends without a line break
			s.Text = f.newline + strings.TrimSuffix(s.Text, f.newline)
		}
	}
	data, err := f.Splice([]Splice{s})
	if err != nil {
		return nil, err
	}
	return data, expected(data, want)
}

// setting is one Set.
type setting struct {
	file   *File
	value  string
	raw    bool
	parsed *yaml.Node
	want   []*yaml.Node
	copies map[*yaml.Node]*yaml.Node
}

// text returns the value as it is written.
func (e *setting) text(style yaml.Style, flow bool) string {
	if e.raw {
		return e.value
	}
	return Scalar(e.value, style, flow)
}

func (e *setting) set(at place, path Path) (Splice, error) {
	n := at.node
	if n.Kind == yaml.AliasNode {
		return Splice{}, hard(n, "it is the alias *%s: change what the anchor stands for, or write the value in its place", n.Value)
	}
	if len(path) == 0 {
		return e.replace(at, nil)
	}
	flow := at.flow || n.Style&yaml.FlowStyle != 0
	step := path[0]
	if step.Item {
		v, err := item(n, step)
		if err != nil {
			return Splice{}, err
		}
		return e.set(place{v, n.Column - 1, flow}, path[1:])
	}
	if n.Kind != yaml.MappingNode {
		return Splice{}, hard(n, "there is no mapping that could have the key %s", step.Key)
	}
	k, v := Pair(n, step.Key)
	switch {
	case k == nil:
		return e.insert(at, path)
	case v.Kind == yaml.AliasNode && len(path) == 1:
		return e.replace(place{v, n.Column - 1, flow}, k)
	case v.Kind == yaml.ScalarNode && v.ShortTag() == "!!null":
		return e.fill(place{v, n.Column - 1, flow}, k, path[1:])
	case len(path) == 1:
		return e.replace(place{v, n.Column - 1, flow}, k)
	}
	return e.set(place{v, n.Column - 1, flow}, path[1:])
}

// replace gives a node the value. key is its key in a mapping; nil for an item of a list.
func (e *setting) replace(at place, key *yaml.Node) (Splice, error) {
	n := at.node
	from, err := e.file.start(n)
	if err != nil {
		return Splice{}, err
	}
	to, err := e.file.end(n)
	if err != nil {
		return Splice{}, err
	}
	if n.Anchor != "" {
		if err := onlyUsers(n, e.file.aliases()[n], nil); err != nil {
			return Splice{}, err
		}
	}
	c := e.copies[n]
	anchor := c.Anchor
	if n.Kind == yaml.AliasNode {
		anchor = ""
	}
	*c = *e.parsed
	c.Anchor = anchor
	if block := n.Kind != yaml.ScalarNode && n.Kind != yaml.AliasNode && n.Style&yaml.FlowStyle == 0; block {
		if key == nil {
			return Splice{}, hard(n, "it is an item of a list, and more than a single value")
		}
		if from, err = e.file.colon(key); err != nil {
			return Splice{}, err
		}
		c.Anchor = ""
		return Splice{from, to, " " + e.text(0, at.flow)}, nil
	}
	style, comment := n.Style, ""
	if n.Kind == yaml.AliasNode {
		style = 0
	} else if isBlock(n) {
		style, comment = 0, e.file.blockComment(from)
	}
	return Splice{from, to, e.text(style, at.flow) + comment}, nil
}

// colon returns the offset after the colon of a key.
func (f *File) colon(key *yaml.Node) (int, error) {
	at, err := f.end(key)
	if err != nil {
		return 0, err
	}
	for at < len(f.data) && (f.data[at] == ' ' || f.data[at] == '\t') {
		at++
	}
	if at == len(f.data) || f.data[at] != ':' {
		return 0, hard(key, "there is no colon after the key")
	}
	return at + 1, nil
}

// fill gives a key that has no value one.
func (e *setting) fill(at place, key *yaml.Node, path Path) (Splice, error) {
	from, err := e.file.colon(key)
	if err != nil {
		return Splice{}, err
	}
	to := from
	if at.node.Value != "" { // null is written
		if to, err = e.file.end(at.node); err != nil {
			return Splice{}, err
		}
	}
	*e.copies[at.node] = *e.nested(path)
	if len(path) == 0 || at.flow || to > from {
		return Splice{from, to, " " + e.inline(path)}, nil
	}
	line := e.file.lineOf(from)
	end := e.file.lineEnd(line)
	return Splice{end, end, e.file.newline + strings.TrimSuffix(e.lines(path, at.indent+2), e.file.newline)}, nil
}

// insert adds the first key of path, with the rest below it, to a mapping.
func (e *setting) insert(at place, path Path) (Splice, error) {
	n := at.node
	key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: path[0].Key}
	value := e.nested(path[1:])
	c := e.copies[n]
	if n.Style&yaml.FlowStyle != 0 {
		from, err := e.file.start(n)
		if err != nil {
			return Splice{}, err
		}
		from++ // the bracket
		text := e.pair(path)
		if len(n.Content) > 0 {
			text += ", "
		}
		c.Content = append([]*yaml.Node{key, value}, c.Content...)
		return Splice{from, from, text}, nil
	}
	if len(n.Content) == 0 {
		return Splice{}, hard(n, "the mapping is empty")
	}
	c.Content = append(c.Content, key, value)
	end, err := e.file.end(n)
	if err != nil {
		return Splice{}, err
	}
	line := e.file.lineOf(end)
	text := e.lines(path, n.Column-1)
	to := e.file.nextLine(line)
	if to == e.file.lineEnd(line) { // the file ends without a line break
		return Splice{to, to, e.file.newline + strings.TrimSuffix(text, e.file.newline)}, nil
	}
	return Splice{to, to, text}, nil
}

// nested returns the value inside the mappings of path.
func (e *setting) nested(path Path) *yaml.Node {
	if len(path) == 0 {
		c := *e.parsed
		return &c
	}
	return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{{Kind: yaml.ScalarNode, Tag: "!!str", Value: path[0].Key}, e.nested(path[1:])}}
}

// lines returns the keys of path, each on a line of its own, and the value.
func (e *setting) lines(path Path, indent int) string {
	var b strings.Builder
	for i, s := range path {
		b.WriteString(strings.Repeat(" ", indent+2*i) + Scalar(s.Key, 0, false) + ":")
		if i == len(path)-1 {
			b.WriteString(" " + e.text(0, false))
		}
		b.WriteString(e.file.newline)
	}
	return b.String()
}

// pair returns the first key of path with its value, between brackets.
func (e *setting) pair(path Path) string {
	key := Scalar(path[0].Key, 0, true)
	if e.file.isJSON() {
		key = doubleQuoted(path[0].Key)
	}
	return key + ": " + e.inline(path[1:])
}

func (e *setting) inline(path Path) string {
	if len(path) == 0 {
		style := yaml.Style(0)
		if e.file.isJSON() {
			style = yaml.DoubleQuotedStyle
		}
		return e.text(style, true)
	}
	return "{" + e.pair(path) + "}"
}

// isJSON reports whether the file is JSON, or looks like it.
func (f *File) isJSON() bool {
	return strings.HasPrefix(strings.TrimSpace(strings.TrimPrefix(string(f.data), byteOrderMark)), `{"`) || strings.HasPrefix(strings.Join(strings.Fields(string(f.data[:min(len(f.data), 100)])), ""), `{"`)
}

// Unset returns the text without the key at a path of a document, and without the comments beside its value.
func (f *File) Unset(document int, path Path) ([]byte, error) {
	at := place{node: f.Documents[document], indent: -1}
	if at.node == nil {
		return nil, &HardError{Text: "the document is empty"}
	}
	for i, step := range path {
		n := at.node
		if n.Kind == yaml.AliasNode {
			return nil, hard(n, "it is the alias *%s: change what the anchor stands for", n.Value)
		}
		last := i == len(path)-1
		if step.Item {
			v, err := item(n, step)
			if err == nil && last {
				err = hard(v, "items of lists are removed by hand")
			}
			if err != nil {
				return nil, err
			}
			at = place{v, n.Column - 1, at.flow || n.Style&yaml.FlowStyle != 0}
			continue
		}
		k, v := Pair(n, step.Key)
		if k == nil {
			return nil, hard(n, "there is no key %s", path[:i+1])
		}
		if last {
			return f.unset(at, k, v)
		}
		at = place{v, n.Column - 1, at.flow || n.Style&yaml.FlowStyle != 0}
	}
	return nil, &HardError{Text: "the path is empty"}
}

// unset removes a pair of the mapping at.
func (f *File) unset(at place, k, v *yaml.Node) ([]byte, error) {
	n := at.node
	from, err := f.Offset(k)
	if err != nil {
		return nil, err
	}
	to, err := f.end(v)
	if err != nil {
		return nil, err
	}
	if colon, err := f.colon(k); err == nil {
		to = max(to, colon)
	}
	want, copies := f.clone()
	c := copies[n]
	index := 0
	for i := 0; i < len(c.Content); i += 2 {
		if n.Content[i] == k {
			index = i
		}
	}
	c.Content = append(c.Content[:index:index], c.Content[index+2:]...)
	switch first := index == 0; {
	case n.Style&yaml.FlowStyle != 0 && !first:
		if from, err = f.end(n.Content[index-1]); err != nil {
			return nil, err
		}
	case n.Style&yaml.FlowStyle != 0 && len(c.Content) > 0:
		if to, err = f.Offset(n.Content[2]); err != nil {
			return nil, err
		}
	case n.Style&yaml.FlowStyle != 0:
	default:
		if len(c.Content) == 0 {
			*c = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Anchor: c.Anchor}
		}
		line := f.lineOf(from)
		if strings.TrimSpace(string(f.data[f.starts[line-1]:from])) != "" {
			return nil, hard(k, "it is the first key of an item of a list")
		}
		from, to = f.starts[line-1], f.nextLine(f.lineOf(to))
	}
	data, err := f.Splice([]Splice{{from, to, ""}})
	if err != nil {
		return nil, err
	}
	return data, expected(data, want)
}

// Remove returns the text without a document, and nil if no other document has anything. Comments directly above the
// document's first line go with it.
func (f *File) Remove(document int) ([]byte, error) {
	var want []*yaml.Node
	left := false
	for i, n := range f.Documents {
		if i != document {
			want, left = append(want, n), left || n != nil
		}
	}
	if !left {
		return nil, nil
	}
	from, to := f.extent(document)
	data, err := f.Splice([]Splice{{from, to, ""}})
	if err != nil {
		return nil, err
	}
	if err := expected(data, want); err == nil {
		return data, nil
	}
	return data, sameObjects(data, want)
}

// sameObjects compares the documents that hold anything: comments that stay may be an empty document of their own.
func sameObjects(data []byte, want []*yaml.Node) error {
	got, err := Parse(data)
	if err != nil {
		return expected(data, want)
	}
	filled := func(all []*yaml.Node) (filled []*yaml.Node) {
		for _, n := range all {
			if n != nil && n.ShortTag() != "!!null" {
				filled = append(filled, n)
			}
		}
		return filled
	}
	one, other := filled(got.Documents), filled(want)
	if len(one) != len(other) {
		return &HardError{Text: "the change would change the number of documents"}
	}
	for i := range one {
		if at := difference(one[i], other[i]); at != nil {
			return hard(at, "the change would change other values as well")
		}
	}
	return nil
}

// extent returns the bytes of a document with one of the markers around it.
func (f *File) extent(document int) (from, to int) {
	first := f.Documents[document].Line
	marker := 0 // the line of the marker before it; zero if there is none
	for line := first; line > 0; line-- {
		if isMarker(f.line(line)) {
			marker = line
			break
		}
	}
	next := 0 // the line of the marker after it
	for line := max(first, marker+1); line <= len(f.starts); line++ {
		if line > marker && isMarker(f.line(line)) && line != marker {
			next = line
			break
		}
	}
	begin := first
	for begin > marker+1 && strings.HasPrefix(strings.TrimSpace(string(f.line(begin-1))), "#") {
		begin--
	}
	apart := false // a comment that is not about this object alone
	for line := marker + 1; line < begin; line++ {
		apart = apart || strings.TrimSpace(string(f.line(line))) != ""
	}
	end := len(f.data)
	if next > 0 {
		end = f.starts[next-1]
	}
	switch {
	case marker > 0 && !apart && (next > 0 || isDocumentStart(f.line(marker))):
		return f.starts[marker-1], end
	case marker == 0 && !apart && next > 0 && isDocumentStart(f.line(next)):
		return f.starts[0], f.nextLine(next)
	default:
		return f.starts[begin-1], end
	}
}

func isDocumentStart(line []byte) bool { return strings.HasPrefix(string(line), "---") }

// Extent returns the bytes of a document between the markers around it.
func (f *File) Extent(document int) (from, to int) {
	line := 1
	if n := f.Documents[document]; n != nil {
		line = n.Line
	}
	from, to = f.starts[0], len(f.data)
	for number := line; number > 0; number-- {
		if isMarker(f.line(number)) {
			from = f.nextLine(number)
			break
		}
	}
	for number := line; number <= len(f.starts); number++ {
		if f.starts[number-1] >= from && isMarker(f.line(number)) {
			to = f.starts[number-1]
			break
		}
	}
	return from, to
}

// Newline returns the line break that the file has first.
func (f *File) Newline() string { return f.newline }
