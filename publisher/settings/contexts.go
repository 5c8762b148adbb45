package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/bundle/show"
)

// Context names the registry, the hub and the rest that a person works with, for commands outside a repository and for
// what the repository leaves open. It holds names of files and no secrets.
type Context struct {
	Name        string   `yaml:"name" json:"name"`
	Registry    string   `yaml:"registry,omitempty" json:"registry,omitempty"`
	Hub         string   `yaml:"hub,omitempty" json:"hub,omitempty"`
	Environment string   `yaml:"environment,omitempty" json:"environment,omitempty"`
	Trust       string   `yaml:"trust,omitempty" json:"trust,omitempty"`
	Keys        []string `yaml:"keys,omitempty" json:"keys,omitempty"`
	SignWith    []string `yaml:"signWith,omitempty" json:"signWith,omitempty"`
}

// contextName is the form of the names of contexts.
var contextName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,62}$`)

// Check returns an error for a context that cannot be used.
func (c Context) Check() error {
	if !contextName.MatchString(c.Name) {
		return &Error{Text: fmt.Sprintf("%q is not the name of a context: up to 63 letters, digits, '.', '_', '@' and '-'", c.Name)}
	}
	if c.Trust != "" && len(c.Keys) > 0 {
		return &Error{Text: fmt.Sprintf("context %s: keys and trust exclude each other", c.Name), Hint: "keep one of them"}
	}
	_, err := merge(nil, c.settings())
	return err
}

// settings returns what the context gives.
func (c Context) settings() Settings {
	origin := "context " + c.Name
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

// Contexts are a person's contexts, sorted by name.
type Contexts struct {
	// Current is the name of the context in use; empty for none.
	Current  string    `yaml:"current,omitempty" json:"current,omitempty"`
	Contexts []Context `yaml:"contexts" json:"contexts"`
}

// UnknownContextError means that there is no context of a name.
type UnknownContextError struct {
	Name, Near string // Near may be empty
	Known      []string
}

func (e *UnknownContextError) Error() string { return fmt.Sprintf("there is no context %q", e.Name) }

// maxContextsBytes bounds the file of contexts.
const maxContextsBytes = 1 << 20

// ContextsFile returns the name of the file with a person's contexts, in the user's configuration folder.
func ContextsFile() (string, error) {
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "wherry", "contexts.yaml"), err
}

// ReadContexts reads a file of contexts. Without the file there are none.
func ReadContexts(file string) (*Contexts, error) {
	data, err := diskfile.Read(file, maxContextsBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return &Contexts{Contexts: []Context{}}, nil
	}
	if err != nil {
		return nil, &Error{Text: err.Error(), Err: err}
	}
	c := &Contexts{Contexts: []Context{}}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		text := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), " in type settings.Context", "")
		return nil, &Error{Text: show.Redact(file + ": " + text), Hint: "correct the file, or remove it and make the contexts again", Err: err}
	}
	return c, nil
}

// Write replaces the file, of which its owner alone can read the content, as a whole or not at all.
func (c *Contexts) Write(file string) (err error) {
	data, err := yaml.Marshal(c)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return diskfile.Replace(file, 0o600, data)
}

// Names lists the names of the contexts.
func (c *Contexts) Names() (names []string) {
	for _, one := range c.Contexts {
		names = append(names, one.Name)
	}
	return names
}

// Get returns the context of a name, or an [*UnknownContextError].
func (c *Contexts) Get(name string) (Context, error) {
	for _, one := range c.Contexts {
		if one.Name == name {
			return one, nil
		}
	}
	return Context{}, &UnknownContextError{Name: name, Near: show.Nearest(name, c.Names()), Known: c.Names()}
}

// Use makes a context the current one. An empty name leaves none.
func (c *Contexts) Use(name string) error {
	if name != "" {
		if _, err := c.Get(name); err != nil {
			return err
		}
	}
	c.Current = name
	return nil
}

// Set adds a context, or replaces the one of its name.
func (c *Contexts) Set(one Context) error {
	if err := one.Check(); err != nil {
		return err
	}
	if i := slices.IndexFunc(c.Contexts, func(o Context) bool { return o.Name == one.Name }); i >= 0 {
		c.Contexts[i] = one
	} else {
		c.Contexts = append(c.Contexts, one)
	}
	slices.SortFunc(c.Contexts, func(a, b Context) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// Remove removes a context. If it was the current one, none is afterwards.
func (c *Contexts) Remove(name string) error {
	if _, err := c.Get(name); err != nil {
		return err
	}
	c.Contexts = slices.DeleteFunc(c.Contexts, func(o Context) bool { return o.Name == name })
	if c.Current == name {
		c.Current = ""
	}
	return nil
}
