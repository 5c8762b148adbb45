package check

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/scheduler/kinds"
)

const (
	// maxNodes bounds the values of one file, with its aliases expanded, and maxDepth values in values.
	maxNodes, maxDepth = 1 << 18, 200
)

// object is a rendered object.
type object struct {
	apiVersion, kind, namespace, name string
	value                             *sortedMap
}

func (o object) String() string {
	if o.namespace == "" {
		return o.kind + " " + o.name
	}
	return o.kind + " " + o.namespace + "/" + o.name
}

// is reports whether o is of a kind.
func (o object) is(k groupKind) bool {
	group, _, grouped := strings.Cut(o.apiVersion, "/")
	return o.kind == k.kind && (k.group == "" || grouped && group == k.group)
}

// mayHave reports whether a file may have an object of one of the kinds. It does not parse the file: a kind that is not
// written out takes a backslash.
func mayHave(data []byte, all []groupKind) bool {
	return len(all) == 0 || bytes.IndexByte(data, '\\') >= 0 ||
		slices.ContainsFunc(all, func(k groupKind) bool { return bytes.Contains(data, []byte(k.kind)) })
}

// documents splits a file at the lines that end a YAML document. Such a line ends it wherever it stands, but for a text that
// is a document of its own, and so no object.
func documents(data []byte) [][]byte {
	if data[0] == '%' || bytes.Contains(data, []byte("\n%")) || bytes.Contains(data, []byte("\n...")) { // directives
		return [][]byte{data}
	}
	var all [][]byte
	from := 0
	for at := 0; ; {
		i := bytes.Index(data[at:], []byte("\n---"))
		if i < 0 {
			return append(all, data[from:])
		}
		at += i + 1
		if after := at + len("---"); after == len(data) || bytes.IndexByte([]byte(" \t\r\n"), data[after]) >= 0 {
			all, from = append(all, data[from:at]), at
		}
	}
}

// relevantObjects returns the objects of a file, without those in documents that cannot have one of the kinds. Parsing takes
// ten times as long as evaluating.
func relevantObjects(data []byte, wanted []groupKind) ([]object, error) {
	var all []object
	for _, document := range documents(data) {
		if !mayHave(document, wanted) {
			continue
		}
		found, err := objectsIn(document)
		if err != nil {
			if _, whole := objectsIn(data); whole != nil { // which has the right line
				err = whole
			}
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// kindsOf returns the kinds that checks are for; none if one of them is for all.
func kindsOf(checks []*check) []groupKind {
	var all []groupKind
	for _, c := range checks {
		if len(c.kinds) == 0 {
			return nil
		}
		all = append(all, c.kinds...)
	}
	return all
}

// objectsIn returns the objects of a file, with those in lists. It skips other documents, such as a list of plays.
func objectsIn(data []byte) ([]object, error) {
	var all []object
	r := &reader{}
	documents := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var n yaml.Node
		err := documents.Decode(&n)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
		}
		if len(n.Content) == 0 {
			continue
		}
		value, err := r.value(n.Content[0], 0)
		if err != nil {
			return nil, err
		}
		all = appendObjects(all, value)
	}
}

// appendObjects appends value if it is an object, or the objects in it if it is a list of objects, as kubectl has them.
func appendObjects(all []object, value ref.Val) []object {
	m, ok := value.(*sortedMap)
	if !ok {
		return all
	}
	o := object{apiVersion: m.text("apiVersion"), kind: m.text("kind"), value: m}
	if metadata, ok := m.get("metadata").(*sortedMap); ok {
		o.namespace, o.name = metadata.text("namespace"), metadata.text("name")
	}
	if items, ok := m.get("items").(*list); ok && strings.HasSuffix(o.kind, "List") {
		for _, item := range items.values {
			all = appendObjects(all, item)
		}
		return all
	}
	if o.kind == "" {
		return all
	}
	return append(all, o)
}

// reader turns YAML into values of CEL, as an API server would read it.
type reader struct{ nodes int }

func (r *reader) value(n *yaml.Node, depth int) (ref.Val, error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch r.nodes++; {
	case r.nodes > maxNodes:
		return nil, fmt.Errorf("line %d: the file holds more than %d values once its aliases are expanded", n.Line, maxNodes)
	case depth > maxDepth:
		return nil, fmt.Errorf("line %d: values nest more than %d deep", n.Line, maxDepth)
	}
	switch n.Kind {
	case yaml.MappingNode:
		return r.mapping(n, depth)
	case yaml.SequenceNode:
		values := make([]ref.Val, len(n.Content))
		for i, item := range n.Content {
			var err error
			if values[i], err = r.value(item, depth+1); err != nil {
				return nil, err
			}
		}
		return newList(values), nil
	default:
		return scalar(n), nil
	}
}

// scalar returns a single value. Words that only YAML 1.1 takes for booleans are booleans, and dates are texts.
func scalar(n *yaml.Node) ref.Val {
	switch kinds.ShortTag(n) {
	case "!!null":
		return types.NullValue
	case "!!bool":
		return types.Bool(slices.Contains([]string{"y", "yes", "on", "true"}, strings.ToLower(n.Value)))
	case "!!int":
		var i int64
		if n.Decode(&i) == nil {
			return types.Int(i)
		}
		var u uint64
		if n.Decode(&u) == nil {
			return types.Uint(u)
		}
		return types.String(n.Value)
	case "!!float":
		var f float64
		if n.Decode(&f) == nil {
			return types.Double(f)
		}
	}
	return types.String(n.Value)
}

// mapping reads a mapping, with merge keys resolved: its own keys override merged ones.
func (r *reader) mapping(n *yaml.Node, depth int) (ref.Val, error) {
	entries := make(map[string]any, len(n.Content)/2)
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.ShortTag() == "!!merge" {
			merged = append(merged, n.Content[i+1])
			continue
		}
		if _, twice := entries[key.Value]; twice {
			return nil, fmt.Errorf("line %d: the key %s is given twice", key.Line, strconv.Quote(key.Value))
		}
		value, err := r.value(n.Content[i+1], depth+1)
		if err != nil {
			return nil, err
		}
		entries[key.Value] = value
	}
	for _, from := range merged {
		if err := r.merge(entries, from, depth+1); err != nil {
			return nil, err
		}
	}
	return newMap(entries), nil
}

// merge adds the entries of a merge key, one mapping or several of which the first wins.
func (r *reader) merge(entries map[string]any, from *yaml.Node, depth int) error {
	value, err := r.value(from, depth)
	if err != nil {
		return err
	}
	sources := []ref.Val{value}
	if l, ok := value.(*list); ok {
		sources = l.values
	}
	for _, source := range sources {
		m, ok := source.(*sortedMap)
		if !ok {
			return fmt.Errorf("line %d: a merge key must have a mapping", from.Line)
		}
		for _, key := range m.keys {
			if _, own := entries[key]; !own {
				entries[key] = m.get(key)
			}
		}
	}
	return nil
}
