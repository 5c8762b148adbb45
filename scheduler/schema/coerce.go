package schema

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// coerce converts a ConfigMap's text to one of the types that the schema permits, if possible.
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

// validateReadings validates values, some of which were texts. If a schema permits several types for a
// text, the first possible type need not satisfy it: so each type is tried, and at last
// Kalypso's reading, which is a number whenever the text looks like one.
func (s *Schema) validateReadings(values map[string]any, texts map[string]string, steps *meter) error {
	err := s.validate(values, steps)
	wrong := concerned(err)
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		if !wrong[key] {
			continue
		}
		types, limit := s.typesOf(key, steps)
		if limit != nil {
			return limit
		}
		first := values[key]
		for _, t := range slices.Concat(types, []string{"number"}) {
			values[key] = coerce(texts[key], []string{t})
			other := s.validate(values, steps)
			if errors.Is(other, errTooManySteps) {
				return other
			}
			if concerns := concerned(other); !concerns[key] {
				first, err, wrong = values[key], other, concerns
				break
			}
		}
		values[key] = first
	}
	return err
}

// concerned lists the keys whose values are part of a failed validation.
func concerned(err error) map[string]bool {
	keys := map[string]bool{}
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return keys
	}
	next := []*jsonschema.ValidationError{invalid}
	for i := 0; i < len(next); i++ {
		if at := next[i].InstanceLocation; len(at) > 0 {
			keys[at[0]] = true
		}
		next = append(next, next[i].Causes...)
	}
	return keys
}

// typesOf lists the types that a schema permits for the value of key, string first.
func typesOf(schema *jsonschema.Schema, key string, steps *meter) ([]string, error) {
	var types []string
	declared := func(of *jsonschema.Schema) error {
		more, err := declaredTypes(of, steps)
		types = addTypes(types, more...)
		return err
	}
	err := eachPart(schema, steps, func(part *jsonschema.Schema) (err error) {
		if property, ok := part.Properties[key]; ok {
			err = declared(property)
		}
		for p, property := range part.PatternProperties {
			if err == nil {
				err = steps.take(p.(*pattern).steps(key))
			}
			if err == nil && p.MatchString(key) {
				err = declared(property)
			}
		}
		if rest, ok := part.AdditionalProperties.(*jsonschema.Schema); ok && err == nil && part.Properties[key] == nil {
			err = declared(rest)
		}
		return err
	})
	slices.SortStableFunc(types, func(a, b string) int {
		rank := []string{"string", "integer", "number", "boolean", "null"}
		return slices.Index(rank, a) - slices.Index(rank, b)
	})
	return types, err
}

// addTypes adds the types of more that are missing.
func addTypes(types []string, more ...string) []string {
	for _, t := range more {
		if !slices.Contains(types, t) {
			types = append(types, t)
		}
	}
	return types
}

// declaredTypes lists the types that a value's schema names, or that its other keywords imply.
func declaredTypes(schema *jsonschema.Schema, steps *meter) ([]string, error) {
	var types []string
	numeric := false
	err := eachPart(schema, steps, func(part *jsonschema.Schema) error {
		if part.Types != nil {
			types = addTypes(types, part.Types.ToStrings()...)
		}
		if part.Const != nil {
			types = addTypes(types, typeOf(*part.Const))
		}
		numeric = numeric || part.Minimum != nil || part.Maximum != nil || part.ExclusiveMinimum != nil || part.ExclusiveMaximum != nil || part.MultipleOf != nil
		if part.Enum == nil {
			return nil
		}
		for _, value := range part.Enum.Values {
			types = addTypes(types, typeOf(value))
		}
		return steps.take(len(part.Enum.Values))
	})
	if len(types) == 0 && numeric {
		types = []string{"number"}
	}
	return types, err
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

// eachPart visits a schema and those that it refers to or is combined of, each once, and each for a step.
func eachPart(schema *jsonschema.Schema, steps *meter, visit func(*jsonschema.Schema) error) error {
	seen := map[*jsonschema.Schema]bool{nil: true}
	next := []*jsonschema.Schema{schema}
	for i := 0; i < len(next); i++ {
		part := next[i]
		if seen[part] {
			continue
		}
		seen[part] = true
		if err := steps.take(1); err != nil {
			return err
		}
		if err := visit(part); err != nil {
			return err
		}
		next = append(next, slices.Concat(part.AllOf, part.AnyOf, part.OneOf, []*jsonschema.Schema{part.Ref, part.Then, part.Else})...)
	}
	return nil
}

// plain converts a value of yaml.v2 to one of JSON.
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
