package scheduler

import (
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
			s := compileSchema(text)
			require.NoError(t, s.err)
			require.Equal(t, keys == nil, s.readsAll)
			if keys != nil {
				require.ElementsMatch(t, keys, sortedKeys(s.reads))
			}
		})
	}
}

func TestConfigurationsShareWhatASchemaFinds(t *testing.T) {
	s := compileSchema(`{"properties": {"PORT": {"type": "integer"}, "LIST": {"maxItems": 2}}}`)
	list := entry{key: "LIST", value: parseValue("[1, 2]"), text: "[1, 2]"}
	layers := []layer{
		{entries: []entry{{key: "PORT", value: "x"}}},
		{entries: []entry{{key: "PORT", value: "1"}}},
		{entries: []entry{{key: "OTHER", value: "1"}}},
		{entries: []entry{list}},
		{entries: []entry{list}},
	}
	w := newYAMLWriter(layers)
	found := func(members ...int) int {
		var some []layer
		for _, i := range members {
			some = append(some, layers[i])
		}
		outcome, err := s.check(compose(some, w), maxSchemaSteps)
		require.NoError(t, err)
		return len(outcome.violations)
	}
	for range 2 {
		require.Equal(t, 1, found(0))
		require.Equal(t, 1, found(0, 2))
		require.Equal(t, 0, found(0, 1))
		require.Equal(t, 1, found(1, 0, 2))
		require.Equal(t, 0, found(3))
		require.Equal(t, 1, found(3, 4))
		require.Equal(t, 2, found(0, 3, 4))
	}
	require.Len(t, s.shared, 3)
}
