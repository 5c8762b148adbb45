package scheduler

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	yamlv2 "gopkg.in/yaml.v2"
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
	at    Position
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
	data    map[string]any
	sources []ConfigSource
	yaml    string // what toYAML makes of data
	digest  digest.Digest
	// texts holds the structured values that came from one place, as they were written there.
	texts map[string]string
	// origins says where each value was last set.
	origins map[string]Position
}

func compose(layers []layer) *config {
	c := &config{data: map[string]any{}, texts: map[string]string{}, origins: map[string]Position{}}
	for _, l := range layers {
		if n := len(c.sources); n == 0 || c.sources[n-1] != l.source {
			c.sources = append(c.sources, l.source)
		}
		for _, e := range l.entries {
			c.put(e)
		}
	}
	c.yaml = toYAML(c.data)
	if len(c.data) > 0 {
		c.digest = digest.FromString(c.yaml)
	}
	return c
}

func (c *config) put(e entry) {
	value := clone(e.value)
	existing, ok := c.data[e.key]
	if ok {
		value = merge(existing, value)
	}
	if c.texts[e.key] = e.text; ok && isStructured(existing) && isStructured(value) && reflect.TypeOf(existing) == reflect.TypeOf(e.value) {
		delete(c.texts, e.key) // no longer what any one place says
	}
	c.data[e.key], c.origins[e.key] = value, e.at
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

// composer keeps each composed configuration, because the assignments to which the same layers apply
// are many.
type composer struct {
	layers []layer
	mu     sync.RWMutex
	known  map[string]*config
	byData map[uintptr]*config // by the address of data
}

func newComposer(layers []layer) *composer {
	return &composer{layers: layers, known: map[string]*config{}, byData: map[uintptr]*config{}}
}

// conditions lists what a matcher for the layers needs.
func (c *composer) conditions() [][]condition {
	all := make([][]condition, len(c.layers))
	for i, l := range c.layers {
		all[i] = l.conditions
	}
	return all
}

// config returns the configuration composed of the layers of key, which appliesTo has written.
func (c *composer) config(key []byte) *config {
	c.mu.RLock()
	known, ok := c.known[string(key)]
	c.mu.RUnlock()
	if ok {
		return known
	}
	var layers []layer
	for _, i := range members(string(key)) {
		layers = append(layers, c.layers[i])
	}
	made := compose(layers)
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.known[string(key)]; ok { // by another goroutine, in the meantime
		return known
	}
	c.known[string(key)] = made
	c.byData[address(made.data)] = made
	return made
}

// toYAML is the template function. Most of the time of rendering would go into writing the same
// composed configurations again and again.
func (c *composer) toYAML(v any) string {
	if m, ok := v.(map[string]any); ok {
		c.mu.RLock()
		known := c.byData[address(m)]
		c.mu.RUnlock()
		if known != nil {
			return known.yaml
		}
	}
	return toYAML(v)
}

func address(m map[string]any) uintptr { return reflect.ValueOf(m).Pointer() }
