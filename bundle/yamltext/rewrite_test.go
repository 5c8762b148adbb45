package yamltext

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
)

// swap replaces X in texts by value.
func swap(value string) func(*yaml.Node) (Value, bool, error) {
	return func(n *yaml.Node) (Value, bool, error) {
		return Value{Text: strings.ReplaceAll(n.Value, "X", value)}, strings.Contains(n.Value, "X"), nil
	}
}

func TestRewrite(t *testing.T) {
	for _, tt := range []struct{ name, text, value, want string }{
		{"a plain text", "a: X # why\nb: c\n", "d", "a: d # why\nb: c\n"},
		{"a plain text that needs quotes", "a: X\n", "d: e", "a: \"d: e\"\n"},
		{"quotes stay", "a: 'X'\nb: \"X\"\n", "it's", "a: 'it''s'\nb: \"it's\"\n"},
		{"a text with a line break", "a: 'X'\n", "1\n2", "a: \"1\\n2\"\n"},
		{"keys stay", "X: X\n", "d", "X: d\n"},
		{"comments stay", "# X\na: X # X\n", "d", "# X\na: d # X\n"},
		{"a block text", "a:\n  b: |\n    one X\n    two\n  c: X\n", "d", "a:\n  b: \"one d\\ntwo\\n\"\n  c: d\n"},
		{"items, documents and brackets", "- X\n---\na: [X, \"X\"]\n", "d,e", "- d,e\n---\na: [\"d,e\", \"d,e\"]\n"},
		{"an alias follows its anchor", "a: &x X\nb: *x\n", "d", "a: &x d\nb: *x\n"},
		{"a text that YAML 1.1 reads as a boolean", "a: X\n", "yes", "a: \"yes\"\n"},
		{"a text that looks like a number", "a: X\n", "0123", "a: \"0123\"\n"},
		{"JSON", `{"a": "X"}`, "\"\\\u2028\u0080", `{"a": "\"\\\u2028\u0080"}`},
		{"numbers are no texts", "a: 1\n", "d", "a: 1\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parsed(t, tt.text).Rewrite(swap(tt.value))
			require.NoError(t, err)
			require.Equal(t, tt.want, string(got))
		})
	}
}

func TestRewriteWithANumber(t *testing.T) {
	got, err := parsed(t, "a: X\n").Rewrite(func(*yaml.Node) (Value, bool, error) { return Value{"8080", "!!int"}, true, nil })
	require.NoError(t, err)
	require.Equal(t, "a: 8080\n", string(got))
	_, err = parsed(t, "a: X\n").Rewrite(func(*yaml.Node) (Value, bool, error) { return Value{"8080\nb: 1", "!!int"}, true, nil })
	require.ErrorAs(t, err, new(*HardError))
	broken := errors.New("broken")
	_, err = parsed(t, "a: X\n").Rewrite(func(*yaml.Node) (Value, bool, error) { return Value{}, false, broken })
	require.ErrorIs(t, err, broken)
}

// Whatever a value is, the result is the file before with this text in place of the other, for each parser.
func FuzzRewrite(f *testing.F) {
	for _, data := range corpus(f) {
		if len(data) < 4000 {
			f.Add(strings.ReplaceAll(string(data), "drone", "X"), "{{ x }}: ${y}\n- z")
		}
	}
	f.Add("a: |+\n  X\n\n\nb: >-\n  X\n  Y\n---\n- 'X'\n- {a: X}\n", "\u0085\ufffe\"'\\")
	f.Fuzz(func(t *testing.T, text, value string) {
		file, err := Parse([]byte(text))
		if err != nil || len(text) > 10000 || len(value) > 100 || !strings.Contains(text, "X") || strings.ToValidUTF8(value, "") != value {
			return
		}
		got, err := file.Rewrite(swap(value))
		if err != nil {
			require.ErrorAs(t, err, new(*HardError))
			return
		}
		var want, have any
		if strings.Contains(text, "---") || strings.Contains(text, "<<") || sigsyaml.Unmarshal([]byte(text), &want) != nil {
			return
		}
		require.NoError(t, sigsyaml.Unmarshal(got, &have), "%s", got)
		require.Equal(t, swapped(want, value), have)
	})
}

// swapped returns a parsed document with X replaced in its texts.
func swapped(v any, value string) any {
	switch v := v.(type) {
	case string:
		return strings.ReplaceAll(v, "X", value)
	case []any:
		for i := range v {
			v[i] = swapped(v[i], value)
		}
	case map[string]any:
		for k := range v {
			v[k] = swapped(v[k], value)
		}
	}
	return v
}
