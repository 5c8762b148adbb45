package scheduler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"text/template/parse"

	"github.com/stretchr/testify/require"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// requireSame requires that the pieces of a text write what the whole writes, in as many steps.
func requireSame(t *testing.T, text *textTemplate, in *input) {
	t.Helper()
	in.ConfigData = in.config.data()
	whole := output{ctx: context.Background()}
	err := text.run.Execute(&whole, *in.data)
	for range 2 { // the second time, some is remembered
		pieces := output{ctx: context.Background()}
		require.Equal(t, err == nil, text.program.run(&pieces, in), "%v", err)
		if err == nil {
			require.Equal(t, string(whole.buf), string(pieces.buf))
			require.Equal(t, whole.steps, pieces.steps)
		}
	}
}

func TestPiecesWriteWhatTheWholeDoes(t *testing.T) {
	config := composeAlone([]layer{{entries: []entry{
		{key: "A", value: "a", text: "a"},
		{key: "L", value: parseValue("[{name: x}, 2]"), text: "[{name: x}, 2]"},
	}}})
	l := &library{functions: functions()}
	for text, c := range map[string]struct {
		apart bool
		once  int // pieces that are made once for each configuration
	}{
		"":              {true, 0},
		"just text":     {true, 0},
		"{{ .Nope }}":   {true, 0},
		"{{ .Path.x }}": {true, 0},
		"{{.Namespace}}{{ .Labels.x }}{{ .Labels.y }}{{ .Manifests.path -}} {{ .Path }}": {true, 0},
		"{{ .Labels }} {{ . }} {{ $ }} {{ $.Workload }}":                                 {true, 0},
		"{{ toYaml .ConfigData | indent 2 }}":                                            {true, 1},
		"{{ range $k, $v := .ConfigData }}{{ $k }}: {{ $v }}{{ end }}":                   {true, 1},
		"{{ range $k, $v := $.ConfigData }}{{ $k }}{{ $.Workload }}{{ end }}":            {true, 0},
		"{{ with .ConfigData }}{{ .A }}{{ . }}{{ else }}{{ .Workload }}{{ end }}":        {true, 0},
		"{{ with .ConfigData }}{{ .A }}{{ range .L }}{{ . }}{{ end }}{{ end }}":          {true, 1},
		"{{ if .ConfigData.A }}{{ .Workload }}{{ end }}":                                 {true, 0},
		"{{ if .ConfigData.A }}{{ .ConfigData.B }}{{ else }}x{{ end }}":                  {true, 1},
		"{{ (index .ConfigData \"L\") | toJson }} {{ hash .ConfigData }}":                {true, 2},
		"{{ if true }}{{ $x := .ConfigData }}{{ $x.A }}{{ end }}":                        {true, 1},
		"{{ fail \"no\" }}":                          {true, 0},
		"{{ fail .ConfigData.A }}":                   {true, 1},
		"{{ $x := .Workload }}{{ $x }}":              {false, 0},
		"{{ define \"x\" }}{{ end }}{{ .Workload }}": {false, 0},
		"{{ block \"x\" . }}b{{ end }}":              {false, 0},
		"{{ set .ConfigData \"A\" \"b\" }}":          {false, 0},
		"{{ range until 5 }}{{ end }}":               {true, 0},
	} {
		t.Run(text, func(t *testing.T) {
			compiled := l.text("t", text, finding.Position{})
			require.NoError(t, compiled.err)
			require.Equal(t, c.apart, compiled.program != nil)
			if !c.apart {
				return
			}
			once := 0
			for _, p := range compiled.program {
				if p.run != nil && p.reads.onlyConfig() {
					once++
				}
			}
			require.Equal(t, c.once, once)
			for _, workload := range []string{"app", ""} {
				requireSame(t, compiled, &input{config: config, data: &data{
					Workload: workload, Namespace: "ns", Labels: map[string]string{"x": "1"}, Manifests: map[string]string{"path": "p"},
				}})
			}
		})
	}
}

// Each field of data is known to be a text, a map of texts or the configuration: a new one must be
// thought about.
func TestPiecesKnowAllFields(t *testing.T) {
	require.ElementsMatch(t, dataFields(), append(plainReads(), "ConfigData"))
	for name, get := range textFields {
		run, err := (&library{functions: functions()}).text("t", "{{ ."+name+" }}", finding.Position{}), error(nil)
		require.NoError(t, err)
		d := data{DeploymentTargetName: "1", Namespace: "2", Environment: "3", Workspace: "4", Workload: "5", ClusterType: "6", Manifests: map[string]string{"repo": "7", "branch": "8", "path": "9"}}
		var b strings.Builder
		require.NoError(t, run.run.Execute(&b, d))
		require.Equal(t, b.String(), get(&d), name)
	}
	require.IsType(t, &parse.TextNode{}, (&library{functions: functions()}).text("t", "x", finding.Position{}).run.Root.Nodes[0])
}

// randomValue is a text for parseValue.
func randomValue(r *rand.Rand, depth int) string {
	words := []string{"a", "b", "name", "42", "1.50", "true", "~", "", "no", "x: y", "- dash", "a b", "0x1F", "2001-01-01", "ünï", "[", "#c", "'q'", "007", "1e3", "!x", "&a", "%", "@", "a:b", "y", "=", "<<", "...", "long " + strings.Repeat("word ", 40)}
	word := func() string { return fmt.Sprintf("%q", words[r.IntN(len(words))]) }
	plain := func() string {
		return []string{"1", "-3", "2.5", "1e3", "true", "no", "~", "0.0", "-0.0", ".inf", "0o7"}[r.IntN(11)]
	}
	switch n := r.IntN(8); {
	case depth > 3 || n < 3:
		return word()
	case n < 4:
		return plain()
	case n < 6:
		var items []string
		for range r.IntN(4) {
			items = append(items, randomValue(r, depth+1))
		}
		return "[" + strings.Join(items, ", ") + "]"
	default:
		var items []string
		for _, key := range []string{"name", "a1", "a10", "a2", "_x", "Z", "no", "n/a", strings.Repeat("k", 120)} {
			if r.IntN(3) == 0 {
				items = append(items, fmt.Sprintf("%q: %s", key, randomValue(r, depth+1)))
			}
		}
		return "{" + strings.Join(items, ", ") + "}"
	}
}

// The writer's own YAML is that of yaml.v3, to the byte; and it is its own for most configurations.
func TestYAMLWriterWritesWhatYAMLDoes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	own := 0
	for range 2000 {
		layers := make([]layer, 1+r.IntN(4))
		for i := range layers {
			for _, key := range []string{"A", "B_2", "B_10", "b.c", "-x", "LIST", "true", "1"} {
				if r.IntN(2) == 0 {
					text := randomValue(r, 0)
					if r.IntN(20) == 0 {
						text = "two\nlines"
					}
					layers[i].entries = append(layers[i].entries, entry{key: key, value: parseValue(text), text: text})
				}
			}
		}
		c := composeAlone(layers)
		require.Equal(t, toYAML(c.data()), c.yaml)
		known := true
		for _, v := range c.values {
			known = known && v.yaml != ""
		}
		if known {
			own++
		}
	}
	require.Greater(t, own, 200)
}
