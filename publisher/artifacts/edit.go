package artifacts

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// edit is a place in a rendered file where something exact is written. All other bytes of the file stay
// as the template wrote them.
type edit struct {
	at *yaml.Node
	// replace is true where the scalar at this place goes; else the text is written before it.
	replace bool
	// before and after enclose the written value.
	before, after string
}

// insertRef writes a key into a source's ref, which it adds to the source's spec if it is missing.
func insertRef(spec, ref *yaml.Node, key string) *edit {
	switch {
	case ref != nil:
		return insertKey(ref, firstKey(ref), key)
	case spec == nil:
		return nil
	}
	e := insertKey(spec, firstKey(spec), "ref")
	if e != nil {
		quote := strings.IndexByte(e.before, ' ') + 1
		e.before = e.before[:quote] + `{"` + key + `": "`
		e.after = `"}` + e.after[1:]
	}
	return e
}

// replaceOrInsert replaces the value of a key, or writes the key before another.
func replaceOrInsert(mapping *yaml.Node, key, before string) *edit {
	if value := field(mapping, key); value != nil {
		return replaceValue(value, "", "")
	}
	return insertKey(mapping, keyNode(mapping, before), key)
}

// replaceValue replaces a scalar by before, the new value and after.
func replaceValue(value *yaml.Node, before, after string) *edit {
	if value.Kind != yaml.ScalarNode || value.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return nil
	}
	return &edit{at: value, replace: true, before: before, after: after}
}

// insertKey writes a key of mapping in front of the existing key before.
func insertKey(mapping, before *yaml.Node, key string) *edit {
	switch {
	case before == nil:
		return nil
	case mapping.Style&yaml.FlowStyle != 0: // as JSON would have it, since it may be JSON
		return &edit{at: before, before: `"` + key + `": "`, after: `", `}
	}
	return &edit{at: before, before: key + `: "`, after: "\"\n" + strings.Repeat(" ", before.Column-1)}
}

func firstKey(mapping *yaml.Node) *yaml.Node {
	if mapping.Kind != yaml.MappingNode || len(mapping.Content) == 0 {
		return nil
	}
	return mapping.Content[0]
}

func keyNode(mapping *yaml.Node, key string) *yaml.Node {
	if mapping = resolved(mapping); mapping == nil || mapping.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i]
		}
	}
	return nil
}

// write is an edit with its value.
type write struct {
	*edit
	value string
}

// errNotInPlace is returned for text that cannot be replaced in place.
var errNotInPlace = errors.New("is not written in a way that can be replaced in place")

// splice is a text in place of some bytes of a file.
type splice struct {
	from, to int
	text     string
}

// spliceOf returns the bytes that a write replaces in data, whose lines begin at starts.
func spliceOf(data []byte, starts []int, w write) (splice, error) {
	from, ok := offset(data, starts, w.at)
	if !ok {
		return splice{}, errNotInPlace
	}
	s := splice{from, from, w.before + w.value + w.after}
	if w.replace {
		quote, length, ok := token(data[from:], w.at)
		if !ok {
			return s, errNotInPlace
		}
		if quote == "" && w.before == "" { // 1.10 is a number
			quote = `"`
		}
		s.to, s.text = from+length, quote+s.text+quote
	}
	return s, nil
}

// applyWrites returns data with all writes done.
func applyWrites(data []byte, writes []write) ([]byte, error) {
	starts := lineStarts(data)
	splices := make([]splice, len(writes))
	for i, w := range writes {
		var err error
		if splices[i], err = spliceOf(data, starts, w); err != nil {
			return nil, err
		}
	}
	return applySplices(data, splices)
}

// applySplices returns data with all splices done.
func applySplices(data []byte, splices []splice) ([]byte, error) {
	slices.SortStableFunc(splices, func(a, b splice) int { return cmp.Compare(a.from, b.from) })
	var out bytes.Buffer
	last := 0
	for i, s := range splices {
		if i > 0 && s == splices[i-1] {
			continue // an anchor that several objects share
		}
		if s.from < last || i > 0 && s.from == splices[i-1].from {
			return nil, errNotInPlace
		}
		out.Write(data[last:s.from])
		out.WriteString(s.text)
		last = s.to
	}
	out.Write(data[last:])
	return out.Bytes(), nil
}

func lineStarts(data []byte) []int {
	starts := []int{0}
	for i, b := range data {
		if b == '\n' {
			starts = append(starts, i+1)
		}
	}
	return starts
}

// offset is where a node begins. YAML counts columns in characters.
func offset(data []byte, starts []int, n *yaml.Node) (int, bool) {
	if n.Line < 1 || n.Line > len(starts) {
		return 0, false
	}
	at, column := starts[n.Line-1], 1
	line, _, _ := bytes.Cut(data[at:], []byte("\n"))
	for i := range string(line) {
		if column == n.Column {
			return at + i, true
		}
		column++
	}
	return 0, false
}

// token measures the scalar that data begins with, and says how it is quoted.
func token(data []byte, n *yaml.Node) (quote string, length int, ok bool) {
	switch {
	case bytes.HasPrefix(data, []byte(n.Value)) && n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0:
		return "", len(n.Value), n.Value != ""
	case n.Style&yaml.SingleQuotedStyle != 0:
		quote = "'"
	case n.Style&yaml.DoubleQuotedStyle != 0:
		quote = `"`
	default:
		return "", 0, false
	}
	whole := quote + n.Value + quote // what needs an escape is no version, and no image
	return quote, len(whole), bytes.HasPrefix(data, []byte(whole))
}
