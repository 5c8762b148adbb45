package settings

import "fmt"

// Context names the registry, the hub and the rest that a person works with, for commands outside a repository and for
// what the repository leaves open.
type Context struct {
	Name        string   `yaml:"name" json:"name"`
	Registry    string   `yaml:"registry,omitempty" json:"registry,omitempty"`
	Hub         string   `yaml:"hub,omitempty" json:"hub,omitempty"`
	Environment string   `yaml:"environment,omitempty" json:"environment,omitempty"`
	Trust       string   `yaml:"trust,omitempty" json:"trust,omitempty"`
	Keys        []string `yaml:"keys,omitempty" json:"keys,omitempty"`
	SignWith    []string `yaml:"signWith,omitempty" json:"signWith,omitempty"`
}

// settings returns what the context gives.
func (c Context) settings() Settings {
	origin := fmt.Sprintf("context %s", c.Name)
	one := func(text string) Value {
		if text == "" {
			return Value{}
		}
		return Value{text, origin}
	}
	several := func(texts []string) (all []Value) {
		for _, t := range texts {
			all = append(all, Value{t, origin})
		}
		return all
	}
	return Settings{
		Registry: one(c.Registry), Hub: one(c.Hub), Environment: one(c.Environment), Trust: one(c.Trust),
		Keys: several(c.Keys), SignWith: several(c.SignWith),
	}
}
