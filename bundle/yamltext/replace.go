package yamltext

import (
	"cmp"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Value takes the place of a scalar.
type Value struct {
	Text string
	// Tag is !!str if it is empty. Another one is that of a number or boolean, whose Text is written without quotes.
	Tag string
}

// Replace returns the text with other values for scalars, which may be keys. A scalar keeps its quotes. An alias becomes the
// value itself, unless the scalar with its anchor gets the same value. A scalar whose anchor others use, which are to
// keep their value, is refused.
func (f *File) Replace(values map[*yaml.Node]string) ([]byte, error) {
	all := make(map[*yaml.Node]Value, len(values))
	for n, text := range values {
		all[n] = Value{Text: text}
	}
	return f.replace(all)
}

// Rewrite returns the text with other values for those scalars for which change returns true. Change gets each string
// that is the value of a key or an item, and no keys; an error of it ends the work. An alias follows its anchor. A scalar
// keeps its quotes, if the new text can have them, and gets some if it needs them; text of a block scalar is written
// between quotes, on one line.
func (f *File) Rewrite(change func(n *yaml.Node) (Value, bool, error)) ([]byte, error) {
	values := map[*yaml.Node]Value{}
	var visit func(n *yaml.Node) error
	visit = func(n *yaml.Node) error {
		if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" {
			v, ok, err := change(n)
			if ok {
				values[n] = v
			}
			return err
		}
		for i, child := range n.Content {
			if n.Kind == yaml.MappingNode && i%2 == 0 && child.Kind == yaml.ScalarNode {
				continue
			}
			if err := visit(child); err != nil {
				return err
			}
		}
		return nil
	}
	for _, n := range f.Documents {
		if n == nil {
			continue
		}
		if err := visit(n); err != nil {
			return nil, err
		}
	}
	if len(values) == 0 {
		return f.data, nil
	}
	for _, n := range f.nodes() {
		if v, ok := values[n.node.Alias]; ok && n.node.Kind == yaml.AliasNode {
			values[n.node] = v
		}
	}
	return f.replace(values)
}

func (f *File) replace(values map[*yaml.Node]Value) ([]byte, error) {
	want, copies := f.clone()
	var splices []Splice
	aliases := f.aliases()
	for _, n := range f.nodes() {
		value, ok := values[n.node]
		if !ok {
			continue
		}
		if n.node.Kind == yaml.AliasNode {
			if same, ok := values[n.node.Alias]; ok && same == value {
				continue // it follows
			}
		}
		if err := onlyUsers(n.node, aliases[n.node], values); err != nil {
			return nil, err
		}
		s, err := f.replacement(n, value)
		if err != nil {
			return nil, err
		}
		splices = append(splices, s)
		c := copies[n.node]
		*c = yaml.Node{Kind: yaml.ScalarNode, Tag: cmp.Or(value.Tag, "!!str"), Value: value.Text, Anchor: c.Anchor}
		if n.node.Kind == yaml.AliasNode {
			c.Anchor = ""
		}
	}
	data, err := f.Splice(splices)
	if err != nil {
		return nil, err
	}
	return data, expected(data, want)
}

// place is a node with what has it.
type place struct {
	node   *yaml.Node
	indent int  // of the mapping or list, counted from 0
	flow   bool // between brackets
}

// nodes lists all nodes in their order.
func (f *File) nodes() []place {
	var all []place
	var visit func(p place)
	visit = func(p place) {
		all = append(all, p)
		for _, child := range p.node.Content {
			visit(place{child, p.node.Column - 1, p.flow || p.node.Style&yaml.FlowStyle != 0})
		}
	}
	for _, n := range f.Documents {
		if n != nil {
			visit(place{node: n, indent: -1})
		}
	}
	return all
}

// aliases lists the aliases of the nodes that have some.
func (f *File) aliases() map[*yaml.Node][]*yaml.Node {
	all := map[*yaml.Node][]*yaml.Node{}
	for _, n := range f.nodes() {
		if n.node.Kind == yaml.AliasNode {
			all[n.node.Alias] = append(all[n.node.Alias], n.node)
		}
	}
	return all
}

// onlyUsers returns an error if another value than those that are replaced comes from n by its anchor.
func onlyUsers(n *yaml.Node, aliases []*yaml.Node, values map[*yaml.Node]Value) error {
	for _, other := range aliases {
		if value, ok := values[other]; !ok || value != values[n] {
			return hard(n, "it has the anchor &%s, which line %d uses as well", n.Anchor, other.Line)
		}
	}
	return nil
}

