package yamltext

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Path leads to a value: keys of mappings, and places or names in lists.
type Path []Step

// Step is one step of a path.
type Step struct {
	Key string
	// Item is true for an item of a list: the one at the place Key, counted from 0, or with this name.
	Item bool
}

// ParsePath reads a path such as spec.deploymentTargets[0].labels.edge or metadata.annotations["wherry.dev/adapter"]. A dot in
// a key may also be written as \. and an item of a list may be given by its name, as in spec.deploymentTargets[live].
func ParsePath(text string) (Path, error) {
	wrong := func(why string) (Path, error) {
		return nil, fmt.Errorf("%q is no path: %s", text, why)
	}
	var path Path
	for rest := text; rest != ""; {
		if rest[0] == '[' {
			inner, after, ok := strings.Cut(rest[1:], "]")
			quoted := strings.HasPrefix(inner, `"`)
			if quoted {
				q, err := strconv.QuotedPrefix(rest[1:])
				if err != nil {
					return wrong("a quote is missing")
				}
				inner, _ = strconv.Unquote(q)
				after, ok = strings.CutPrefix(rest[1+len(q):], "]")
			}
			if !ok || inner == "" {
				return wrong("brackets hold a place, a name or a key in quotes")
			}
			path = append(path, Step{Key: inner, Item: !quoted})
			if rest = after; rest != "" && rest[0] == '.' {
				rest = rest[1:]
			} else if rest != "" && rest[0] != '[' {
				return wrong("a dot is missing after ]")
			}
			continue
		}
		key, i := "", 0
		for ; i < len(rest) && rest[i] != '.' && rest[i] != '['; i++ {
			if rest[i] == '\\' && i+1 < len(rest) {
				i++
			}
			key += rest[i : i+1]
		}
		if key == "" {
			return wrong("a key is empty")
		}
		path = append(path, Step{Key: key})
		if rest = rest[i:]; rest != "" && rest[0] == '.' {
			if rest = rest[1:]; rest == "" {
				return wrong("a key is empty")
			}
		}
	}
	if len(path) == 0 {
		return wrong("must not be empty")
	}
	return path, nil
}

// String returns the path as ParsePath reads it.
func (p Path) String() string {
	var b strings.Builder
	for i, s := range p {
		switch {
		case s.Item:
			b.WriteString("[" + s.Key + "]")
		case strings.ContainsAny(s.Key, `.[]"\`):
			b.WriteString("[" + strconv.Quote(s.Key) + "]")
		default:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s.Key)
		}
	}
	return b.String()
}

// Pair returns the key and the value of a key of a mapping; nil where there is none. It does not look into what the mapping
// merges.
func Pair(n *yaml.Node, key string) (k, v *yaml.Node) {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key && n.Content[i].Kind == yaml.ScalarNode {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// Lookup returns the value of a key; aliases and merge keys are followed. It is nil where there is none.
func Lookup(n *yaml.Node, keys ...string) *yaml.Node {
	for _, key := range keys {
		n = lookup(Resolve(n), key, 0)
	}
	return n
}

// Text returns the scalar that keys lead to, empty where there is none or null.
func Text(n *yaml.Node, keys ...string) string {
	if n = Resolve(Lookup(n, keys...)); n == nil || n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		return ""
	}
	return n.Value
}

// Items returns the items of the list that keys lead to; none where there is none.
func Items(n *yaml.Node, keys ...string) []*yaml.Node {
	if n = Resolve(Lookup(n, keys...)); n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	return n.Content
}

const maxMerges = 16

func lookup(n *yaml.Node, key string, depth int) *yaml.Node {
	if _, v := Pair(n, key); v != nil || n == nil || depth > maxMerges {
		return v
	}
	_, merged := Pair(n, "<<")
	if merged = Resolve(merged); merged == nil {
		return nil
	}
	if merged.Kind != yaml.SequenceNode {
		return lookup(merged, key, depth+1)
	}
	for _, m := range merged.Content {
		if v := lookup(Resolve(m), key, depth+1); v != nil {
			return v
		}
	}
	return nil
}

// Resolve follows an alias.
func Resolve(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// item returns the item of a list that a step names.
func item(n *yaml.Node, s Step) (*yaml.Node, error) {
	if n.Kind != yaml.SequenceNode {
		return nil, hard(n, "%s: there is no list", s.Key)
	}
	if i, err := strconv.Atoi(s.Key); err == nil {
		if i < 0 || i >= len(n.Content) {
			return nil, hard(n, "there is no item %d in a list of %d", i, len(n.Content))
		}
		return n.Content[i], nil
	}
	for _, v := range n.Content {
		if name := Lookup(v, "name"); name != nil && Resolve(name).Value == s.Key {
			return v, nil
		}
	}
	return nil, hard(n, "no item of the list has the name %q", s.Key)
}

// Find returns the value at a path of a document; nil where there is none.
func (f *File) Find(document int, path Path) *yaml.Node {
	n := f.Documents[document]
	for _, step := range path {
		if n = Resolve(n); n == nil {
			return nil
		}
		if step.Item {
			n, _ = item(n, step)
		} else {
			n = Lookup(n, step.Key)
		}
	}
	return n
}
