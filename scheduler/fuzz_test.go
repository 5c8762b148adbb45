package scheduler

import (
	"context"
	"errors"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// FuzzLoad gives the loader foreign bytes. It may refuse them, with a place, or take them, and what it
// has taken renders the same twice.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		basics + oneTarget,
		fleet + fleetApp + "---\n" + policyYAML("all", "", ""),
		configMapYAML("azure-app-config", "  a.b.K: '{{ .ConfigData.K }}'"),
		`{"apiVersion": "v1", "kind": "List", "items": [{"kind": "ConfigMap", "apiVersion": "v1"}]}`,
		"a: &a [*a]\n", "a: &a {<<: *a}\n", "? [a]\n: b\n", "- !!binary x\n", "%YAML 1.1\n---\n", "\x00", "\xff\xfe",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		m := NewModel("dev")
		if err := m.Load(context.Background(), Source{FS: fstest.MapFS{"a.yaml": {Data: []byte(content)}}}); err != nil {
			var input *InputError
			require.ErrorAs(t, err, &input)
			require.Equal(t, "a.yaml", input.File)
			return
		}
		first, firstErr := m.Render(context.Background(), Options{Parallel: 1})
		second, secondErr := m.Render(context.Background(), Options{Parallel: 4})
		require.Equal(t, firstErr == nil, secondErr == nil)
		if firstErr == nil {
			require.Equal(t, Tree(first), Tree(second))
		}
	})
}

// FuzzParseValue gives foreign bytes as values of ConfigMaps. Any two of them can be merged, written,
// hashed and checked.
func FuzzParseValue(f *testing.F) {
	for _, seed := range []string{"x", "'x'", "'", "[a, {name: b}]", "{a: {b: [1]}}", "y: 2", "a: &a [*a]", "<<: {a: 1}", "1: .nan", "- ~", "{{ x }}", "a: !!float x", "? {a: b}\n: c"} {
		f.Add(seed, "[{name: b, c: 1}]")
	}
	schema := compileSchema(`{"additionalProperties": {"type": ["integer", "object", "array"]}}`)
	require.NoError(f, schema.err)
	f.Fuzz(func(t *testing.T, a, b string) {
		layers := []layer{{entries: []entry{{key: "K", value: parseValue(a), text: a}}}, {entries: []entry{{key: "K", value: parseValue(b), text: b}}}}
		c := composeAlone(layers)
		require.Equal(t, c.yaml, composeAlone(layers).yaml, "composing must change no layer")
		require.Equal(t, toYAML(c.data()), c.yaml)
		hash(c.data())
		stringify(c.data())
		schema.check(c)
	})
}

// FuzzTemplate gives foreign templates. They end, with a text of bounded length or an error.
func FuzzTemplate(f *testing.F) {
	for _, seed := range []string{"{{ .ConfigData.A }}", "{{ toYaml . }}", "{{ range until 9 }}x{{ end }}", `{{ define "x" }}{{ template "x" }}{{ end }}{{ template "x" }}`, "{{ `{{` }}", "{{ .Labels.x | quote }}", "{{", "{{ $x := 1 }}{{ break }}"} {
		f.Add(seed, "{{ .Workload }}")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		functions := functions()
		shield := newShield([]string{text, value})
		l := &library{functions: functions, shielded: shield.functions(functions)}
		compiled := l.text("fuzz", text, Position{File: "a.yaml", Line: 1})
		config := composeAlone([]layer{{entries: []entry{{key: "A", value: parseValue(value), text: value}}}})
		d := data{Workload: "app", Labels: map[string]string{"x": value}, ConfigData: config.data()}
		covered := shield.cover(d)
		for _, in := range []*input{{data: &d, config: config}, {data: &covered, config: config, shield: shield}} {
			if compiled.program != nil && in.shield == nil {
				requireSame(t, compiled, in)
			}
			rendered, err := newEvaluator(l).evaluate(context.Background(), compiled, in)
			if err == nil {
				require.LessOrEqual(t, len(rendered), 2*maxTextBytes)
				continue
			}
			var input *InputError
			require.True(t, errors.As(err, &input), "%v", err)
		}
	})
}