func (f *File) replacement(p place, value Value) (Splice, error) {
	n := p.node
	from, err := f.start(n)
	if err != nil {
		return Splice{}, err
	}
	to, err := f.end(n)
	if err != nil {
		return Splice{}, err
	}
	if n.Kind != yaml.AliasNode && n.Kind != yaml.ScalarNode {
		return Splice{}, hard(n, "it is not a single value")
	}
	style, comment := n.Style, ""
	if isBlock(n) {
		if breakLength(f.data[to:]) == 0 && to < len(f.data) {
			return Splice{}, hard(n, "it is a text of several lines")
		}
		style, comment = 0, f.blockComment(from)
	}
	if value.Tag != "" && value.Tag != "!!str" {
		return Splice{from, to, value.Text + comment}, nil
	}
	return Splice{from, to, Scalar(value.Text, style, p.flow) + comment}, nil
}

// isBlock reports whether a node is a block scalar.
func isBlock(n *yaml.Node) bool { return n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 }

// Written is a scalar or an alias as a file has it, without its anchor and tag.
type Written struct {
	From, To int
	// Comment is what the first line of a block scalar ends with, with the space before it.
	Comment string
}

// Written returns where a scalar or an alias is. The error is a *HardError if the text there, parsed by itself, has another value.
func (f *File) Written(n *yaml.Node) (w Written, err error) {
	if n.Kind != yaml.AliasNode && n.Kind != yaml.ScalarNode {
		return w, hard(n, "it is not a single value")
	}
	if w.From, err = f.start(n); err != nil {
		return w, err
	}
	if w.To, err = f.end(n); err != nil {
		return w, err
	}
	text := string(f.data[w.From:min(w.To, len(f.data))])
	switch {
	case n.Kind == yaml.AliasNode:
		if text == "*"+n.Value {
			return w, nil
		}
	case isBlock(n):
		w.Comment = f.blockComment(w.From)
		// The number that an indicator may have counts from the indentation of the parent, which is not there.
		head := len(f.indicator(w.From))
		text = strings.Map(func(r rune) rune {
			if '0' <= r && r <= '9' {
				return -1
			}
			return r
		}, text[:head]) + text[head:]
		fallthrough
	default:
		var parsed yaml.Node
		if yaml.Unmarshal([]byte(text), &parsed) == nil && len(parsed.Content) == 1 && parsed.Content[0].Kind == yaml.ScalarNode && parsed.Content[0].Value == n.Value {
			return w, nil
		}
	}
	return w, hard(n, "the end of this text is not found")
}

// blockComment returns what follows the indicator of the block scalar at an offset on its line.
func (f *File) blockComment(at int) string {
	line := f.data[at:f.lineEnd(f.lineOf(at))]
	return strings.TrimRight(string(line[len(f.indicator(at)):]), " \t")
}

// Scalar returns value as YAML, with the quotes of style, or with as few as it needs.
func Scalar(value string, style yaml.Style, flow bool) string {
	printable := !strings.ContainsFunc(value, escaped)
	switch {
	case style&yaml.SingleQuotedStyle != 0 && printable:
		return "'" + strings.ReplaceAll(value, "'", "''") + "'"
	case style&yaml.DoubleQuotedStyle == 0 && printable && isPlain(value, flow):
		return value
	default:
		return doubleQuoted(value)
	}
}

// escaped reports whether a character cannot stand in a text as it is, or would end a line.
func escaped(r rune) bool {
	return r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff || r == 0xfffe || r == 0xffff
}

func doubleQuoted(value string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range value {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case escaped(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// oldWords are words that YAML 1.1 reads as booleans or nothing, in lower case.
var oldWords = map[string]bool{"y": true, "n": true, "yes": true, "no": true, "on": true, "off": true, "true": true, "false": true, "null": true, "~": true}

// isPlain reports whether a text needs no quotes: it is the same text for YAML 1.1 and 1.2, between brackets and elsewhere.
func isPlain(value string, flow bool) bool {
	if value == "" || oldWords[strings.ToLower(value)] || strings.TrimSpace(value) != value {
		return false
	}
	if first := value[0]; first >= '0' && first <= '9' || first == '+' || first == '-' || first == '.' && !strings.HasPrefix(value, "./") && !strings.HasPrefix(value, "../") {
		return false // it may be a number to one or the other
	}
	text := "- " + value
	if flow {
		text = "[" + value + "]"
	}
	var got []yaml.Node
	err := yaml.Unmarshal([]byte(text), &got)
	return err == nil && len(got) == 1 && got[0].Kind == yaml.ScalarNode && got[0].ShortTag() == "!!str" && got[0].Value == value && got[0].Anchor == "" && got[0].Style == 0 &&
		got[0].LineComment == "" && got[0].FootComment == ""
}
