package diff

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// ValueDifference is a value of a rendered file that becomes another one. Values that look like secrets
// are masked; see secret.Looks.
type ValueDifference struct {
	File string `json:"file"`
	// Key is a configuration key, with the path below it where the value is structured: ALERTS[power].after.
	// In other files it is the object and the path: Deployment/till spec.replicas.
	Key string `json:"key"`
	// Old and New are nil where there is no such value.
	Old    *string `json:"old"`
	New    *string `json:"new"`
	Secret bool    `json:"secret,omitempty"`
	// Because names the objects that give the new value. For a removed value, it names the objects that have the key
	// and no longer apply. It is empty if they are unknown.
	Because []Cause `json:"because,omitempty"`

	configKey string // the key alone; empty outside of configuration
	configSub string // the path below it
}

// Cause is an object that caused a change.
type Cause struct {
	Kind string `json:"kind"`
	scheduler.Named
}

// ConfigFile begins the name of the file with the composed configuration.
const ConfigFile = "platform-config."

// ConfigValue is a value of the composed configuration, masked if it looks like a secret.
type ConfigValue struct {
	// Top is the configuration key, and Key that with the path below it where the value is structured.
	Top, Key string
	Text     string
	Secret   bool
}

// ConfigValues lists the configuration values in a rendered file, whose name begins with [ConfigFile].
func ConfigValues(file string, data []byte) []ConfigValue {
	var all []ConfigValue
	values, _ := valuesOf(file, data)
	for _, v := range values {
		if v.top != "" {
			d := ValueDifference{Key: v.key, New: &v.text, configKey: v.top}.masked(v.secret)
			all = append(all, ConfigValue{Top: v.top, Key: v.key, Text: *d.New, Secret: d.Secret})
		}
	}
	return all
}

// value is a leaf of a rendered file.
type value struct {
	id       string // identifies the value in both files
	key      string // for people
	text     string
	top, sub string // of configuration: the key and the path below it
	secret   bool   // whatever it is called
}

// compareValues lists the values that differ between two states of a file. It reports false where one of
// them is no file of values.
func compareValues(file string, before, after []byte) ([]ValueDifference, bool) {
	a, ok := valuesOf(file, before)
	b, ok2 := valuesOf(file, after)
	if !ok || !ok2 {
		return nil, false
	}
	old, now := byID(a), byID(b)
	var all []ValueDifference
	for _, v := range b {
		was, there := old[v.id]
		if there && was.text == v.text || now[v.id] != v {
			continue
		}
		d := newValueDifference(file, v)
		if d.New = &v.text; there {
			d.Old = &was.text
		}
		all = append(all, d.masked(v.secret))
	}
	for _, v := range a {
		if _, there := now[v.id]; !there && old[v.id] == v {
			d := newValueDifference(file, v)
			d.Old = &v.text
			all = append(all, d.masked(v.secret))
		}
	}
	slices.SortStableFunc(all, func(a, b ValueDifference) int { return cmp.Compare(a.Key, b.Key) })
	return all, true
}

// byID returns values by their id. Of two with the same id it keeps the last, as YAML parsers do.
func byID(values []value) map[string]value {
	all := make(map[string]value, len(values))
	for _, v := range values {
		all[v.id] = v
	}
	return all
}

func newValueDifference(file string, v value) ValueDifference {
	return ValueDifference{File: file, Key: v.key, configKey: v.top, configSub: v.sub}
}

// masked hides both values if one of them is a secret: the other one may be an older form of it.
func (d ValueDifference) masked(known bool) ValueDifference {
	d.Secret = known
	for _, v := range []*string{d.Old, d.New} {
		d.Secret = d.Secret || v != nil && (show.LooksSecret(d.Key, *v) || show.LooksSecret(d.configKey, *v))
	}
	if d.Secret {
		mask := show.Masked
		if d.Old != nil {
			d.Old = &mask
		}
		if d.New != nil {
			d.New = &mask
		}
	}
	return d
}

// valuesOf returns the values in a rendered file. It returns false if the file is neither YAML nor a list of exports.
func valuesOf(file string, data []byte) ([]value, bool) {
	isConfig := strings.HasPrefix(file, ConfigFile)
	if path.Ext(file) == ".sh" {
		return exportsOf(data)
	}
	var all []value
	documents := yaml.NewDecoder(bytes.NewReader(data))
	for n := 0; ; n++ {
		var root yaml.Node
		err := documents.Decode(&root)
		if errors.Is(err, io.EOF) {
			return all, true
		}
		if err != nil {
			return nil, false
		}
		if len(root.Content) != 1 {
			continue
		}
		d := document{node: root.Content[0]}
		if d.id = d.name(n); isConfig && d.isValues() {
			all = append(all, d.configuration()...)
		} else {
			all = append(all, d.leaves()...)
		}
	}
}

