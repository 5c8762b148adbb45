package scheduler

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// renderText renders one text as the reconciler of edge/app-t1, with data as ConfigMap.
func renderText(t *testing.T, text, data, workloads string) *Result {
	t.Helper()
	platform := strings.Replace(basics, "reconciler: rec", "reconciler: text", 1) + templateYAML("text", text)
	if data != "" {
		platform += configMapYAML("config", data)
	}
	return render(t, platform, workloads)
}

func TestFunctions(t *testing.T) {
	for name, c := range map[string]struct{ text, rendered string }{
		"toYaml indents by four and has no line break at its end": {`{{ toYaml (dict "b" (dict "c" 1) "a" (list 1 2)) }}|`, "a:\n    - 1\n    - 2\nb:\n    c: 1|"},
		"stringify makes texts of lists but not of YAML's maps":   {`{{ stringify .ConfigData }}`, "LIST: |\n    - 1\n    - 2\nMAP:\n    x: 1\nS: \"true\""},
		"hash stays the number that it was":                       {`{{ hash "text" }} {{ hash 5 }}`, "10090654158551821336 14856124470027295614"},
		"unquote takes off both kinds of quotes":                  {`{{ unquote " \"'a'\" " }}{{ unquote 5 }}|`, "a|"},
		"keys and values come in one order":                       {`{{ keys (dict "b" 1 "c" 2 "a" 3) }} {{ values (dict "b" 1 "c" 2 "a" 3) }}`, "[a b c] [3 1 2]"},
		"sequences":                                               {`{{ until 3 }} {{ until -2 }} {{ untilStep 0 9 4 }} {{ untilStep 3 0 -1 }} {{ untilStep 0 9 -1 }} {{ untilStep 1 2 0 }} {{ seq 3 }}`, "[0 1 2] [0 -1] [0 4 8] [3 2 1] [] [] 1 2 3"},
		"texts":                                                   {`{{ repeat 3 "ab" }} {{ replace "a" "bb" "aca" }} {{ "a\nb" | nindent 2 }} {{ printf "%05d" 7 }} {{ print 1 2 }} {{ urlquery "a b" }}`, "ababab bbcbb \n  a\n  b 00007 1 2 a+b"},
		"set changes the map for this template only":              {`{{ $_ := set .ConfigData "NEW" "x" }}{{ .ConfigData.NEW }}`, "x"},
		"missing keys":                                            {`{{ .ConfigData.NOPE }} {{ .Manifests.nope }} {{ index .Labels "nope" }}|`, "<no value> <no value> |"},
		"the names in force":                                      {`{{ .Environment }} {{ .ClusterType }} {{ .Namespace }} {{ .Workspace }} {{ .Workload }} {{ .DeploymentTargetName }} {{ .Repo }} {{ .Branch }} {{ .Path }}`, "dev edge dev-edge-app-t1 team app app-t1 https://example.com/app dev ./t1"},
	} {
		t.Run(name, func(t *testing.T) {
			result := renderText(t, c.text, "  S: \"true\"\n  LIST: \"[1, 2]\"\n  MAP: \"x: 1\"", oneTarget)
			a := only(t, result)
			require.Equal(t, c.rendered+"\n", content(a, "reconciler.yaml"))
			require.Equal(t, "LIST:\n    - 1\n    - 2\nMAP:\n    x: 1\nS: \"true\"", content(a, "platform-config.yaml"))
		})
	}
}

func TestTemplatesAreHermetic(t *testing.T) {
	t.Setenv("SECRET", "leaked")
	for _, call := range []string{`env "SECRET"`, `expandenv "$SECRET"`, `now`, `randAlpha 5`, `uuidv4`, `genPrivateKey "rsa"`, `getHostByName "localhost"`, `osBase "a"`} {
		name, _, _ := strings.Cut(call, " ")
		require.Contains(t, failure(t, renderText(t, "ok\n{{ "+call+" }}", "", oneTarget)),
			`template "text": platform.yaml:39: function "`+name+`" not defined (`+name+" is not a pure function: the same platform would not always give the same files)")
	}
	require.Equal(t, "leaked", os.Getenv("SECRET"))
}

