package sitevalues

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	sigsyaml "sigs.k8s.io/yaml"
)

func text(s string) Value { return Value{Any: s, Text: s} }

func TestReplace(t *testing.T) {
	values := Values{
		"dns": text("plant-7.example.com"), "odd": text("a: \"b\" # {{ c }} ${site.dns} 'd'\n- e"), "number": text("8080"),
		"port": {Any: int64(8443), Text: "8443"}, "on": {Any: true, Text: "true"}, "ratio": {Any: 2.5, Text: "2.5"}, "whole": {Any: 3.0, Text: "3"},
	}
	for _, c := range []struct{ name, file, before, after, err string }{
		{"texts and types", "a.yaml", "host: ${site.dns}\nport: ${site.port}\nquoted: '${site.port}'\non: ${site.on}\nratio: ${site.ratio}\nwhole: ${site.whole}\ntext: ${site.number}\n", "host: plant-7.example.com\nport: 8443\nquoted: '8443'\non: true\nratio: 2.5\nwhole: 3\ntext: \"8080\"\n", ""},
		{"a value is data", "a.yaml", "a: ${site.odd}\nb: x\n", "a: \"a: \\\"b\\\" # {{ c }} ${site.dns} 'd'\\n- e\"\nb: x\n", ""},
		{"the text itself", "a.yaml", "a: $${site.dns} ${dns} ${site}\n", "a: ${site.dns} ${dns} ${site}\n", ""},
		{"comments and keys stay", "a.yaml", "# ${site.dns}\n${site.dns}: 1 # ${site.dns}\n", "# ${site.dns}\n${site.dns}: 1 # ${site.dns}\n", ""},
		{"documents", "a.yml", "a: 1\n--- # two\na: ${site.dns}\n...\n---\nb: [\n", "a: 1\n--- # two\na: plant-7.example.com\n...\n---\nb: [\n", ""},
		{"JSON", "a.json", `{"a": "${site.port}"}`, `{"a": "8443"}`, ""},
		{"a block text", "a.yaml", "a: |\n  server ${site.dns};\nb: 1\n", "a: \"server plant-7.example.com;\\n\"\nb: 1\n", ""},
		{"an unknown key", "a.yaml", "x: 1\n---\na: 1\nb: ${site.other}\n", "", "a.yaml:4: ${site.other} is not one of the keys that the workload lists"},
		{"no YAML", "a.yaml", "a: [\nb: ${site.dns}\n", "", "it is not valid YAML"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Replace(c.file, []byte(c.before), values, 1<<20)
			if c.err != "" {
				require.ErrorAs(t, err, new(*ContentError))
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.after, string(got))
		})
	}
	many := []byte("a: " + strings.Repeat("${site.dns}", 1000) + "\n")
	_, err := Replace("a.yaml", many, values, 15000)
	require.ErrorContains(t, err, "larger than permitted")
}

// Whatever a value is, the file reads as before, with the value in the text.
func FuzzReplace(f *testing.F) {
	f.Add("x: y\n- z")
	f.Add("\u2028\u0085{{ }} ${site.v} $${site.v}")
	f.Add("'\"\\")
	f.Add("yes")
	f.Fuzz(func(t *testing.T, value string) {
		if strings.ToValidUTF8(value, "") != value || strings.Contains(value, "\x00") || len(value) > MaxValueBytes {
			return
		}
		for _, file := range []string{"a: ${site.v}\nb: [1, 'x${site.v}y', \"${site.v}\"]\nc: |\n  l ${site.v}\n  m\nd: >-\n  ${site.v}\n", `{"a": "${site.v}", "b": ["${site.v}"]}`} {
			got, err := Replace("f.yaml", []byte(file), Values{"v": text(value)}, 1<<20)
			require.NoError(t, err)
			var want, have any
			require.NoError(t, sigsyaml.Unmarshal([]byte(file), &want))
			require.NoError(t, sigsyaml.Unmarshal(got, &have), "%s", got)
			require.Equal(t, filled(want, value), have)
		}
	})
}

func filled(v any, value string) any {
	switch v := v.(type) {
	case string:
		return strings.ReplaceAll(v, "${site.v}", value)
	case []any:
		for i := range v {
			v[i] = filled(v[i], value)
		}
	case map[string]any:
		for k := range v {
			v[k] = filled(v[k], value)
		}
	}
	return v
}
