package scheduler

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// renderMissing renders one assignment by a reconciler template, and refuses keys that are not there or not.
func renderMissing(t *testing.T, text, annotation, more string, opts Options) *Result {
	t.Helper()
	template := templateYAML("rec", text)
	if annotation != "" {
		template = strings.Replace(template, "metadata: {name: rec}", "metadata: {name: rec, annotations: {wherry.dev/missing-keys: "+annotation+"}}", 1)
	}
	m := NewModel("dev")
	platform := strings.Replace(basics, "metadata: {name: rec}", "metadata: {name: other}", 1)
	require.NoError(t, load(m, "", "platform.yaml", template+platform+more))
	require.NoError(t, load(m, "reg", "app.yaml", oneTarget))
	result, err := m.Render(t.Context(), opts)
	require.NoError(t, err)
	return result
}

// printed is what the one assignment's reconciler.yaml holds.
func printed(t *testing.T, r *Result) string {
	t.Helper()
	return strings.TrimSuffix(content(only(t, r), "reconciler.yaml"), "\n")
}

func TestAKeyThatIsNotThereIsNotPrinted(t *testing.T) {
	config := configMapYAML("a", "  TAG: \"1\"\n  LITERAL: <no value>\n  ANGLE: <nil>\n  EMPTY: \"null\"\n  SOUND: '{{ .ConfigData.TAG }}'")
	for name, test := range map[string]struct{ text, printed, refused string }{
		"a map's":                   {"a\nimage: {{ .ConfigData.image }}", "a\nimage: <no value>", `platform.yaml:8: template "rec": the platform configuration does not set image`},
		"a label":                   {"{{ .Labels.nope }}", "<no value>", "the target has no label nope"},
		"a manifest's":              {"{{ .Manifests.nope }}", "<no value>", "the target does not set manifests.nope"},
		"within a condition":        {"{{ if .ConfigData.TAG }}\n\n{{ .ConfigData.image }}{{ end }}", "\n\n<no value>", `platform.yaml:9: template "rec": the platform configuration does not set image`},
		"through a variable":        {"{{ $x := .ConfigData.image }}{{ $x }}", "<no value>", "{{ $x }}"},
		"in a defined template":     {"{{ define \"d\" }}{{ .image }}{{ end }}{{ template \"d\" .ConfigData }}", "<no value>", "{{ .image }}"},
		"by index":                  {"{{ index .ConfigData \"image\" }}", "<no value>", `{{ index .ConfigData "image" }}`},
		"in a map that is changed":  {"{{ $_ := set .ConfigData \"b\" \"c\" }}{{ .ConfigData.image }}", "<no value>", "the platform configuration does not set image"},
		"printf":                    {"{{ printf \"app:%s\" .ConfigData.tag }}", "app:%!s(<nil>)", `{{ printf "app:%s" .ConfigData.tag }}`},
		"printf into a variable":    {"{{ $x := printf \"app:%v\" .ConfigData.tag }}{{ $x | upper | lower }}", "app:<nil>", `{{ $x | upper | lower }}`},
		"text alone":                {"<no value> {{ .Workload }} <nil>", "<no value> app <nil>", ""},
		"a literal":                 {"{{ \"<no value>\" }}", "<no value>", ""},
		"a value that is so":        {"{{ .ConfigData.LITERAL }} {{ print .ConfigData.ANGLE }}", "<no value> <nil>", ""},
		"asked for":                 {"<no value>{{ if .ConfigData.a }}x{{ end }}{{ with .ConfigData.a }}x{{ end }}{{ if index .ConfigData \"a\" }}x{{ end }}{{ if hasKey .ConfigData \"a\" }}x{{ end }}", "<no value>", ""},
		"with a default":            {"<no value>{{ .ConfigData.a | default \"b\" }}{{ default \"c\" .ConfigData.a }}{{ coalesce .ConfigData.a \"d\" }}{{ empty .ConfigData.a }}", "<no value>bcdtrue", ""},
		"asked for through printf":  {"{{ if eq (printf \"%v\" .ConfigData.a) \"<nil>\" }}none{{ end }}", "none", ""},
		"two keys are both said":    {"{{ .ConfigData.a }}\n{{ .ConfigData.b }}", "<no value>\n<no value>", "does not set b"},
		"a value in the right form": {"{{ .ConfigData.SOUND }}<no value>", "1<no value>", ""},
	} {
		t.Run(name, func(t *testing.T) {
			lenient := renderMissing(t, test.text, "", config, Options{})
			require.Equal(t, test.printed, printed(t, lenient))
			permitted := renderMissing(t, test.text, "kalypso", config, Options{RefuseMissing: true})
			require.Equal(t, test.printed, printed(t, permitted))
			require.Empty(t, permitted.Warnings)
			strict := renderMissing(t, test.text, "", config, Options{RefuseMissing: true})
			require.Empty(t, strict.Warnings)
			if test.refused == "" {
				require.Empty(t, lenient.Warnings)
				require.Equal(t, test.printed, printed(t, strict))
				return
			}
			require.Contains(t, failure(t, strict), test.refused)
			require.Equal(t, TemplateFailed, strict.ClusterTypes[0].Failures[0].Reason)
			require.Equal(t, finding.CodeMissingKey, lenient.Warnings[0].Code)
			said := ""
			for _, w := range lenient.Warnings {
				said += w.String() + "\n"
			}
			require.Contains(t, said, test.refused)
			require.Contains(t, said, " for edge/app-t1")
		})
	}
}

