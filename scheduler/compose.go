package scheduler

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	yamlv2 "gopkg.in/yaml.v2"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// layer is what is merged at once and under the same conditions: a ConfigMap, or one key of an Azure one.
type layer struct {
	source     ConfigSource
	conditions []condition
	entries    []entry
}

type entry struct {
	key   string
	value any // see parseValue; never changed
	text  string
	at    finding.Position

	id   int    // of the entry among all; from 1 on
	rank int    // of key among all keys
	yaml string // the entry alone; empty where a yamlWriter cannot tell
}

// layersOf lists the layers in the order in which they are merged: ConfigMaps by name, whatever they
// are labelled, and after them the Azure ones, longer keys (which are more specific) later.
func layersOf(configMaps map[string]*configMap) []layer {
	var plain, azure []layer
	for _, cm := range sortedValues(configMaps) {
		source := ConfigSource{Name: cm.Metadata.Name, Position: cm.at}
		if cm.isLabelled() {
			l := layer{source: source, conditions: conditionsOf(cm.Metadata.Labels)}
			for _, key := range sortedKeys(cm.Data) {
				l.entries = append(l.entries, cm.entry(key, key))
			}
			plain = append(plain, l)
		}
		if cm.isAzure() {
			keys := sortedKeys(cm.Data)
			slices.SortStableFunc(keys, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
			for _, key := range keys {
				labels, short := splitAzureKey(key)
				azure = append(azure, layer{source, conditionsOf(labels), []entry{cm.entry(key, short)}})
			}
		}
	}
	return append(plain, azure...)
}

// entry is the ConfigMap's value under key, to be known as name.
func (c *configMap) entry(key, name string) entry {
	value := c.Data[key]
	return entry{key: name, value: parseValue(value.Value), text: value.Value, at: c.position(value.line)}
}

// splitAzureKey takes label1.value1.label2.value2.KEY apart.
func splitAzureKey(key string) (map[string]string, string) {
	parts := strings.Split(key, ".")
	last := len(parts) - 1
	labels := map[string]string{}
	for i := 1; i < last; i += 2 {
		labels[parts[i-1]] = parts[i]
	}
	return labels, parts[last]
}

// parseValue reads a ConfigMap's value as Kalypso does: what YAML 1.1 takes for a map or a list is one,
// anything else stays the text that it is, without quotes if it stands in single ones.
func parseValue(s string) any {
	if trimmed := strings.TrimSpace(s); strings.HasPrefix(trimmed, "'") && strings.HasSuffix(trimmed, "'") {
		return strings.Trim(trimmed, "'")
	}
	var value any
	if yamlv2.Unmarshal([]byte(s), &value) != nil {
		return s
	}
	switch value.(type) {
	case []any, map[any]any:
		return value
	default:
		return s
	}
}

// config is a composed configuration. It is shared between assignments and never changed.
type config struct {
	sources []ConfigSource
	values  []value // sorted as YAML has them
	yaml    string  // what toYAML makes of data
	digest  digest.Digest

	asMap  func() map[string]any // data
	memo   memo
	checks checks
}

// value is one value of a composed configuration.
type value struct {
	*entry     // the last that had a say
	merged any // of several structured ones; nil where that entry's alone counts
}

func (v value) get() any {
	if v.merged != nil {
		return v.merged
	}
	return v.value
}

// asText is the value as it is written in the one place that it comes from, as YAML where it is merged.
func (v value) asText() string {
	if v.merged != nil {
		return toYAML(v.merged)
	}
	if s, ok := v.value.(string); ok {
		return s
	}
	return v.text
}

// compose merges layers. w must know their entries.
func compose(layers []layer, w *yamlWriter) *config {
	c := &config{}
	c.asMap = sync.OnceValue(c.makeMap)
	total := 0
	for i := range layers {
		total += len(layers[i].entries)
	}
	entries := make([]*entry, 0, total)
	c.values = make([]value, 0, total)
	for i := range layers {
		l := &layers[i]
		c.sources = addSource(c.sources, 0, l.source)
		for j := range l.entries {
			entries = append(entries, &l.entries[j])
		}
	}
	slices.SortStableFunc(entries, func(a, b *entry) int { return cmp.Compare(a.rank, b.rank) })
	for len(entries) > 0 {
		n := 1
		for n < len(entries) && entries[n].rank == entries[0].rank {
			n++
		}
		c.values = append(c.values, fold(entries[:n]))
		entries = entries[n:]
	}
	c.yaml = w.document(c)
	if len(c.values) > 0 {
		c.digest = digest.FromString(c.yaml)
	}
	return c
}

// addSource adds the source of the next layer to those from from on; an Azure ConfigMap has several layers.
func addSource(all []ConfigSource, from int, source ConfigSource) []ConfigSource {
	if n := len(all); n > from && all[n-1] == source {
		return all
	}
	return append(all, source)
}

// fold merges what several layers say about one key.
func fold(entries []*entry) value {
	var v value
	for _, e := range entries {
		if v.entry != nil && isStructured(e.value) && reflect.TypeOf(v.value) == reflect.TypeOf(e.value) {
			if v.merged == nil {
				v.merged = clone(v.value)
			}
			v.merged = merge(v.merged, clone(e.value))
		} else {
			v.merged = nil
		}
		v.entry = e
	}
	return v
}

// data is the configuration as templates see it: always the same map.
func (c *config) data() map[string]any { return c.asMap() }

func (c *config) makeMap() map[string]any {
	data := make(map[string]any, len(c.values))
	for _, v := range c.values {
		data[v.key] = v.get()
	}
	return data
}

// origin is where the value of key was last set; no place for a key that is not there.
func (c *config) origin(key string) finding.Position {
	for _, v := range c.values {
		if v.key == key {
			return v.at
		}
	}
	return finding.Position{}
}

func isStructured(v any) bool {
	switch v.(type) {
	case []any, map[any]any:
		return true
	default:
		return false
	}
}

// merge puts a later value over an earlier one, which it may change. Maps merge key by key. Lists are
// appended, but a map in a list merges into each earlier one of the same name, and maps without a name
// have the same. Of anything else the later wins.
func merge(earlier, later any) any {
	switch later := later.(type) {
	case []any:
		if list, ok := earlier.([]any); ok {
			return mergeLists(list, later)
		}
	case map[any]any:
		if m, ok := earlier.(map[any]any); ok {
			for key, value := range later {
				if old, ok := m[key]; ok {
					value = merge(old, value)
				}
				m[key] = value
			}
			return m
		}
	}
	return later
}

func mergeLists(list, later []any) []any {
	for _, value := range later {
		item, isMap := value.(map[any]any)
		merged := false
		for i := range list {
			if old, ok := list[i].(map[any]any); ok && isMap && reflect.DeepEqual(old["name"], item["name"]) {
				list[i], merged = merge(old, value), true
			}
		}
		if !merged {
			list = append(list, value)
		}
	}
	return list
}

// clone copies maps and lists all the way down.
func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		c := make(map[string]any, len(v))
		for key, value := range v {
			c[key] = clone(value)
		}
		return c
	case map[any]any:
		c := make(map[any]any, len(v))
		for key, value := range v {
			c[key] = clone(value)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i, value := range v {
			c[i] = clone(value)
		}
		return c
	default:
		return v
	}
}
