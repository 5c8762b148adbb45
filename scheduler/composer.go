package scheduler

import (
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
	bytes  int // of YAML in known
}

func newComposer(layers []layer) *composer {
	return &composer{layers: layers, writer: newWriter(layers), known: map[string]*config{}}
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
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.known[string(key)]; ok { // by another goroutine, in the meantime
		return known
	}
	if c.bytes > maxKnownBytes {
		clear(c.known)
		c.bytes = 0
	}
	c.bytes += len(made.yaml)
	c.known[string(key)] = made
	return made
}
