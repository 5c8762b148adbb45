package scheduler

import (
	"reflect"
	"sync"

	"github.com/wherry-dev/wherry/scheduler/kinds"
	"github.com/wherry-dev/wherry/scheduler/yamlvalue"
)

// maxKnownBytes bounds the composed configurations that a composer keeps. Cluster types that share configurations are
// rendered one after the other, so few configurations are composed twice.
const maxKnownBytes = 8 << 20

// composer keeps composed configurations, because the same layers apply to many assignments.
type composer struct {
	layers []layer
	writer *yamlvalue.Writer
	mu     sync.RWMutex
	known  map[string]*config
	byData map[uintptr]*config // by the address of data, of those that templates have asked for
	bytes  int                 // of YAML in known
}

func newComposer(layers []layer) *composer {
	return &composer{
		layers: layers, writer: newWriter(layers),
		known: map[string]*config{}, byData: map[uintptr]*config{},
	}
}

// conditions lists what a matcher for the layers needs.
func (c *composer) conditions() [][]kinds.Condition {
	all := make([][]kinds.Condition, len(c.layers))
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
	for i := range members(key) {
		layers = append(layers, c.layers[i])
	}
	made := compose(layers, c.writer)
	made.asMap = sync.OnceValue(func() map[string]any { return c.remember(made) })
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.known[string(key)]; ok { // by another goroutine, in the meantime
		return known
	}
	if c.bytes > maxKnownBytes {
		clear(c.known)
		clear(c.byData)
		c.bytes = 0
	}
	c.bytes += len(made.yaml)
	c.known[string(key)] = made
	return made
}

// remember makes the map of made, for toYAML to know again.
func (c *composer) remember(made *config) map[string]any {
	data := made.makeMap()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byData[address(data)] = made
	return data
}

// toYAML is the template function of that name. It returns the known YAML of a composed configuration, since encoding
// the same configurations again and again would take most of the time of rendering.
func (c *composer) toYAML(v any) string {
	if m, ok := v.(map[string]any); ok {
		c.mu.RLock()
		known := c.byData[address(m)]
		c.mu.RUnlock()
		if known != nil {
			return known.yaml
		}
	}
	return yamlvalue.Marshal(v)
}

func address(m map[string]any) uintptr { return reflect.ValueOf(m).Pointer() }