// A value that holds a template is evaluated in whatever holds the value, here in platform-config.yaml, and it is
// the value that is to be mended.
func TestAValueThatPrintsAMissingKeyIsNamed(t *testing.T) {
	config := configMapYAML("a", "  IMAGE: |\n    app:{{ .ConfigData.TAG }}\n  OTHER: '{{ .Workload }}'")
	lenient := renderMissing(t, "x", "", config, Options{})
	require.Contains(t, content(only(t, lenient), "platform-config.yaml"), "app:<no value>")
	require.Len(t, lenient.Warnings, 1)
	said := failure(t, renderMissing(t, "x", "", config, Options{RefuseMissing: true}))
	require.Contains(t, said, "value of IMAGE: the platform configuration does not set TAG")
	for _, builtIn := range []string{"configMap", "envFile"} {
		m := NewModel("dev")
		require.NoError(t, load(m, "", "platform.yaml", strings.Replace(basics, "configType: cfg", "configType: "+builtIn, 1)+config))
		require.NoError(t, load(m, "reg", "app.yaml", oneTarget))
		result, err := m.Render(t.Context(), Options{RefuseMissing: true})
		require.NoError(t, err)
		require.Contains(t, failure(t, result), "value of IMAGE: the platform configuration does not set TAG")
	}
}

// An app team's braces are shielded, and what the platform prints beside them is looked at all the same.
func TestAKeyThatIsNotThereIsFoundBesideAnAppTeamsBraces(t *testing.T) {
	m := NewModel("dev")
	require.NoError(t, load(m, "", "platform.yaml", templateYAML("rec", "{{ .Manifests.path }} {{ printf \"%v\" .ConfigData.nope }} {{ .ConfigData.image }}")+
		strings.Replace(basics, "metadata: {name: rec}", "metadata: {name: other}", 1)))
	require.NoError(t, load(m, "reg", "app.yaml", strings.Replace(oneTarget, "./t1", `"{{ x }}"`, 1)))
	result, err := m.Render(t.Context(), Options{RefuseMissing: true})
	require.NoError(t, err)
	said := failure(t, result)
	require.Contains(t, said, `{{ printf "%v" .ConfigData.nope }} prints`)
	require.Contains(t, said, `the platform configuration does not set image`)
}

// What lacks something is not kept, so that the warning comes each time and a later publish refuses it.
func TestWhatPrintsAMissingKeyIsNotKept(t *testing.T) {
	cache := newMemoryCache()
	for range 2 {
		lenient := renderMissing(t, "{{ .ConfigData.image }}", "", "", Options{Cache: cache})
		require.Len(t, lenient.Warnings, 1)
		require.Len(t, lenient.ClusterTypes[0].Assignments, 1)
	}
	require.Contains(t, failure(t, renderMissing(t, "{{ .ConfigData.image }}", "", "", Options{Cache: cache, RefuseMissing: true})), "does not set image")
	renderMissing(t, "{{ .ConfigData.image }}", "kalypso", "", Options{Cache: cache})
	require.Contains(t, failure(t, renderMissing(t, "{{ .ConfigData.image }}", "", "", Options{Cache: cache, RefuseMissing: true})), "does not set image")
}

func TestManyAssignmentsThatLackOneKeyAreOneWarning(t *testing.T) {
	m := NewModel("dev")
	platform := strings.Replace(basics, `"name: {{ .DeploymentTargetName }}\nworkspace: {{ .Workspace }}\n"`, `"{{ .ConfigData.image }}"`, 1)
	second := "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: ClusterType\nmetadata: {name: west}\nspec: {reconciler: rec, namespaceService: ns, configType: cfg}\n"
	require.NoError(t, load(m, "", "platform.yaml", platform+second))
	require.NoError(t, load(m, "reg", "app.yaml", oneTarget))
	result, err := m.Render(context.Background(), Options{})
	require.NoError(t, err)
	require.Len(t, result.Warnings, 1)
	require.Equal(t, `platform.yaml:6: template "rec": the platform configuration does not set image for edge/app-t1 and 1 more (set it, or give it a default; the annotation wherry.dev/missing-keys: kalypso on the Template permits it)`, result.Warnings[0].String())
}

func TestTheAnnotationOfATemplateIsChecked(t *testing.T) {
	result := renderMissing(t, "x", "kalipso", "", Options{})
	require.Len(t, result.Warnings, 1)
	require.Equal(t, `platform.yaml:3: annotation wherry.dev/missing-keys: unknown value "kalipso" (known: kalypso)`, result.Warnings[0].String())
}
