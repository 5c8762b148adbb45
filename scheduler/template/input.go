package template

import (
	"slices"
	"sync"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// Input is the input for rendering one assignment.
type Input struct {
	*Data
	// Config is the composed configuration. Rendering sets ConfigData from it.
	Config *Config
	// Shield, if not nil, covers the texts in Data; see [Shield.Cover].
	Shield *Shield
	// Missing collects an error for each missing key that a Template prints, unless the Template
	// permits it.
	Missing []error

	template *Template // that is rendered; nil for a built-in one
}

// Composed is a composed configuration of one or more assignments. Its methods always return the same, and may be called by
// several goroutines.
type Composed interface {
	// Values returns the configuration by key. It is always the same map, which must not be changed.
	Values() map[string]any
	// Origin returns the position of a key's value.
	Origin(key string) finding.Position
}

// Config is a configuration for templates. It remembers the output of templates' pieces for it.
type Config struct {
	Composed

	memo memo
}

// memo keeps the output of templates' pieces for one configuration. Few pieces render a configuration,
// so a list is enough.
type memo struct {
	mu    sync.Mutex
	known []written
}

// written is the output of a template's piece, and its number of steps.
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
