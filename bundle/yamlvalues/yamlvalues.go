// Package yamlvalues reads YAML from others at a cost that grows no faster than its length.
//
// The parser's own conversion into values compares each key of a mapping with each other one, and counts what aliases
// stand for in values, whatever their length. Begin with [Size], which tells before anything is decoded how much a text
// holds with its aliases expanded, or with [NewDecoder], which refuses too large texts.
package yamlvalues

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"

	yamlv2 "go.yaml.in/yaml/v2"
	"go.yaml.in/yaml/v3"
)

// MaxBytes bounds the Size of a text for a Decoder.
const MaxBytes = 32 << 20

// ErrTooLarge is returned for a text with more bytes than allowed, once its aliases are expanded.
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
		case ':', '?': // of a key and its value
			size += 2 * valueBytes
		case ',', '[':
			size += valueBytes
		case '{': // of a mapping, which takes the most
			size += 4 * valueBytes
		case '-': // of an item, which may be a mapping, or above a document
			if i+1 == len(data) || data[i+1] <= ' ' {
				size += 2 * valueBytes
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

// Check returns an error that wraps ErrTooLarge for a text whose Size is more than MaxBytes, or the parser's for a text that
// may have aliases and cannot be parsed.
func Check(data []byte) error {
	size, err := Size(data, MaxBytes)
	if err != nil {
		return err
	}
	if size > MaxBytes {
		return fmt.Errorf("%w: more than %d bytes, with each alias counted as what it stands for", ErrTooLarge, MaxBytes)
	}
	return nil
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

// A TypeError means that only values of a wrong type are missing from what was decoded.
type TypeError = yamlv2.TypeError

// Decoder reads the documents of a text: all into values, or all into structs.
type Decoder struct {
	documents *yaml.Decoder
	structs   *yamlv2.Decoder
	err       error
}

// NewDecoder returns a Decoder of a text whose Size is at most MaxBytes.
func NewDecoder(data []byte) *Decoder {
	d := &Decoder{documents: yaml.NewDecoder(bytes.NewReader(data)), structs: yamlv2.NewDecoder(bytes.NewReader(data))}
	if err := Check(data); errors.Is(err, ErrTooLarge) { // any other one comes with its document
		d.err = err
	}
	return d
}

// Decode reads the next document. Into an *any or *map[string]any it decodes as Of does. Into a struct with tags of yaml it
// decodes the last of two equal keys; then the error may be a *TypeError. It is io.EOF after the last document. After
// any other error nothing more is decoded.
func (d *Decoder) Decode(into any) error {
	if d.err == nil {
		d.err = d.next(into)
	}
	err := d.err
	if errors.As(err, new(*TypeError)) {
		d.err = nil
	}
	return err
}

func (d *Decoder) next(into any) error {
	to, isObject := into.(*map[string]any)
	all, isAny := into.(*any)
	if !isObject && !isAny {
		return d.structs.Decode(into)
	}
	var n yaml.Node
	if err := d.documents.Decode(&n); err != nil {
		return err
	}
	value, err := Of(&n)
	if err != nil || isAny {
		if isAny {
			*all = value
		}
		return err
	}
	if *to, isObject = value.(map[string]any); !isObject && value != nil {
		return &TypeError{Errors: []string{fmt.Sprintf("line %d: not a mapping", n.Line)}}
	}
	return nil
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