func TestErrorsOfTemplatesNameTheirPlace(t *testing.T) {
	for name, c := range map[string]struct{ text, data, says string }{
		"a field that does not exist":     {"a\nb: {{ .Manifest.path }}", "", `template "text": platform.yaml:39: at <.Manifest.path>: there is no field Manifest (did you mean "Manifests"?)`},
		"a function that does not exist":  {"{{ toYml . }}", "", `template "text": platform.yaml:38: function "toYml" not defined (did you mean "toYaml"?)`},
		"an action that does not end":     {"a\n\n{{ .Namespace", "", `template "text": platform.yaml:40: unclosed action`},
		"a function that fails":           {`{{ fail "no luck" }}`, "", `template "text": platform.yaml:38: at <fail "no luck">: error calling fail: no luck`},
		"a text that grows":               {`{{ range until 99999 }}{{ $.Namespace }}{{ end }}`, "", `template "text": platform.yaml:38: the result is longer than 1048576 bytes`},
		"a loop that writes nothing":      {`{{ range until 99999 }}{{ range until 99999 }}{{ end }}{{ end }}`, "", `template "text": platform.yaml:38: evaluation takes more than 524288 steps`},
		"a loop over a number":            {`{{ range 99999999999 }}{{ end }}`, "", `evaluation takes more than 524288 steps`},
		"a template that calls itself":    {`{{ define "f" }}{{ if . }}{{ template "f" (rest .) }}{{ template "f" (rest .) }}{{ end }}{{ end }}{{ template "f" (until 60) }}`, "", `evaluation takes more than 524288 steps`},
		"a list of a billion":             {`{{ until 1000000000 }}`, "", `the list has more than 100000 items`},
		"a list from seq":                 {`{{ seq 1000000000 }}`, "", `the list has more than 100000 items`},
		"a text repeated too often":       {`{{ repeat 1000000000 "ab" }}`, "", `the result is longer than 1048576 bytes`},
		"an indent without end":           {`{{ indent 1000000000 "ab" }}`, "", `the result is longer than 1048576 bytes`},
		"a replacement that grows":        {`{{ repeat 9999 "a" | replace "a" (repeat 9999 "b") }}`, "", `the result is longer than 1048576 bytes`},
		"the dot within range":            {`{{ range .Labels }}{{ .Manifests }}{{ end }}`, "", `platform.yaml:38: at <.Manifests>: there is no field Manifests in type string (within range and with, write $.Manifests)`},
		"an action of great length":       {"{{ .A" + strings.Repeat(".A", 9999) + " }}", "", ".A.A.A … .A.A.A"},
		"a text of great length":          {strings.Repeat("{{if 1}}", 200_000), "", `template "text": platform.yaml:38: the template is longer than 1048576 bytes`},
		"a text of great depth":           {strings.Repeat("{{if 1}}", 50_000), "", `template "text": platform.yaml:38: {{ if }} has no {{ end }}`},
		"an if without an end":            {"a\n{{ range .Labels }}\n{{ end }}\n{{- if .Namespace }}\nb: {{ .Namespace }}\n\n", "", `template "text": platform.yaml:41: {{ if }} has no {{ end }}`},
		"parentheses of great depth":      {"{{" + strings.Repeat("(", 400_000) + "1" + strings.Repeat(")", 400_000) + "}}", "", `template "text": platform.yaml:38: max expression depth exceeded`},
		"numbers from end to end":         {`{{ untilStep -9223372036854775807 9223372036854775807 1 }}`, "", `the list has more than 100000 items`},
		"numbers down to the last":        {`{{ until -9223372036854775808 }}`, "", `the list has more than 100000 items`},
		"a text that doubles":             {`{{ $a := "ab" }}{{ range until 40 }}{{ $a = cat $a $a }}{{ end }}`, "", `at <cat $a $a>: error calling cat: the result is longer than 1048576 bytes`},
		"quotes that double":              {`{{ $a := "\"" }}{{ range until 60 }}{{ $a = quote $a }}{{ end }}`, "", `error calling quote: the result is longer than 1048576 bytes`},
		"YAML that doubles":               {`{{ $a := "\"'" }}{{ range until 60 }}{{ $a = toYaml $a }}{{ end }}`, "", `error calling toYaml: the result is longer than 1048576 bytes`},
		"a list that doubles":             {`{{ $a := list 1 }}{{ range until 40 }}{{ $a = concat $a $a }}{{ end }}`, "", `error calling concat: the value has more than`},
		"maps that share one":             {`{{ $d := dict }}{{ range until 50 }}{{ $d = dict "a" $d "b" $d }}{{ end }}`, "", `error calling dict: the value`},
		"a map that holds itself":         {`{{ $d := dict }}{{ $_ := set $d "s" $d }}{{ $d }}`, "", `error calling set: the value`},
		"a map that comes to hold itself": {`{{ $d := dict }}{{ $_ := merge $d (dict "b" $d) }}{{ $d }}`, "", `error calling merge: the value`},
		"configuration that holds itself": {`{{ $_ := set .ConfigData "me" $ }}{{ $ }}`, "  A: x", `error calling set: the value`},
		"a list within lists":             {`{{ $d := list }}{{ range until 99999 }}{{ $d = list $d }}{{ end }}`, "", `error calling list: the value`},
		"JSON within JSON":                {`{{ fromJson (printf "%s%s" (repeat 9000 "[") (repeat 9000 "]")) }}`, "", `error calling fromJson: the value`},
		"a long text between many":        {`{{ join (repeat 100000 "x") (until 100000) }}`, "", `the result is longer than 1048576 bytes`},
		"a long text at each turn":        {`{{ wrapWith 1 (repeat 100000 "y") (repeat 100000 "x") }}`, "", `the result is longer than 1048576 bytes`},
		"a pattern found often":           {`{{ regexReplaceAllLiteral "x" (repeat 100000 "x") (repeat 100000 "y") }}`, "", `the result is longer than 1048576 bytes`},
		"what was found repeated":         {`{{ regexReplaceAll ".*" (repeat 1000000 "x") (repeat 100000 "$0") }}`, "", `the result is longer than 1048576 bytes`},
		"widths":                          {`{{ printf (repeat 1000 "%999999d") 1 }}`, "", `error calling printf: the result is longer than 1048576 bytes`},
		"widths that are arguments":       {`{{ printf "%*d%*d" 999999 1 999999 1 }}`, "", `error calling printf: the result is longer than 1048576 bytes`},
		"a template that always goes on":  {`{{ define "f" }}{{ template "f" . }}{{ end }}{{ template "f" . }}`, "", `exceeded maximum template depth`},
		"a value that does not parse":     {"{{ .ConfigData.URL }}", "  OK: '{{ .Workload }}'\n  URL: 'https://{{ .Workload'", `template "text": value of URL: platform.yaml:45: unclosed action`},
		"a value that fails":              {"{{ .ConfigData.URL }}", "  URL: 'https://{{ .Wrkload }}'", `template "text": value of URL: platform.yaml:44: at <.Wrkload>: there is no field Wrkload (did you mean "Workload"?)`},
		"a value that fails when reached": {"{{ .ConfigData.A }}", "  A: '{{ .ConfigData.B }}'\n  B: '{{ env \"X\" }}'", `template "text": value of B: platform.yaml:45: function "env" not defined`},
		"what the template itself made":   {`{{ "{{ nope }}" }}`, "", `template "text": platform.yaml:38: in the text that the template has rendered: function "nope" not defined`},
		"a value that is its own":         {"{{ .ConfigData.A }}", "  A: 'x{{ .ConfigData.A }}'", `template "text": platform.yaml:44: the value of A refers to itself: A → A (a value must not lead back to itself)`},
		"values that go round":            {"{{ .ConfigData.B }}", "  A: '{{ .ConfigData.B }}'\n  B: '{{ index .ConfigData \"C\" }}'\n  C: '{{ .ConfigData.A }}'", `platform.yaml:44: the value of A refers to itself: A → B → C → A`},
		"a cycle that doubles":            {"{{ .ConfigData.A }}", "  A: '{{ .ConfigData.A }}{{ .ConfigData.A }}'", `platform.yaml:44: the value of A refers to itself: A → A`},
		"a cycle through a structure":     {"{{ toYaml .ConfigData }}", "  A: '[\"{{ .ConfigData.A }}\"]'", `the value of A refers to itself: A → A`},
		"a cycle through all values":      {"{{ toYaml .ConfigData }}", "  A: '{{ toYaml $.ConfigData }}'", `platform.yaml:38: the text still holds {{ after 32 rounds of evaluation (a value must not lead back to itself)`},
	} {
		t.Run(name, func(t *testing.T) {
			platform := strings.NewReplacer("reconciler: rec", "reconciler: text", "configType: cfg", "configType: ns").Replace(basics) + templateYAML("text", c.text)
			if c.data != "" {
				platform += configMapYAML("config", c.data)
			}
			require.Contains(t, failure(t, render(t, platform, oneTarget)), c.says)
		})
	}
}

