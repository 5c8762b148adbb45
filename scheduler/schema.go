package scheduler

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
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

// validator checks configurations against schemas. It compiles each schema once and checks each pair
// once, because the assignments that share both are many.
type validator struct {
	mu       sync.Mutex
	compiled map[string]*compiledSchema // by text
	checked  map[schemaCheck][]violation
}

type schemaCheck struct {
	config *config
	schema string
}

type compiledSchema struct {
	schema *jsonschema.Schema
	err    error
}

// violation is one way in which a configuration is not what its schema asks for.
type violation struct {
	key     string // the value's; empty for the configuration as a whole
	path    string // of the value, for people
	message string
}

func newValidator() *validator {
	return &validator{compiled: map[string]*compiledSchema{}, checked: map[schemaCheck][]violation{}}
}

// validate returns all that the schemas find wrong with a configuration, each with its place.
func (v *validator) validate(c *config, uses []schemaUse) error {
	var errs []error
	for _, use := range uses {
		violations, err := v.check(c, use.text)
		if err != nil {
			errs = append(errs, mistake(use.at, "", "%s cannot be used: %v", use.owner, err))
		}
		for _, found := range violations {
			at, says := c.origins[found.key], fmt.Sprintf("%s at %s", use.owner, use.at)
			if at == (Position{}) {
				at, says = use.at, use.owner
			}
			errs = append(errs, mistake(at, "", "configuration: %s, says %s", strings.TrimSpace(found.path+" "+found.message), says))
		}
	}
	return joinMistakes(errs)
}

func (v *validator) check(c *config, text string) ([]violation, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	compiled, ok := v.compiled[text]
	if !ok {
		compiled = compileSchema(text)
		v.compiled[text] = compiled
	}
	if compiled.err != nil {
		return nil, compiled.err
	}
	key := schemaCheck{c, text}
	violations, ok := v.checked[key]
	if !ok {
		violations = check(compiled.schema, c)
		v.checked[key] = violations
	}
	return violations, nil
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
		err := c.AddResource(schemaURL, document)
		if err == nil {
			var schema *jsonschema.Schema
			if schema, err = c.Compile(schemaURL); err == nil {
				return &compiledSchema{schema: schema}
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

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is not part of the schema, and only references within it are followed", url)
}

func check(schema *jsonschema.Schema, c *config) []violation {
	values := make(map[string]any, len(c.data))
	for key, value := range c.data {
		if s, ok := value.(string); ok {
			values[key] = coerce(s, typesOf(schema, key))
		} else {
			values[key] = plain(value)
		}
	}
	var invalid *jsonschema.ValidationError
	if err := schema.Validate(values); !errors.As(err, &invalid) {
		if err != nil {
			return []violation{{message: err.Error()}}
		}
		return nil
	}
	found := violationsOf(invalid, message.NewPrinter(language.English))
	slices.SortFunc(found, func(a, b violation) int { return strings.Compare(a.path+a.message, b.path+b.message) })
	return slices.Compact(found)
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
	v := violation{message: e.ErrorKind.LocalizedString(printer)}
	if len(e.InstanceLocation) > 0 {
		v.key, v.path = e.InstanceLocation[0], strings.Join(e.InstanceLocation, ".")+":"
	}
	return append(found, v)
}

// coerce makes of a ConfigMap's text what the schema wants it to be, if it can be read as that.
func coerce(s string, types []string) any {
	for _, t := range types {
		switch t {
		case "string":
			return s
		case "integer", "number":
			if i, err := strconv.ParseInt(s, 10, 64); err == nil {
				return i
			}
			if f, err := strconv.ParseFloat(s, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
				return f
			}
		case "boolean":
			if s == "true" || s == "false" {
				return s == "true"
			}
		case "null":
			if s == "" || s == "null" {
				return nil
			}
		}
	}
	return s
}

// typesOf lists the types that a schema permits for the value of key, string first.
func typesOf(schema *jsonschema.Schema, key string) []string {
	var types []string
	eachPart(schema, func(part *jsonschema.Schema) {
		if property, ok := part.Properties[key]; ok {
			types = append(types, declaredTypes(property)...)
		}
		for pattern, property := range part.PatternProperties {
			if pattern.MatchString(key) {
				types = append(types, declaredTypes(property)...)
			}
		}
		if rest, ok := part.AdditionalProperties.(*jsonschema.Schema); ok && part.Properties[key] == nil {
			types = append(types, declaredTypes(rest)...)
		}
	})
	slices.SortStableFunc(types, func(a, b string) int {
		rank := []string{"string", "integer", "number", "boolean", "null"}
		return slices.Index(rank, a) - slices.Index(rank, b)
	})
	return slices.Compact(types)
}

// declaredTypes lists the types that a value's schema names, or that its other keywords imply.
func declaredTypes(schema *jsonschema.Schema) []string {
	var types []string
	eachPart(schema, func(part *jsonschema.Schema) {
		if part.Types != nil {
			types = append(types, part.Types.ToStrings()...)
		}
		if part.Enum != nil {
			for _, value := range part.Enum.Values {
				types = append(types, typeOf(value))
			}
		}
		if part.Const != nil {
			types = append(types, typeOf(*part.Const))
		}
	})
	if len(types) == 0 {
		eachPart(schema, func(part *jsonschema.Schema) {
			if part.Minimum != nil || part.Maximum != nil || part.ExclusiveMinimum != nil || part.ExclusiveMaximum != nil || part.MultipleOf != nil {
				types = append(types, "number")
			}
		})
	}
	return types
}

func typeOf(value any) string {
	switch value.(type) {
	case string:
		return "string"
	case bool:
		return "boolean"
	case nil:
		return "null"
	default:
		return "number"
	}
}

// eachPart visits a schema and those that it refers to or is combined of, each once.
func eachPart(schema *jsonschema.Schema, visit func(*jsonschema.Schema)) {
	seen := map[*jsonschema.Schema]bool{nil: true}
	for next := []*jsonschema.Schema{schema}; len(next) > 0; {
		part := next[0]
		if next = next[1:]; seen[part] {
			continue
		}
		seen[part] = true
		visit(part)
		next = slices.Concat(next, part.AllOf, part.AnyOf, part.OneOf, []*jsonschema.Schema{part.Ref, part.Then, part.Else})
	}
}

// plain turns what yaml.v2 gives into what JSON has.
func plain(v any) any {
	switch v := v.(type) {
	case map[any]any:
		m := make(map[string]any, len(v))
		for key, value := range v {
			m[fmt.Sprint(key)] = plain(value)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, value := range v {
			list[i] = plain(value)
		}
		return list
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) { // JSON has neither
			return fmt.Sprint(v)
		}
		return v
	default:
		return v
	}
}
