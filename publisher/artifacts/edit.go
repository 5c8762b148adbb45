package artifacts

import (
	"errors"
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

// spliceOf returns the splice that does a write in a file.
func spliceOf(f *yamltext.File, w write) (yamltext.Splice, error) {
	text := w.before + w.value + w.after
	at, err := f.Written(w.at)
	if err != nil {
		return yamltext.Splice{}, errNotInPlace
	}
	if !w.replace {
		from, err := f.Offset(w.at)
		return yamltext.Splice{From: from, To: from, Text: text}, err
	}
	quote := ""
	switch {
	case w.at.Style&yaml.SingleQuotedStyle != 0:
		quote = "'"
	case w.at.Kind == yaml.AliasNode || w.at.Style&(yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 || w.before == "": // 1.10 is a number
		quote = `"`
	}
	if quote != "" && strings.ContainsAny(text, "\"'\\\n") { // what needs an escape is no version, and no image
		return yamltext.Splice{}, errNotInPlace
	}
	return yamltext.Splice{From: at.From, To: at.To, Text: quote + text + quote + at.Comment}, nil
}

// applyWrites returns data with all writes done.
func applyWrites(data []byte, writes []write) ([]byte, error) {
	if len(writes) == 0 {
		return data, nil
	}
	f := yamltext.Open(data)
	splices := make([]yamltext.Splice, len(writes))
	for i, w := range writes {
		var err error
		if splices[i], err = spliceOf(f, w); err != nil {
			return nil, err
		}
	}
	data, err := f.Splice(splices)
	if err != nil {
		return nil, errNotInPlace
	}
	return data, nil
}