func TestValuesMayHoldTemplates(t *testing.T) {
	const data = `  HOST: api.{{ .Environment }}.example.com
  URL: https://{{ .ConfigData.HOST }}/{{ .DeploymentTargetName }}
  LIST: "- \"{{ .ConfigData.URL }}\""
  DEFINES: '{{ define "x" }}1{{ end }}{{ template "x" }}'
`
	a := only(t, renderText(t, "url: {{ .ConfigData.URL }}", data, oneTarget))
	require.Equal(t, "url: https://api.dev.example.com/app-t1\n", content(a, "reconciler.yaml"))
	require.Equal(t, `DEFINES: '1'
HOST: api.dev.example.com
LIST:
    - 'https://api.dev.example.com/app-t1'
URL: https://api.dev.example.com/app-t1`, content(a, "platform-config.yaml"))
}

func TestWhatAValueDefinesIsNotThereForTheNextDocument(t *testing.T) {
	platform := strings.NewReplacer("reconciler: rec", "reconciler: text", "namespaceService: ns", "namespaceService: def").Replace(basics) +
		templateYAML("def", `{{ .ConfigData.D }}`) + templateYAML("text", `{{ "{{ template \"x\" }}" }}`) +
		configMapYAML("config", `  D: '{{ define "x" }}1{{ end }}'`)
	require.Contains(t, failure(t, render(t, platform, oneTarget)), `template "x" not defined`)
}

