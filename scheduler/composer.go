package scheduler

import (
	"reflect"
	"slices"
	"sync"
)

// maxKnownBytes bounds the composed configurations that a composer keeps. Cluster types are rendered in
// such an order that those which share configurations follow one another, so few are composed twice.
const maxKnownBytes = 8 << 20

// composer keeps composed configurations, because the assignments to which the same layers apply are many.
type composer struct {
	layers []layer
	writer *yamlWriter
	mu     sync.RWMutex
	known  map[string]*config
	byData map[uintptr]*config // by the address of data, of those that templates have asked for
	bytes  int                 // of YAML in known
}

func newComposer(layers []layer) *composer {
	return &composer{
		layers: layers, writer: newYAMLWriter(layers),
		known: map[string]*config{}, byData: map[uintptr]*config{},
	}
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

// memo keeps what pieces of templates wrote for one configuration. A configuration is rendered by few
// pieces, so a list does.
type memo struct {
	mu    sync.Mutex
	known []written
}

// written is what a piece of a template wrote, and in how many steps.
type written struct {
	piece *piece
	text  string
	steps int
}

func (m *memo) get(p *piece) (written, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.IndexFunc(m.known, func(w written) bool { return w.piece == p }); i >= 0 {
		return m.known[i], true
	}
	return written{}, false
}

func (m *memo) put(w written) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known = append(m.known, w)
}
