package yamlvalue

import (
	"maps"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAWriterMarshalsAsYAMLDoes(t *testing.T) {
	known := map[string]any{
		"NAME": "one", "URL_7": "https://example.com/region/7", "ON": "true", "10": "8010", "9": 9, "null": nil, "empty": "", "quoted": "a: b # c",
		"LIST": []any{map[any]any{"name": "region", "value": 7, "inner": map[any]any{"list": []any{1, []any{true, "x"}}, "none": nil}}, "text", []any{}},
		"MAP":  map[any]any{"b": 1.5, "a": map[any]any{"deep": "er"}, "e": map[any]any{}},
		"é":    "ü", "zero": math.Copysign(0, -1), "nan": math.NaN(), "big": uint64(math.MaxUint64),
	}
	w := NewWriter(maps.All(known))
	for name, v := range map[string]any{
		"all that is known":            known,
		"texts of several lines":       map[string]any{"NAME": "one", "LIST": "- name: a\n  value: 1\n", "MAP": "  begins with spaces\n\nand ends so  \n\n", "ON": "\ttab\n", "9": "a\n"},
		"other texts of lines":         map[string]any{"NAME": "a\nb", "URL_7": "a\n\n", "LIST": "- ü\n- \U0001F600\n", "MAP": "a\r\n", "10": "a \nb\n", "ON": "\n", "9": "# a\n---\n...\n", "empty": "a: |\n    b\n'\"\n", "quoted": "~\n", "null": "a\n  b\n c\n"},
		"values that are not known":    map[string]any{"NAME": "other", "10": 4711, "ON": false, "LIST": []any{"other"}},
		"maps of another type":         map[string]any{"MAP": map[string]any{"x": 1, "a": []any{}}, "NAME": []string{"a", "b"}},
		"a key that is not known":      map[string]any{"other": "one", "NAME": "one"},
		"no pair":                      map[string]any{},
		"a list":                       known["LIST"],
		"a list that is not known":     []any{"other", 4711},
		"an empty list":                []any{},
		"a map as its parser makes it": known["MAP"],
		"a text":                       "one",
		"none":                         nil,
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, Marshal(v), w.Marshal(v)) })
	}
}
