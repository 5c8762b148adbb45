package artifacts

import "gopkg.in/yaml.v3"

// field is the value of a key of a mapping, and so on; nil where there is none.
func field(n *yaml.Node, keys ...string) *yaml.Node {
	for _, key := range keys {
		if n = valueOf(n, key); n == nil {
			return nil
		}
	}
	return n
}

func valueOf(n *yaml.Node, key string) *yaml.Node {
	if n = resolved(n); n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return resolved(n.Content[i+1])
		}
	}
	return nil
}

// resolved follows an alias.
func resolved(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// text is the scalar that keys lead to, empty where there is none.
func text(n *yaml.Node, keys ...string) string {
	n = field(n, keys...)
	if n == nil || n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
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
