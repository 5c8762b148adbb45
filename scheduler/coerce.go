package scheduler

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

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

// validateReadings validates values, of which some were texts. Where a schema permits several types for a
// text, the first that it can be read as need not be one that satisfies it: so each is tried, and at last
// what Kalypso takes it for, which is a number wherever it looks like one.
func validateReadings(schema *jsonschema.Schema, values map[string]any, texts map[string]string) error {
	err := schema.Validate(values)
	for _, key := range sortedKeys(texts) {
		if !concerns(err, key) {
			continue
		}
		first := values[key]
		for _, t := range append(typesOf(schema, key), "number") {
			values[key] = coerce(texts[key], []string{t})
			if other := schema.Validate(values); !concerns(other, key) {
				first, err = values[key], other
				break
			}
		}
		values[key] = first
	}
	return err
}

// concerns says whether a failed validation has to do with the value of key.
func concerns(err error, key string) bool {
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return false
	}
	if len(invalid.InstanceLocation) > 0 && invalid.InstanceLocation[0] == key {
		return true
	}
	return slices.ContainsFunc(invalid.Causes, func(cause *jsonschema.ValidationError) bool { return concerns(cause, key) })
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
