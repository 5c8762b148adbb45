package schema

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatASchemaReads(t *testing.T) {
	for text, keys := range map[string][]string{
		`true`: {},
		`{"type": "object", "title": "x", "required": ["A"], "properties": {"B": {"additionalProperties": false}}}`:                      {"A", "B"},
		`{"allOf": [{"required": ["A"]}], "if": {"required": ["B"]}, "then": {"not": {"required": ["C"]}}, "else": {"required": ["D"]}}`: {"A", "B", "C", "D"},
		`{"$ref": "#/definitions/a", "definitions": {"a": {"properties": {"A": {}}}, "b": {"properties": {"B": {}}}}}`:                   {"A"},
		`{"$ref": "#"}`: {},
		`{"properties": {"A": {}}, "minProperties": 1}`:    nil,
		`{"additionalProperties": false}`:                  nil,
		`{"patternProperties": {"^A": {}}}`:                nil,
		`{"propertyNames": {"maxLength": 3}}`:              nil,
		`{"dependencies": {"A": ["B"]}}`:                   nil,
		`{"anyOf": [{"enum": [{}]}, {"required": ["A"]}]}`: nil,
		`{"const": {}}`: nil,
	} {
		t.Run(text, func(t *testing.T) {
			s := compile(text)
			require.NoError(t, s.err)
			require.Equal(t, keys == nil, s.readsAll)
			if keys != nil {
				require.ElementsMatch(t, keys, slices.Sorted(maps.Keys(s.reads)))
			}
		})
	}
}

func TestASchemaFindsTheSameAgain(t *testing.T) {
	s := compile(`{"properties": {"PORT": {"type": "integer"}, "LIST": {"maxItems": 2}}}`)
	require.NoError(t, s.err)
	text, number, other := Value{Key: "PORT", Value: "x"}, Value{Key: "PORT", Value: "1"}, Value{Key: "OTHER", Value: "1"}
	list, merged := Value{Key: "LIST", Value: []any{1, 2}}, Value{Key: "LIST", Value: []any{1, 2, 1, 2}}
	found := func(values ...Value) int {
		outcome, err := s.Check(slices.Values(values), MaxSteps)
		require.NoError(t, err)
		return len(outcome.Violations)
	}
	for range 2 {
		require.Equal(t, 1, found(text))
		require.Equal(t, 1, found(other, text))
		require.Equal(t, 0, found(number))
		require.Equal(t, 0, found(list))
		require.Equal(t, 1, found(merged))
		require.Equal(t, 2, found(merged, text))
	}
}

func TestPlainKeepsNumbersThatJSONHas(t *testing.T) {
	require.Equal(t, []any{"+Inf", "NaN", 1.5, 1, nil}, plain([]any{math.Inf(1), math.NaN(), 1.5, 1, nil}))
}