// exportsOf reads the lines of an environment file. Values may go on over several lines.
func exportsOf(data []byte) ([]value, bool) {
	var all []value
	for line := range strings.Lines(string(data)) {
		key, text, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		switch {
		case strings.HasPrefix(line, "export ") && ok:
			all = append(all, value{id: key, key: key, top: key, text: strings.Trim(strings.TrimSpace(text), `"`)})
		case len(all) > 0:
			last := &all[len(all)-1]
			last.text += "\n" + strings.TrimSuffix(strings.TrimSuffix(line, "\n"), `"`)
		case strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "#"):
			return nil, false
		}
	}
	return all, true
}

// document is one of a YAML file.
type document struct {
	node *yaml.Node
	id   string
}

// name is kind and name of an object, else the document's place.
func (d document) name(n int) string {
	kind, name := kinds.Field(d.node, "kind"), kinds.Field(kinds.Field(d.node, "metadata"), "name")
	switch {
	case kind.Value != "" && name.Value != "":
		return kind.Value + "/" + name.Value
	case n == 0:
		return ""
	}
	return fmt.Sprintf("document %d", n+1)
}

// isValues is true for what holds the configuration as it is: a ConfigMap, or an object of no kind.
func (d document) isValues() bool {
	kind := kinds.Field(d.node, "kind").Value
	return d.node.Kind == yaml.MappingNode && (kind == "ConfigMap" || kind == "")
}

// configuration lists the values of a document's data by their keys, and the other fields by leaves.
func (d document) configuration() []value {
	data := kinds.Field(d.node, "data")
	var all []value
	if rest := without(d.node, "data"); len(rest.Content) > 0 {
		all = document{rest, d.id}.leaves()
	}
	if data.Kind != yaml.MappingNode {
		if d.id != "" {
			return all
		}
		data, all = d.node, nil // the keys are at the top level
	}
	for i := 0; i+1 < len(data.Content); i += 2 {
		key := data.Content[i].Value
		eachLeaf(structure(data.Content[i+1]), func(sub, text string) {
			all = append(all, value{id: d.id + "\x00" + key + "\x00" + sub, key: key + joint(sub) + sub, text: text, top: key, sub: sub})
		})
	}
	return all
}

func joint(sub string) string {
	if sub == "" || sub[0] == '[' {
		return ""
	}
	return "."
}

// structure is what a text of several lines holds, if that is a mapping or a list.
func structure(n *yaml.Node) *yaml.Node {
	if n.Kind != yaml.ScalarNode || !strings.Contains(n.Value, "\n") {
		return n
	}
	var inner yaml.Node
	if yaml.Unmarshal([]byte(n.Value), &inner) != nil || len(inner.Content) != 1 || inner.Content[0].Kind == yaml.ScalarNode {
		return n
	}
	return inner.Content[0]
}

func (d document) leaves() []value {
	var all []value
	secret := kinds.Field(d.node, "kind").Value == "Secret"
	eachLeaf(d.node, func(where, text string) {
		all = append(all, value{
			id: d.id + "\x00" + where, key: strings.TrimSpace(d.id + " " + where), text: text,
			secret: secret && (strings.HasPrefix(where, "data.") || strings.HasPrefix(where, "stringData.")),
		})
	})
	return all
}

// eachLeaf calls yield for each single value below n, with its path.
func eachLeaf(n *yaml.Node, yield func(where, text string)) {
	var walk func(n *yaml.Node, where string)
	walk = func(n *yaml.Node, where string) {
		switch {
		case n.Kind == yaml.MappingNode && len(n.Content) > 0:
			for i := 0; i+1 < len(n.Content); i += 2 {
				walk(n.Content[i+1], strings.TrimPrefix(where+"."+n.Content[i].Value, "."))
			}
		case n.Kind == yaml.SequenceNode && len(n.Content) > 0:
			for i, item := range namesOfItems(n.Content) {
				walk(n.Content[i], where+"["+item+"]")
			}
		case n.Kind == yaml.MappingNode:
			yield(where, "{}")
		case n.Kind == yaml.SequenceNode:
			yield(where, "[]")
		case n.Kind == yaml.AliasNode: // not followed: a few lines could unfold to gigabytes
			yield(where, "*"+n.Value)
		default:
			yield(where, n.Value)
		}
	}
	walk(n, "")
}

// namesOfItems gives the items of a list their names, or their places where not each has one of its own.
func namesOfItems(items []*yaml.Node) []string {
	var names, places []string
	seen := map[string]bool{}
	for i, item := range items {
		name := kinds.Field(item, "name").Value
		if places = append(places, strconv.Itoa(i)); name != "" && !seen[name] {
			names, seen[name] = append(names, name), true
		}
	}
	if len(names) == len(places) {
		return names
	}
	return places
}

// without is a mapping without one key.
func without(n *yaml.Node, key string) *yaml.Node {
	rest := &yaml.Node{Kind: yaml.MappingNode}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value != key {
			rest.Content = append(rest.Content, n.Content[i], n.Content[i+1])
		}
	}
	return rest
}
