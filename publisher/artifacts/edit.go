package artifacts

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/bundle/yamltext"
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
	if value := rawField(mapping, key); value != nil {
		return replaceValue(value, "", "")
	}
	return insertKey(mapping, keyNode(mapping, before), key)
}

// replaceValue replaces a scalar, or an alias of one, by before, the new value and after.
func replaceValue(value *yaml.Node, before, after string) *edit {
	if scalar := resolved(value); scalar.Kind != yaml.ScalarNode || value.Style&yaml.TaggedStyle != 0 && value.ShortTag() != "!!str" {
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
		if isKey(mapping.Content[i], key) {
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
	if w.at.Line < 1 || w.at.Line > len(starts) {
		return splice{}, errNotInPlace
	}
	from := yamltext.Offset(data, starts, w.at)
	if from == len(data) {
		return splice{}, errNotInPlace
	}
	s := splice{from, from, w.before + w.value + w.after}
	if w.replace {
		at, ok := writtenAt(data, from, w.at)
		quote := at.quote
		if quote == "" && (at.folded || w.before == "") { // 1.10 is a number
			quote = `"`
		}
		if !ok || quote != "" && strings.ContainsAny(s.text, "\"'\\\n") { // what needs an escape is no version, and no image
			return s, errNotInPlace
		}
		s = splice{at.from, at.to, quote + s.text + quote + at.comment}
	}
	return s, nil
}

// applyWrites returns data with all writes done.
func applyWrites(data []byte, writes []write) ([]byte, error) {
	starts := yamltext.LineStarts(data)
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
