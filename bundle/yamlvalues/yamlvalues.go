// Package yamlvalues reads YAML from others at a cost that grows no faster than its length.
//
// The parser's own conversion into values compares each key of a mapping with each other one, and counts what aliases
// stand for in values, whatever their length. Begin with [Size], which tells before anything is decoded how much a text
// holds with its aliases expanded, or with [NewDecoder], which refuses too large documents and keys that are there twice.
package yamlvalues

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"

	"go.yaml.in/yaml/v3"
)

// MaxBytes bounds the Size of one document for a Decoder. An API server takes 3 MiB for one object.
const MaxBytes = 16 << 20

// ErrTooLarge is returned for a document with more bytes than allowed, once its aliases are expanded.
var ErrTooLarge = errors.New("too large")

// Costs of a text, in bytes. A decoded text takes up to ten times as much memory.
const (
	valueBytes  = 32 // a value, beside its text
	escapeBytes = 5  // a character that JSON writes with six, beside its own byte
)

// Size returns the size of a text of YAML or JSON in bytes, with each alias counted as what it stands for. Each value
// counts some bytes beside its text, so that the memory for decoding is proportional to the size. A text that may have
// aliases is parsed for that, if it has at most limit bytes without them; the result is larger than limit, or the exact
// size. The error is the parser's.
func Size(data []byte, limit int64) (int64, error) {
	size := int64(len(data))
	for i, c := range data {
		switch c {
		case ',', ':', '[', '{', '?', '\n', '\r':
			size += valueBytes
		case '-': // of an item
			if i+1 == len(data) || data[i+1] <= ' ' {
				size += valueBytes
			}
		case '<', '>', '&', '\\':
			size += escapeBytes
		}
	}
	if size > limit || bytes.IndexByte(data, '&') < 0 || bytes.IndexByte(data, '*') < 0 {
		return size, nil
	}
	for documents := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var n yaml.Node
		if err := documents.Decode(&n); errors.Is(err, io.EOF) {
			return size, nil
		} else if err != nil {
			return size, err
		}
		m := measure{full: map[*yaml.Node]int64{}}
		m.of(&n)
		if m.endless != "" {
			return size, fmt.Errorf("anchor '%s' value contains itself", m.endless)
		}
		if size = add(size, m.expanded); size > limit {
			return size, nil
		}
	}
}

// measure adds up what the aliases of a document stand for.
type measure struct {
	full     map[*yaml.Node]int64 // the size of nodes with an anchor; -1 while it is not known
	expanded int64
	endless  string // an anchor within its own value
}

// of returns the size of a node with its aliases expanded.
func (m *measure) of(n *yaml.Node) int64 {
	if n.Kind == yaml.AliasNode {
		size, ok := m.full[n.Alias]
		if !ok || size < 0 {
			m.endless = n.Value
			return 0
		}
		m.expanded = add(m.expanded, size)
		return size
	}
	if n.Anchor != "" {
		m.full[n] = -1
	}
	size := int64(len(n.Value)+len(n.Tag)) + 2*valueBytes
	for _, c := range []byte(n.Value) {
		if c < ' ' || c == '<' || c == '>' || c == '&' {
			size += escapeBytes
		}
	}
	for _, child := range n.Content {
		size = add(size, m.of(child))
	}
	if n.Anchor != "" {
		m.full[n] = size
	}
	return size
}

func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Decoder reads the documents of a text.
type Decoder struct {
	documents *yaml.Decoder
	limit     int64
	err       error
}

// NewDecoder returns a Decoder of a text whose Size is at most MaxBytes.
func NewDecoder(data []byte) *Decoder {
	d := &Decoder{documents: yaml.NewDecoder(bytes.NewReader(data))}
	size, err := Size(data, MaxBytes)
	if err == nil && size > MaxBytes {
		d.err = fmt.Errorf("%w: more than %d bytes, with each alias counted as what it stands for", ErrTooLarge, MaxBytes)
	}
	return d
}

// Decode reads the next document into a value as encoding/json does, with its tags: with an error that wraps
// [json.UnmarshalTypeError], only fields of a wrong type are missing. The error is io.EOF after the last document.
func (d *Decoder) Decode(into any) error {
	if d.err != nil {
		return d.err
	}
	var n yaml.Node
	if err := d.documents.Decode(&n); err != nil {
		d.err = err
		return err
	}
	value, err := Of(&n)
	if err != nil {
		return err
	}
	switch to := into.(type) {
	case *any:
		*to = value
		return nil
	case *map[string]any:
		object, ok := value.(map[string]any)
		if *to = object; !ok && value != nil {
			return &json.UnmarshalTypeError{Value: fmt.Sprintf("%T", value), Type: reflect.TypeFor[map[string]any]()}
		}
		return nil
	}
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// Of returns the value of a node: map[string]any, []any, or the scalar's as the parser decodes it. A key that is no scalar, or
// is there twice, is an error. Values that several aliases stand for are shared.
func Of(n *yaml.Node) (any, error) {
	c := converter{made: map[*yaml.Node]any{}}
	return c.value(n)
}

type converter struct{ made map[*yaml.Node]any }

func (c *converter) value(n *yaml.Node) (value any, err error) {
	switch n.Kind {
	case yaml.DocumentNode:
		if len(n.Content) == 0 {
			return nil, nil
		}
		return c.value(n.Content[0])
	case yaml.AliasNode:
		value, ok := c.made[n.Alias]
		if !ok {
			return nil, fmt.Errorf("line %d: anchor %q contains itself", n.Line, n.Value)
		}
		return value, nil
	case yaml.MappingNode:
		value, err = c.mapping(n)
	case yaml.SequenceNode:
		items := make([]any, len(n.Content))
		for i, item := range n.Content {
			if items[i], err = c.value(item); err != nil {
				return nil, err
			}
		}
		value = items
	case yaml.ScalarNode:
		if n.ShortTag() == "!!str" {
			value = n.Value
		} else {
			err = n.Decode(&value)
		}
	}
	if n.Anchor != "" {
		c.made[n] = value
	}
	return value, err
}

func (c *converter) mapping(n *yaml.Node) (map[string]any, error) {
	made, merged := make(map[string]any, len(n.Content)/2), map[string]any{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("line %d: a key is a mapping or a list", key.Line)
		}
		read, err := c.value(value)
		if err != nil {
			return nil, err
		}
		if key.ShortTag() == "!!merge" {
			if !merge(merged, read) {
				return nil, fmt.Errorf("line %d: map merge requires map or sequence of maps as the value", key.Line)
			}
			continue
		}
		if _, twice := made[key.Value]; twice {
			return nil, fmt.Errorf("line %d: mapping key %q already defined", n.Content[i].Line, key.Value)
		}
		made[key.Value] = read
	}
	for key, value := range merged {
		if _, own := made[key]; !own {
			made[key] = value
		}
	}
	return made, nil
}

// merge adds the keys of a mapping, or of a list of mappings, of which the first counts.
func merge(into map[string]any, value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for key, v := range value {
			if _, known := into[key]; !known {
				into[key] = v
			}
		}
		return true
	case []any:
		for _, item := range value {
			if _, isMapping := item.(map[string]any); !isMapping || !merge(into, item) {
				return false
			}
		}
		return true
	}
	return false
}
