// Package schema checks configurations against untrusted JSON schemas, within bounds on time and memory.
//
// Begin with [Cache.Compile], and ask the [Schema] with [Schema.Check]. Drafts 4 to 2020-12 are
// supported. A result never depends on the network, because no reference leads out of the schema. Before a check, its work
// is estimated as an upper bound in steps, and a check above its limit is not made. So a
// hostile schema fails the assignments of its owner and does not slow down others.
//
// The texts of a ConfigMap are read as the types that the schema permits. No message repeats a value that looks like a
// secret.
package schema

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// Cache compiles each schema once. Several goroutines may use it at once.
type Cache struct {
	mu       sync.RWMutex
	compiled map[string]*Schema // by text
}

// Schema is a compiled schema. Several goroutines may use it at once.
type Schema struct {
	schema *jsonschema.Schema
	err    error
	types  sync.Map // of a key: see typesOf

	dynamic []*jsonschema.Schema // the possible targets of a $dynamicRef
	facts   map[*jsonschema.Schema]facts

	reads    map[string]bool // keys; see readsOf
	readsAll bool
}

// Outcome is the result of a check. Steps are counted even if an earlier result is reused, so that the same
// input always costs the same. A check that gave up counts one step more than its limit.
type Outcome struct {
	Violations []Violation
	Steps      int
	gaveUp     bool
}

// Answers reports whether a new check within limit would have the same outcome.
func (o Outcome) Answers(limit int) bool { return !o.gaveUp || o.Steps > limit }

// Value is one value of a configuration.
type Value struct {
	Key   string
	Value any // a string, or a structure as yaml.v2 reads it
}

// Violation is one rule of a schema that a configuration breaks.
type Violation struct {
	Key     string // the value's; empty for the configuration as a whole
	Path    string // of the value, for people
	Message string
	quotes  bool // the message repeats the value
}

// NewCache returns an empty cache.
func NewCache() *Cache { return &Cache{compiled: map[string]*Schema{}} }

// Compile returns the schema of a text in JSON. It returns an error if the text is no schema, refers to another
// document, or exceeds a bound.
func (c *Cache) Compile(text string) (*Schema, error) {
	s := c.compile(text)
	return s, s.err
}

func (c *Cache) compile(text string) *Schema {
	c.mu.RLock()
	compiled, ok := c.compiled[text]
	c.mu.RUnlock()
	if ok {
		return compiled
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if compiled, ok = c.compiled[text]; !ok {
		compiled = compile(text)
		c.compiled[text] = compiled
	}
	return compiled
}

// compile reads a text without $schema as draft 7 or, if it is not valid as such, as draft 4, whose
// keywords have another form.
func compile(text string) *Schema {
	document, bounded, err := read(text)
	if err != nil {
		return &Schema{err: err}
	}
	var first error
	for _, draft := range []*jsonschema.Draft{jsonschema.Draft7, jsonschema.Draft4} {
		compiled, err := bounded.compile(document, draft)
		if err == nil {
			compiled.reads, compiled.readsAll = readsOf(compiled.schema)
			return compiled
		}
		if first == nil {
			first = err
		}
	}
	return &Schema{err: errors.New(finding.Sentence("%s", strings.ReplaceAll(first.Error(), baseURL, "")))}
}

// baseURL names a schema while it is compiled. It is absolute, so that the library does not put the working directory
// before it.
const baseURL = "schema:///"

// noLoader refuses references to other documents: a schema's meaning must not depend on the network.
type noLoader struct{}

// Load refuses.
func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is not part of the schema, and only references within it are followed", url)
}

// checkValues returns the violations of the schema by values, within limit steps.
func (s *Schema) checkValues(all []Value, limit int) (Outcome, error) {
	steps := &meter{left: limit}
	found, err := s.violations(all, steps)
	if errors.Is(err, errTooManySteps) {
		return Outcome{Steps: limit + 1, gaveUp: true}, nil
	}
	return Outcome{Violations: found, Steps: limit - steps.left}, err
}

func (s *Schema) violations(all []Value, steps *meter) ([]Violation, error) {
	values, texts := make(map[string]any, len(all)), map[string]string{}
	for _, v := range all {
		text, ok := v.Value.(string)
		if !ok {
			values[v.Key] = plain(v.Value)
			continue
		}
		types, err := s.typesOf(v.Key, steps)
		if err != nil {
			return nil, err
		}
		values[v.Key], texts[v.Key] = coerce(text, types), text
	}
	err := s.validateReadings(values, texts, steps)
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return nil, err
	}
	found := violationsOf(invalid, message.NewPrinter(language.English))
	for i, v := range found {
		if v.quotes && show.LooksSecret(strings.TrimSuffix(v.Path, ":"), fmt.Sprint(values[v.Key])) {
			found[i].Message = "not what is asked for (the value looks like a secret and is not shown)"
		}
	}
	slices.SortFunc(found, func(a, b Violation) int { return strings.Compare(a.Path+a.Message, b.Path+b.Message) })
	return slices.Compact(found), nil
}

// validate lets the library check values, if that is within the remaining steps. The error is the library's, or
// wraps errTooManySteps.
func (s *Schema) validate(values map[string]any, steps *meter) error {
	n, err := s.steps(values, steps.left)
	if err == nil {
		err = steps.take(n)
	}
	if err != nil {
		return err
	}
	return s.schema.Validate(values)
}

// keyTypes is a result of typesOf, and its steps.
type keyTypes struct {
	types []string
	steps int
}

// typesOf lists the types that the schema permits for the value of key, string first. It searches once for each key, and
// counts the steps each time.
func (s *Schema) typesOf(key string, steps *meter) ([]string, error) {
	if known, ok := s.types.Load(key); ok {
		return known.(keyTypes).types, steps.take(known.(keyTypes).steps)
	}
	before := steps.left
	types, err := typesOf(s.schema, key, steps)
	if err == nil {
		s.types.Store(key, keyTypes{types, before - steps.left})
	}
	return types, err
}

// quotesValue reports whether a message of that kind repeats the value.
func quotesValue(k jsonschema.ErrorKind) bool {
	switch k.(type) {
	case *kind.Pattern, *kind.Format, *kind.ContentEncoding, *kind.ContentMediaType, *kind.ContentSchema,
		*kind.Minimum, *kind.Maximum, *kind.ExclusiveMinimum, *kind.ExclusiveMaximum, *kind.MultipleOf:
		return true
	}
	return false
}

// violationsOf lists the innermost causes of a failed validation.
func violationsOf(e *jsonschema.ValidationError, printer *message.Printer) []Violation {
	var found []Violation
	for _, cause := range e.Causes {
		found = append(found, violationsOf(cause, printer)...)
	}
	if len(e.Causes) > 0 {
		return found
	}
	if extra, ok := e.ErrorKind.(*kind.AdditionalProperties); ok && len(e.InstanceLocation) == 0 {
		for _, key := range extra.Properties {
			found = append(found, Violation{Key: key, Path: key + ":", Message: "not allowed"})
		}
		return found
	}
	v := Violation{Message: finding.Sentence("%s", e.ErrorKind.LocalizedString(printer)), quotes: quotesValue(e.ErrorKind)}
	if len(e.InstanceLocation) > 0 {
		v.Key, v.Path = e.InstanceLocation[0], strings.Join(e.InstanceLocation, ".")+":"
	}
	return append(found, v)
}
