package artifacts

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// field is the value of a key of a mapping, and so on; nil where there is none.
func field(n *yaml.Node, keys ...string) *yaml.Node {
	for _, key := range keys {
		if n = resolved(rawField(n, key)); n == nil {
			return nil
		}
	}
	return n
}

// rawField is the value of a key as it is written, which may be an alias.
func rawField(n *yaml.Node, key string) *yaml.Node {
	content := pairs(n)
	for i := 0; i+1 < len(content); i += 2 {
		if isKey(content[i], key) {
			return content[i+1]
		}
	}
	return nil
}

func isKey(n *yaml.Node, key string) bool {
	n = resolved(n)
	return n != nil && n.Kind == yaml.ScalarNode && n.Value == key
}

// resolved follows an alias.
func resolved(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// pairs lists the keys and values of a mapping, those that it merges from others ("<<") after its own.
func pairs(n *yaml.Node) []*yaml.Node {
	if n = resolved(n); n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	if !slices.ContainsFunc(n.Content, isMerge) {
		return n.Content
	}
	m := merging{taken: map[*yaml.Node]bool{}, keys: map[string]bool{}}
	m.add(n)
	return m.content
}

func isMerge(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!merge" }

// merging collects the pairs of a mapping and of those that it merges. The first of equal keys counts.
type merging struct {
	content []*yaml.Node
	taken   map[*yaml.Node]bool // mappings may merge each other in a circle
	keys    map[string]bool
}

func (m *merging) add(n *yaml.Node) {
	if n = resolved(n); n == nil || m.taken[n] {
		return
	}
	m.taken[n] = true
	switch n.Kind {
	case yaml.SequenceNode: // of what is merged
		for _, one := range n.Content {
			m.add(one)
		}
	case yaml.MappingNode:
		own := map[string]bool{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := resolved(n.Content[i])
			if isMerge(n.Content[i]) || key == nil || key.Kind == yaml.ScalarNode && m.keys[key.Value] {
				continue
			}
			own[key.Value] = true
			m.content = append(m.content, n.Content[i], n.Content[i+1])
		}
		for key := range own {
			m.keys[key] = true
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if isMerge(n.Content[i]) {
				m.add(n.Content[i+1])
			}
		}
	}
}

// text is the scalar that keys lead to, empty where there is none.
func text(n *yaml.Node, keys ...string) string { return scalarText(field(n, keys...)) }

// scalarText is the text of a scalar; empty for null and for anything else.
func scalarText(n *yaml.Node) string {
	if n = resolved(n); n == nil || n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		return ""
	}
	return n.Value
}

// items are those of the list that keys lead to.
func items(n *yaml.Node, keys ...string) []*yaml.Node {
	if n = field(n, keys...); n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	return n.Content
}
