package template

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/yamlvalue"
)

// FuzzTemplate gives foreign templates. They end, with a text of bounded length or an error.
func FuzzTemplate(f *testing.F) {
	for _, seed := range []string{"{{ .ConfigData.A }}", "{{ toYaml . }}", "{{ range until 9 }}x{{ end }}", `{{ define "x" }}{{ template "x" }}{{ end }}{{ template "x" }}`, "{{ `{{` }}", "{{ .Labels.x | quote }}", "{{", "{{ $x := 1 }}{{ break }}"} {
		f.Add(seed, "{{ .Workload }}")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		shield := NewShield([]string{text, value})
		l := NewLibrary(nil, shield)
		compiled := l.text("fuzz", text, finding.Position{File: "a.yaml", Line: 1})
		config := configOf(map[string]any{"A": yamlvalue.Parse(value)})
		hash(config.Values())
		stringify(yamlvalue.Marshal)(config.Values())
		d := Data{Workload: "app", Labels: map[string]string{"x": value}, ConfigData: config.Values()}
		covered := shield.Cover(d)
		for _, in := range []*Input{{Data: &d, Config: config}, {Data: &covered, Config: config, Shield: shield}} {
			if compiled.program != nil && in.Shield == nil {
				requireSame(t, compiled, in)
			}
			rendered, err := NewEvaluator(l).evaluate(context.Background(), compiled, in)
			if err == nil {
				require.LessOrEqual(t, len(rendered), 2*MaxBytes)
				continue
			}
			var input *finding.Error
			require.True(t, errors.As(err, &input), "%v", err)
		}
	})
}
