package template

import (
	"slices"
	"sync"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// Input is what one assignment is rendered from.
type Input struct {
	*Data
	// Config is the composed configuration. Rendering sets ConfigData from it.
	Config *Config
	// Shield, if not nil, is what the texts in Data are under; see [Shield.Cover].
	Shield *Shield
	// Missing collects an error for each key that a Template prints without its being there, unless the Template
	// permits it.
	Missing []error

	template *Template // that is rendered; nil for a built-in one
}

// Composed is a composed configuration of one or more assignments. Its methods always return the same, and may be called by
// several goroutines.
type Composed interface {
	// Values returns the configuration by key. It is always the same map, which nobody changes.
	Values() map[string]any
	// Origin returns the position of a key's value.
	Origin(key string) finding.Position
}

// Config is a configuration as templates see it. It remembers what pieces of templates make of it.
type Config struct {
	Composed

	memo memo
}

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
