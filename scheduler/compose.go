package scheduler

import (
	"cmp"
	"reflect"
	"slices"
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
	"github.com/wherry-dev/wherry/scheduler/template"
	"github.com/wherry-dev/wherry/scheduler/yamlvalue"
)

// layer is a part of the configuration with conditions of its own: a ConfigMap, or one key of an Azure ConfigMap.
type layer struct {
	source     ConfigSource
	conditions []kinds.Condition
	entries    []entry
}

type entry struct {
	key   string
	value any // see yamlvalue.Parse; never changed
	text  string
	at    finding.Position

	rank int    // of key among all keys
	yaml string // the entry alone; empty where the writer cannot write it
}

// layersOf lists the layers in the order in which they are merged: ConfigMaps by name, whatever they
// are labelled, and after them the Azure ones, longer keys (which are more specific) later.
func layersOf(configMaps map[string]*kinds.ConfigMap) []layer {
	var plain, azure []layer
	for _, cm := range sortedValues(configMaps) {
		source := ConfigSource{Name: cm.Metadata.Name, Position: cm.At}
		if cm.IsLabelled() {
			l := layer{source: source, conditions: kinds.ConditionsOf(cm.Metadata.Labels)}
			for _, key := range sortedKeys(cm.Data) {
				l.entries = append(l.entries, entryOf(cm, key, key))
			}
			plain = append(plain, l)
		}
		if cm.IsAzure() {
			keys := sortedKeys(cm.Data)
			slices.SortStableFunc(keys, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
			for _, key := range keys {
				labels, short := kinds.SplitAzureKey(key)
				azure = append(azure, layer{source, kinds.ConditionsOf(labels), []entry{entryOf(cm, key, short)}})
			}
		}
	}
	return append(plain, azure...)
}

// entryOf returns the ConfigMap's value under key, as the entry for name.
func entryOf(c *kinds.ConfigMap, key, name string) entry {
	value := c.Data[key]
	return entry{key: name, value: yamlvalue.Parse(value.Value), text: value.Value, at: c.Position(value.Line)}
}

// config is a composed configuration. It is shared between assignments and never changed.
type config struct {
	sources []ConfigSource
	values  []value // in the order of the YAML
	yaml    string  // of data, as yamlvalue.Marshal writes it
	digest  digest.Digest

	asMap  func() map[string]any // data
	view   template.Config       // as templates see it
	checks checks
}

// value is one value of a composed configuration.
type value struct {
	*entry     // the last one for this key
	merged any // of several structured ones; nil if the last entry alone counts
}

func (v value) get() any {
	if v.merged != nil {
		return v.merged
	}
	return v.value
}

// asText returns the value as written in its ConfigMap, or as YAML if it was merged.
func (v value) asText() string {
	if v.merged != nil {
		return yamlvalue.Marshal(v.merged)
	}
	if s, ok := v.value.(string); ok {
		return s
	}
	return v.text
}

// newWriter returns a writer for configurations composed of layers, and completes the layers' entries.
func newWriter(layers []layer) *yamlvalue.Writer {
	w := yamlvalue.NewWriter(func(yield func(string, any) bool) {
		for _, l := range layers {
			for _, e := range l.entries {
				if !yield(e.key, e.value) {
					return
				}
			}
		}
	})
	others := map[string]int{} // ranks of keys that the writer does not know: any that differ
	for i := range layers {
		for j := range layers[i].entries {
			e := &layers[i].entries[j]
			var ok bool
			if e.rank, ok = w.Rank(e.key); !ok {
				if others[e.key] == 0 {
					others[e.key] = w.Keys() + len(others) + 1
				}
				e.rank = others[e.key]
			}
			if text, ok := w.AppendPair(nil, e.key, e.value); ok {
				e.yaml = string(text)
			}
		}
	}
	return w
}

// document returns the YAML of c, as yamlvalue.Marshal writes it.
func (c *config) document(w *yamlvalue.Writer) string {
	if len(c.values) == 0 {
		return "{}"
	}
	text := make([]byte, 0, 1024)
	for _, v := range c.values {
		ok := v.yaml != ""
		if v.merged != nil {
			text, ok = w.AppendPair(text, v.key, v.merged)
		} else {
			text = append(text, v.yaml...)
		}
		if !ok {
			return yamlvalue.Marshal(c.makeMap())
		}
	}
	return string(text[:len(text)-1]) // Marshal writes no last line break
}

// compose merges layers. w must be of newWriter, for these layers among others.
func compose(layers []layer, w *yamlvalue.Writer) *config {
	c := &config{}
	c.asMap = sync.OnceValue(c.makeMap)
	c.view.Composed = c
	total := 0
	for i := range layers {
		total += len(layers[i].entries)
	}
	entries := make([]*entry, 0, total)
	c.values = make([]value, 0, total)
	for i := range layers {
		l := &layers[i]
		c.sources = addSource(c.sources, l.source)
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
	c.yaml = c.document(w)
	if len(c.values) > 0 {
		c.digest = digest.FromString(c.yaml)
	}
	return c
}

// addSource adds the source of the next layer; an Azure ConfigMap has several layers.
func addSource(all []ConfigSource, source ConfigSource) []ConfigSource {
	if n := len(all); n > 0 && all[n-1] == source {
		return all
	}
	return append(all, source)
}

// fold merges the entries of several layers for one key.
func fold(entries []*entry) value {
	var v value
	for _, e := range entries {
		if v.entry != nil && yamlvalue.IsStructured(e.value) && reflect.TypeOf(v.value) == reflect.TypeOf(e.value) {
			if v.merged == nil {
				v.merged = yamlvalue.Clone(v.value)
			}
			v.merged = yamlvalue.Merge(v.merged, yamlvalue.Clone(e.value))
		} else {
			v.merged = nil
		}
		v.entry = e
	}
	return v
}

// data returns the configuration for templates: always the same map.
func (c *config) data() map[string]any { return c.asMap() }

// Values is data, for templates.
func (c *config) Values() map[string]any { return c.asMap() }

func (c *config) makeMap() map[string]any {
	data := make(map[string]any, len(c.values))
	for _, v := range c.values {
		data[v.key] = v.get()
	}
	return data
}

// Origin returns the position at which the value of key was last set; the zero Position for a missing key.
func (c *config) Origin(key string) finding.Position {
	for _, v := range c.values {
		if v.key == key {
			return v.at
		}
	}
	return finding.Position{}
}