// appWith is an app team's file with these manifests and labels.
func appWith(manifests, labels string) string {
	return "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: Workload\nmetadata: {name: app}\nspec:\n  deploymentTargets:\n    - name: t1\n      environment: dev\n      labels: " + labels + "\n      manifests:\n" + manifests + "\n"
}

func TestWhatAnAppTeamWritesIsNeverEvaluated(t *testing.T) {
	const data = "  SECRET: hunter2\n  URL: https://{{ .Manifests.host }}/{{ .ConfigData.SECRET }}"
	for name, c := range map[string]struct{ text, manifests, labels, rendered string }{
		"in manifests":                        {"{{ .Manifests.path }}", `        path: '{{ .ConfigData.SECRET }}'`, "{}", "{{ .ConfigData.SECRET }}"},
		"in the older names":                  {"{{ .Path }}", `        path: '{{ .ConfigData.SECRET }}'`, "{}", "{{ .ConfigData.SECRET }}"},
		"in labels":                           {"{{ .Labels.x }}", `        path: a`, "{x: '{{ .ConfigData.SECRET }}'}", "{{ .ConfigData.SECRET }}"},
		"in keys":                             {"{{ range $k, $v := .Manifests }}{{ $k }}{{ end }}", `        '{{ .ConfigData.SECRET }}': a`, "{}", "{{ .ConfigData.SECRET }}"},
		"put together from two":               {"{{ .Manifests.a }}{{ .Manifests.b }}", "        a: '{'\n        b: '{ .ConfigData.SECRET }}'", "{}", "{{ .ConfigData.SECRET }}"},
		"put together with the template's":    {"{ {{- .Manifests.a }}", "        a: '{ .ConfigData.SECRET }}'", "{}", "{{ .ConfigData.SECRET }}"},
		"beside a value that is evaluated":    {"{{ .Manifests.path }} {{ .ConfigData.URL }}", "        path: '{{ .ConfigData.SECRET }}'\n        host: 'h{{ .ConfigData.SECRET }}'", "{}", "{{ .ConfigData.SECRET }} https://h{{ .ConfigData.SECRET }}/hunter2"},
		"with the letter that hides it":       {"{{ .Manifests.path }}", `        path: 'ꀀ1ꀀ1 .ConfigData.SECRET }}{{ꀀ'`, "{}", "ꀀ1ꀀ1 .ConfigData.SECRET }}{{ꀀ"},
		"through functions of texts":          {`{{ .Manifests.path | upper | trunc 9 }} {{ .Manifests.path | quote }} {{ sha256sum .Manifests.path }} {{ len (list .Manifests.path) }}`, `        path: '{{ .C "x" }}'`, "{}", `{{ .C "X" "{{ .C \"x\" }}" 2b0b2de2c6f8a0d1b5d2d8d2ac3ed6c2 1`},
		"through toYaml, which must quote it": {`{{ toYaml .Manifests }}`, `        path: '{{ .ConfigData.SECRET }}'`, "{}", "path: '{{ .ConfigData.SECRET }}'"},
		"compared with the true text":         {`{{ eq .Manifests.path "{1}" }} {{ ne .Path "{1}" }} {{ lt .Path "{2" }} {{ if eq .Labels.none .Path }}x{{ end }}{{ ge .Path "z" }}`, `        path: '{1}'`, "{}", "true false true true"},
		"measured, cut and escaped":           {`{{ len .Path }} {{ slice .Path 0 4 }} {{ index .Manifests "{" }} {{ html .Path }} {{ js .Path }} {{ printf "%.2s" .Path }}`, "        path: '{{<}}'\n        '{': '{{'", "{}", `5 {{<} {{ {{&lt;}} {{\u003C}} {{`},
		"in all that templates see":           {`{{ toYaml . | trunc 400 | regexFind "path.*" }} {{ hash . | len | lt 9 }}`, `        path: '{{ 1 }}'`, "{}", "path: '{{ 1 }}' true"},
		"put into a map and taken out":        {`{{ $d := dict }}{{ $_ := set $d "k" .Manifests.path }}{{ get $d "k" }}{{ first (list .Manifests.path) }}{{ default "x" .Manifests.path }}`, `        path: '{{ 1 }}'`, "{}", "{{ 1 }}{{ 1 }}{{ 1 }}"},
	} {
		t.Run(name, func(t *testing.T) {
			a := only(t, renderText(t, c.text, data, appWith(c.manifests, c.labels)))
			got := content(a, "reconciler.yaml")
			if strings.Contains(name, "functions of texts") {
				c.rendered = strings.Replace(c.rendered, "2b0b2de2c6f8a0d1b5d2d8d2ac3ed6c2", sha256Of(`{{ .C "x" }}`), 1)
			}
			require.Equal(t, c.rendered+"\n", got)
		})
	}
}

