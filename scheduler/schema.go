package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// schemaUse is a schema that applies to an assignment, and where it comes from.
type schemaUse struct {
	owner string // such as: ConfigSchema "ports"
	at    finding.Position
	text  string
	// limit is how many steps the schemas of a workload may take together. Zero is maxSchemaSteps for this one alone.
	limit int
	// refused says that the schemas of the workload's registration are too large together.
	refused bool
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

	dynamic []*jsonschema.Schema // what a $dynamicRef may stand for
	facts   map[*jsonschema.Schema]facts

	reads    map[string]bool // keys; see readsOf
	readsAll bool
	mu       sync.Mutex
	shared   map[string]outcome // by what relevant returns
}

// checks keeps what schemas found wrong with one configuration.
type checks struct {
	mu    sync.Mutex
	known []schemaCheck
}

type schemaCheck struct {
	schema *compiledSchema
	outcome
}

// outcome is what a check has found, and how many steps it took: so others who ask the same may pay for it as if they
// had made it. A check that gave up took one step more than it was permitted.
type outcome struct {
	violations []violation
	steps      int
	gaveUp     bool
}

// answers reports whether a new check within limit would have no other outcome.
func (o outcome) answers(limit int) bool { return !o.gaveUp || o.steps > limit }

// violation is one way in which a configuration is not what its schema asks for.
type violation struct {
	key     string // the value's; empty for the configuration as a whole
	path    string // of the value, for people
	message string
	quotes  bool // the message has the value in it
}

func newValidator() *validator { return &validator{compiled: map[string]*compiledSchema{}} }

// validate returns all that the schemas find wrong with a configuration, each with its place.
func (v *validator) validate(ctx context.Context, c *config, uses []schemaUse) error {
	var errs []error
	taken := 0 // of what the workload's schemas share
	for _, use := range uses {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		limit := maxSchemaSteps
		if use.limit > 0 {
			limit = use.limit - taken
		}
		if use.refused {
			errs = append(errs, tooLarge(use))
			break
		}
		found, err := v.check(c, use.text, limit)
		if err != nil {
			errs = append(errs, finding.Errorf(finding.CodeSchema, use.at, "", "%s cannot be used: %v", use.owner, err))
			continue
		}
		if found.steps > limit {
			errs = append(errs, tooCostly(use))
			break // what may follow has no steps left, or as few
		}
		if use.limit > 0 {
			taken += found.steps
		}
		errs = append(errs, violated(c, use, found.violations)...)
	}
	return finding.Join(errs)
}

func violated(c *config, use schemaUse, violations []violation) (errs []error) {
	for _, found := range violations {
		at, says := c.origin(found.key), fmt.Sprintf("%s at %s", use.owner, use.at)
		if at == (finding.Position{}) {
			at, says = use.at, use.owner
		}
		errs = append(errs, finding.Errorf(finding.CodeSchemaViolation, at, "", "configuration: %s, says %s", strings.TrimSpace(found.path+" "+found.message), says))
	}
	return errs
}

// check returns what a schema finds wrong with c. Its error is that of a schema which cannot be used.
func (v *validator) check(c *config, text string, limit int) (outcome, error) {
	compiled := v.compile(text)
	if compiled.err != nil {
		return outcome{}, compiled.err
	}
	c.checks.mu.Lock()
	defer c.checks.mu.Unlock()
	i := slices.IndexFunc(c.checks.known, func(known schemaCheck) bool { return known.schema == compiled })
	if i >= 0 && c.checks.known[i].answers(limit) {
		return c.checks.known[i].outcome, nil
	}
	found, err := compiled.check(c, limit)
	switch made := (schemaCheck{compiled, found}); {
	case err != nil:
		return outcome{}, err
	case i >= 0:
		c.checks.known[i] = made
	default:
		c.checks.known = append(c.checks.known, made)
	}
	return found, nil
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
	document, bounded, err := readSchema(text)
	if err != nil {
		return &compiledSchema{err: err}
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
	return &compiledSchema{err: errors.New(finding.Sentence("%s", strings.ReplaceAll(first.Error(), schemaURL, "")))}
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

// checkValues returns what the schema finds wrong with values, within limit steps.
func (s *compiledSchema) checkValues(all []value, limit int) (outcome, error) {
	steps := &meter{left: limit}
	found, err := s.violations(all, steps)
	if errors.Is(err, errTooManySchemaSteps) {
		return outcome{steps: limit + 1, gaveUp: true}, nil
	}
	return outcome{violations: found, steps: limit - steps.left}, err
}

func (s *compiledSchema) violations(all []value, steps *meter) ([]violation, error) {
	values, texts := make(map[string]any, len(all)), map[string]string{}
	for _, v := range all {
		text, ok := v.get().(string)
		if !ok {
			values[v.key] = plain(v.get())
			continue
		}
		types, err := s.typesOf(v.key, steps)
		if err != nil {
			return nil, err
		}
		values[v.key], texts[v.key] = coerce(text, types), text
	}
	err := s.validateReadings(values, texts, steps)
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return nil, err
	}
	found := violationsOf(invalid, message.NewPrinter(language.English))
	for i, v := range found {
		if v.quotes && LooksSecret(strings.TrimSuffix(v.path, ":"), fmt.Sprint(values[v.key])) {
			found[i].message = "not what is asked for (the value looks like a secret and is not shown)"
		}
	}
	slices.SortFunc(found, func(a, b violation) int { return strings.Compare(a.path+a.message, b.path+b.message) })
	return slices.Compact(found), nil
}

// validate has the library check values, if that is within the steps that are left. The error is the library's, or
// wraps errTooManySchemaSteps.
func (s *compiledSchema) validate(values map[string]any, steps *meter) error {
	n, err := s.steps(values, steps.left)
	if err == nil {
		err = steps.take(n)
	}
	if err != nil {
		return err
	}
	return s.schema.Validate(values)
}

// keyTypes is what typesOf has found, and the steps that it took.
type keyTypes struct {
	types []string
	steps int
}

// typesOf lists the types that the schema permits for the value of key, string first. It looks once for each key, and
// counts the steps each time.
func (s *compiledSchema) typesOf(key string, steps *meter) ([]string, error) {
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
	v := violation{message: finding.Sentence("%s", e.ErrorKind.LocalizedString(printer)), quotes: quotesValue(e.ErrorKind)}
	if len(e.InstanceLocation) > 0 {
		v.key, v.path = e.InstanceLocation[0], strings.Join(e.InstanceLocation, ".")+":"
	}
	return append(found, v)
}
