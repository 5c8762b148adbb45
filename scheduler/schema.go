package scheduler

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
)

// schemaUse is a schema that applies to an assignment, and where it comes from.
type schemaUse struct {
	owner string // such as: ConfigSchema "ports"
	at    Position
	text  string
}

// validator checks configurations against schemas. It compiles each schema once, and a configuration
// keeps what was found, because the assignments that share both are many.
type validator struct {
	mu       sync.RWMutex
	compiled map[string]*compiledSchema // by text
}

type compiledSchema struct {
	schema *jsonschema.Schema
	err    error
	types  sync.Map // of a key: see typesOf

	reads    map[string]bool // keys; see readsOf
	readsAll bool
	mu       sync.Mutex
	shared   map[string][]violation // by what relevant returns
}

// checks keeps what schemas found wrong with one configuration.
type checks struct {
	mu    sync.Mutex
	known []schemaCheck
}

type schemaCheck struct {
	schema     *compiledSchema
	violations []violation
}

// violation is one way in which a configuration is not what its schema asks for.
type violation struct {
	key     string // the value's; empty for the configuration as a whole
	path    string // of the value, for people
	message string
	quotes  bool // the message has the value in it
}

func newValidator() *validator { return &validator{compiled: map[string]*compiledSchema{}} }

// validate returns all that the schemas find wrong with a configuration, each with its place.
func (v *validator) validate(c *config, uses []schemaUse) error {
	var errs []error
	for _, use := range uses {
		violations, err := v.check(c, use.text)
		if err != nil {
			errs = append(errs, coded(codeSchema, mistake(use.at, "", "%s cannot be used: %v", use.owner, err)))
		}
		for _, found := range violations {
			at, says := c.origin(found.key), fmt.Sprintf("%s at %s", use.owner, use.at)
			if at == (Position{}) {
				at, says = use.at, use.owner
			}
			errs = append(errs, coded(codeSchemaViolation, mistake(at, "", "configuration: %s, says %s", strings.TrimSpace(found.path+" "+found.message), says)))
		}
	}
	return joinMistakes(errs)
}

func (v *validator) check(c *config, text string) ([]violation, error) {
	compiled := v.compile(text)
	if compiled.err != nil {
		return nil, compiled.err
	}
	c.checks.mu.Lock()
	defer c.checks.mu.Unlock()
	for _, known := range c.checks.known {
		if known.schema == compiled {
			return known.violations, nil
		}
	}
	violations := compiled.check(c)
	c.checks.known = append(c.checks.known, schemaCheck{compiled, violations})
	return violations, nil
}

func (v *validator) compile(text string) *compiledSchema {
	v.mu.RLock()
	compiled, ok := v.compiled[text]
	v.mu.RUnlock()
	if ok {
		return compiled
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if compiled, ok = v.compiled[text]; !ok {
		compiled = compileSchema(text)
		v.compiled[text] = compiled
	}
	return compiled
}

// compileSchema takes a text without $schema for draft 7 or, where it is none, for draft 4, whose
// keywords are written in another way.
func compileSchema(text string) *compiledSchema {
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return &compiledSchema{err: fmt.Errorf("no JSON: %w", err)}
	}
	var first error
	for _, draft := range []*jsonschema.Draft{jsonschema.Draft7, jsonschema.Draft4} {
		c := jsonschema.NewCompiler()
		c.DefaultDraft(draft)
		c.UseLoader(noLoader{})
		c.AssertFormat() // from 2019-09 on it would otherwise be a remark, which it is not with Kalypso
		err := c.AddResource(schemaURL, document)
		if err == nil {
			var schema *jsonschema.Schema
			if schema, err = c.Compile(schemaURL); err == nil {
				keys, all := readsOf(schema)
				return &compiledSchema{schema: schema, reads: keys, readsAll: all}
			}
		}
		if first == nil {
			first = err
		}
	}
	return &compiledSchema{err: errors.New(strings.ReplaceAll(first.Error(), schemaURL, ""))}
}

// schemaURL is what a schema is called while it is compiled; it is an absolute URL so that the library
// does not put the working directory before it.
const schemaURL = "schema:///"

// noLoader refuses references to other documents: what a schema says must not depend on the network.
type noLoader struct{}

// Load refuses.
func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is not part of the schema, and only references within it are followed", url)
}

// checkValues returns what the schema finds wrong with values.
func (s *compiledSchema) checkValues(all []value) []violation {
	values, texts := make(map[string]any, len(all)), map[string]string{}
	for _, v := range all {
		if text, ok := v.get().(string); ok {
			values[v.key], texts[v.key] = coerce(text, s.typesOf(v.key)), text
		} else {
			values[v.key] = plain(v.get())
		}
	}
	var invalid *jsonschema.ValidationError
	if err := validateReadings(s.schema, values, texts); !errors.As(err, &invalid) {
		if err != nil {
			return []violation{{message: err.Error()}}
		}
		return nil
	}
	found := violationsOf(invalid, message.NewPrinter(language.English))
	for i, v := range found {
		if v.quotes && LooksSecret(strings.TrimSuffix(v.path, ":"), fmt.Sprint(values[v.key])) {
			found[i].message = "not what is asked for (the value looks like a secret and is not shown)"
		}
	}
	slices.SortFunc(found, func(a, b violation) int { return strings.Compare(a.path+a.message, b.path+b.message) })
	return slices.Compact(found)
}

// typesOf is typesOf, asked once for each key.
func (s *compiledSchema) typesOf(key string) []string {
	known, ok := s.types.Load(key)
	if !ok {
		known, _ = s.types.LoadOrStore(key, typesOf(s.schema, key))
	}
	return known.([]string)
}

// quotesValue says whether a message of that kind repeats the value.
func quotesValue(k jsonschema.ErrorKind) bool {
	switch k.(type) {
	case *kind.Pattern, *kind.Format, *kind.ContentEncoding, *kind.ContentMediaType, *kind.ContentSchema,
		*kind.Minimum, *kind.Maximum, *kind.ExclusiveMinimum, *kind.ExclusiveMaximum, *kind.MultipleOf:
		return true
	}
	return false
}

// violationsOf lists the innermost causes of a failed validation.
func violationsOf(e *jsonschema.ValidationError, printer *message.Printer) []violation {
	var found []violation
	for _, cause := range e.Causes {
		found = append(found, violationsOf(cause, printer)...)
	}
	if len(e.Causes) > 0 {
		return found
	}
	if extra, ok := e.ErrorKind.(*kind.AdditionalProperties); ok && len(e.InstanceLocation) == 0 {
		for _, key := range extra.Properties {
			found = append(found, violation{key: key, path: key + ":", message: "not allowed"})
		}
		return found
	}
	v := violation{message: e.ErrorKind.LocalizedString(printer), quotes: quotesValue(e.ErrorKind)}
	if len(e.InstanceLocation) > 0 {
		v.key, v.path = e.InstanceLocation[0], strings.Join(e.InstanceLocation, ".")+":"
	}
	return append(found, v)
}
