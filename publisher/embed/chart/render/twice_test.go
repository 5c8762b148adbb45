package render

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/embed/chart"
)

func TestAKeyThatIsGivenTwiceFailsAtItsTemplate(t *testing.T) {
	const helpers = "{{ define \"labels\" }}\napp: web\nteam: a\n{{ end }}{{ define \"self\" }}app: other{{ end }}"
	for _, c := range []struct{ name, template, want string }{
		{"of the text", "a:\n  app: 1\n  app: 2\n", `templates/a.yaml:3: the key "app" is given twice (agents and engines refuse that, where Helm alone takes the last one: remove one of them)`},
		{"after an include", "labels:\n  {{- include \"labels\" . | nindent 2 }}\n  app: x\n", "templates/a.yaml:3: "},
		{"of the second include", "a: 1\nlabels:\n  {{- include \"labels\" . | nindent 2 }}\n  {{- include \"self\" . | nindent 2 }}\n", "templates/a.yaml:4: "},
		{"within an include", "{{ define \"both\" }}k: 1\nk: 2{{ end }}\na:\n{{ include \"both\" . | indent 2 }}\n", "templates/a.yaml:4: "},
		{"of a template that is called", "a: 1\n{{ template \"labels\" . }}\napp: 2\n", "templates/a.yaml:3: "},
		{"in branches", "{{- if true }}\na: 1\n{{- else }}\nb: 1\n{{- end }}\n{{- range $i := until 3 }}\n{{- if $i }}\nc: {{ $i }}\n{{- end }}\n{{- end }}\n", `templates/a.yaml:8: the key "c"`},
		{"in the second document", "a: 1\n---\n# x\nb: 1\n\nc: {d: 1, d: 2}\n", `templates/a.yaml:6: the key "d"`},
		{"of a value with line breaks", "a: |\n  {{- range until 3 }}\n  {{ . }}: x\n  {{- end }}\nb: 1\nb: 2\n", "templates/a.yaml:6: "},
		{"behind letters of two bytes", "# äöü\na: ü # ä\n{{- \"ö: 1\" | nindent 0 }}\n{{ \"ö\" }}: 2\n", `templates/a.yaml:4: the key "ö"`},
		{"in a hook", "metadata:\n  annotations: {helm.sh/hook: pre-install}\n  name: x\n  name: y\n", "templates/a.yaml:4: "},
		{"beside a random value", "a: {{ randAlpha 3 | len }}\nb: 1\nb: 2\n", "templates/a.yaml:3: "},
		{"of another value each time", "a: {{ randAlpha 3 }}\nb: 1\nb: 2\n", "templates/a.yaml:3: "},
	} {
		web := chartWith(t, map[string]string{"templates/a.yaml": c.template, "templates/_helpers.tpl": helpers})
		_, err := web.Render(chart.Options{ReleaseName: "a", KeysOnce: true})
		require.ErrorContains(t, err, c.want, c.name)
		_, err = web.Render(chart.Options{ReleaseName: "a"})
		if err != nil {
			require.NotContains(t, err.Error(), "twice", c.name)
		}
	}
	_, err := chartWith(t, map[string]string{"templates/a.yaml": "a: &a {k: 1}\nb:\n  <<: *a\n  k: 2\n"}).Render(chart.Options{ReleaseName: "a", KeysOnce: true})
	require.NoError(t, err, "a key may override a merged one")
}

// The case is one of a report.
func TestTheReportedKeyIsFound(t *testing.T) {
	dir := filepath.Join(os.Getenv("WHERRY_CASES"), "reports", "34-duplicate-keys-in-chart-output", "work")
	if _, err := os.Stat(dir); err != nil {
		require.NotContains(t, strings.Split(os.Getenv("WHERRY_REQUIRE"), ","), "cases", "WHERRY_CASES is not set, or lacks the case")
		t.Skip("the reported cases are not here")
	}
	c, err := ReadFolder(os.DirFS(dir), "chart")
	require.NoError(t, err)
	_, err = c.Render(chart.Options{ReleaseName: "a", KeysOnce: true})
	require.ErrorContains(t, err, `templates/sa.yaml:7: the key "app.kubernetes.io/name" is given twice`)
}
