package template

import (
	"context"
	"strings"
	"testing"
	"text/template/parse"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// requireSame requires that the pieces of a text write what the whole writes, in as many steps.
func requireSame(t *testing.T, text *parsedText, in *Input) {
	t.Helper()
	in.ConfigData = in.Config.Values()
	whole := output{ctx: context.Background()}
	err := text.run.Execute(&whole, *in.Data)
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
	config := configOf(map[string]any{"A": "a", "L": []any{map[any]any{"name": "x"}, 2}})
	l := &Library{functions: functions()}
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
				requireSame(t, compiled, &Input{Config: config, Data: &Data{
					Workload: workload, Namespace: "ns", Labels: map[string]string{"x": "1"}, Manifests: map[string]string{"path": "p"},
				}})
			}
		})
	}
}

// Each field of data is known to be a text, a map of texts or the configuration: a new one must be
// thought about.
func TestPiecesKnowAllFields(t *testing.T) {
	require.ElementsMatch(t, dataFields(), append(plainReads(), "ConfigData", "Groups"))
	for name, get := range textFields {
		run, err := (&Library{functions: functions()}).text("t", "{{ ."+name+" }}", finding.Position{}), error(nil)
		require.NoError(t, err)
		d := Data{DeploymentTargetName: "1", Namespace: "2", Environment: "3", Workspace: "4", Workload: "5", ClusterType: "6", Manifests: map[string]string{"repo": "7", "branch": "8", "path": "9"}}
		d = WithTenant(d, &Tenant{ServiceAccount: "10"})
		var b strings.Builder
		require.NoError(t, run.run.Execute(&b, d))
		require.Equal(t, b.String(), get(&d), name)
	}
	require.IsType(t, &parse.TextNode{}, (&Library{functions: functions()}).text("t", "x", finding.Position{}).run.Root.Nodes[0])
}

// configOf returns a configuration whose values have no position.
func configOf(values map[string]any) *Config {
	return &Config{Composed: fixed(values)}
}

type fixed map[string]any

func (f fixed) Values() map[string]any         { return f }
func (f fixed) Origin(string) finding.Position { return finding.Position{} }