func TestOneTargetWithBracesDoesNotChangeTheOthers(t *testing.T) {
	two := oneTarget + "    - name: t2\n      environment: dev\n      manifests: {path: '{{ 1 }}'}\n"
	result := renderText(t, `{{ .Manifests.path }} {{ .ConfigData.URL }}`, "  URL: '{{ .Workload }}ꀀ'", two)
	requireFailures(t, result, nil)
	require.Equal(t, "./t1 appꀀ\n", content(result.ClusterTypes[0].Assignments[0], "reconciler.yaml"))
	require.Equal(t, "{{ 1 }} appꀀ\n", content(result.ClusterTypes[0].Assignments[1], "reconciler.yaml"))
}

func TestSeveralManifestsAreJoinedAsKalypsoDoes(t *testing.T) {
	platform := strings.Replace(basics, "reconciler: rec", "reconciler: text", 1) + `apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: text}
spec:
  manifests:
    - ""
    - "a: 1\n"
    - "{{ if false }}x{{ end }}"
    - "b: 2"
    - {kind: Object, list: ["{{ .Workload }}", 5], yes: on}
`
	require.Equal(t, "a: 1\n---\nb: 2---\ntrue: true\nkind: Object\nlist:\n- app\n- 5\n", content(only(t, render(t, platform, oneTarget)), "reconciler.yaml"))
}

func TestOneFailureDoesNotStopTheOthers(t *testing.T) {
	two := oneTarget + "    - name: t2\n      environment: dev\n"
	result := renderText(t, `{{ if eq .DeploymentTargetName "app-t1" }}{{ fail "not this one" }}{{ end }}ok`, "", two)
	requireFailures(t, result, map[string]string{"edge/app-t1": "not this one"})
	require.Equal(t, "ok\n", content(result.ClusterTypes[0].Assignments[0], "reconciler.yaml"))
	require.Contains(t, treeOf(result), "edge/app-t2/reconciler.yaml")
	require.NotContains(t, treeOf(result), "edge/app-t1/reconciler.yaml")
}

func TestAllThatIsWrongWithAnAssignmentIsSaid(t *testing.T) {
	platform := strings.NewReplacer("reconciler: rec", "reconciler: arc-fluks", "namespaceService: ns, ", "", "configType: cfg", "configType: configmap").Replace(basics) + templateYAML("arc-flux", "x")
	require.Equal(t, `platform.yaml:23: cluster type "edge" has no spec.namespaceService (it must name a Template)
platform.yaml:23: cluster type "edge": spec.configType names template "configmap", which does not exist (did you mean "configMap"?)
platform.yaml:23: cluster type "edge": spec.reconciler names template "arc-fluks", which does not exist (did you mean "arc-flux"?)`, failure(t, render(t, platform, oneTarget)))
}

func TestRenderingALongTextEndsWithItsContext(t *testing.T) {
	m := NewModel("dev")
	require.NoError(t, load(m, "", "platform.yaml", strings.Replace(basics, "reconciler: rec", "reconciler: text", 1)+
		templateYAML("text", `{{ range until 99999 }}{{ range until 99999 }}{{ end }}{{ end }}`)+oneTarget))
	ctx, cancel := context.WithTimeout(context.Background(), 1)
	defer cancel()
	_, err := m.Render(ctx, Options{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
