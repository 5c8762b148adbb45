package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// counter counts how often the library looks at a value.
type counter struct {
	looks int
	t     *rapid.T
}

func (c *counter) Validate(*jsonschema.ValidatorContext, any) {
	if c.looks++; c.looks > MaxSteps {
		c.t.Fatalf("the library goes on after %d looks", c.looks)
	}
}

// TestTheEstimateIsAnUpperBound holds the estimate against what the library does, with schemas of all keywords that have
// subschemas, over values of all kinds.
func TestTheEstimateIsAnUpperBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, err := json.Marshal(anySchema(t))
		require.NoError(t, err)
		values := map[string]any{}
		for _, key := range []string{"a", "b", "c"} {
			values[key] = anyValue(t, 3)
		}
		s := compile(string(text))
		if s.err != nil {
			return
		}
		estimate, err := s.steps(values, MaxSteps)
		if err != nil {
			return
		}
		c := &counter{t: t}
		for part := range s.facts {
			part.Extensions = []jsonschema.SchemaExt{c}
		}
		var invalid *jsonschema.ValidationError
		if err := s.schema.Validate(values); err != nil {
			require.True(t, errors.As(err, &invalid))
		}
		require.LessOrEqual(t, c.looks, estimate, "%s", text)
	})
}

var drafts = []string{
	"http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#",
	"https://json-schema.org/draft/2019-09/schema", "https://json-schema.org/draft/2020-12/schema",
}

// anySchema is a schema with four definitions that refer to one another.
func anySchema(t *rapid.T) map[string]any {
	definitions := map[string]any{}
	for i := range 12 {
		definitions[fmt.Sprintf("d%d", i)] = anySubschema(t, 2)
	}
	schema := anySubschema(t, 3)
	schema["definitions"] = definitions
	schema["$schema"] = rapid.SampledFrom(drafts).Draw(t, "draft")
	if rapid.Bool().Draw(t, "recursive") {
		schema["$recursiveAnchor"], schema["$dynamicAnchor"] = true, "n"
	}
	return schema
}

func anySubschema(t *rapid.T, depth int) map[string]any {
	s := map[string]any{}
	inner := func() any {
		if depth == 0 || rapid.IntRange(0, 3).Draw(t, "ref") == 0 {
			return map[string]any{"$ref": fmt.Sprintf("#/definitions/d%d", rapid.IntRange(0, 3).Draw(t, "definition"))}
		}
		return anySubschema(t, depth-1)
	}
	for range rapid.IntRange(1, 3).Draw(t, "keywords") {
		switch keyword := rapid.SampledFrom([]string{
			"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "properties", "patternProperties", "additionalProperties", "propertyNames",
			"dependencies", "dependentSchemas", "unevaluatedProperties", "items", "additionalItems", "prefixItems", "contains", "unevaluatedItems",
			"$recursiveRef", "$dynamicRef", "enum", "type", "uniqueItems",
		}).Draw(t, "keyword"); keyword {
		case "allOf", "anyOf", "oneOf", "prefixItems":
			s[keyword] = []any{inner(), inner()}
		case "properties", "patternProperties", "dependencies", "dependentSchemas":
			s[keyword] = map[string]any{"a": inner(), "b": inner()}
		case "$recursiveRef":
			s[keyword] = "#"
		case "$dynamicRef":
			s[keyword] = "#n"
		case "enum":
			s[keyword] = []any{"x", 1, []any{}}
		case "type":
			s[keyword] = rapid.SampledFrom([]string{"object", "array", "string", "number"}).Draw(t, "type")
		case "uniqueItems":
			s[keyword] = true
		default:
			s[keyword] = inner()
		}
	}
	return s
}

func anyValue(t *rapid.T, depth int) any {
	switch kind := rapid.IntRange(0, 4).Draw(t, "kind"); {
	case depth > 0 && kind < 2:
		object := map[string]any{}
		for _, key := range []string{"a", "b"} {
			object[key] = anyValue(t, depth-1)
		}
		return object
	case depth > 0 && kind == 2:
		return []any{anyValue(t, depth-1), anyValue(t, depth-1)}
	case kind == 3:
		return int64(1)
	}
	return "x"
}
