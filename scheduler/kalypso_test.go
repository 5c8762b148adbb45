package scheduler

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What these tests expect is what Kalypso's own scheduler wrote for the same input.

func TestFunctionsAnswerAsKalypsos(t *testing.T) {
	for name, c := range map[string]struct{ text, rendered string }{
		"texts are decimal numbers":        {`{{ int "010" }} {{ int64 "08" }} {{ int " 7" }} {{ int "0x1F" }} {{ int "1.5" }} {{ int "1e3" }}`, "10 8 0 0 0 0"},
		"other values are numbers as well": {`{{ int 2.9 }} {{ int true }} {{ int nil }} {{ int (list 1) }} {{ float64 true }} {{ float64 nil }}`, "2 1 0 0 1 0"},
		"fractions":                        {`{{ float64 "1e3" }} {{ float64 "x" }} {{ floor "2.7" }} {{ ceil "2.2" }} {{ round "3.14159" 2 }} {{ float64 7 }}`, "1000 0 2 3 3.14 7"},
		"arithmetic on configuration":      {`{{ add .ConfigData.D 1 }} {{ add1 .ConfigData.D }} {{ sub 10 .ConfigData.D }} {{ mul .ConfigData.D 2 "3" }} {{ div 17 .ConfigData.D }} {{ mod 17 .ConfigData.D }}`, "9 9 2 48 2 1"},
		"the largest and the smallest":     {`{{ max 1 .ConfigData.D 2 }} {{ min 3 .ConfigData.D "x" }} {{ biggest 1 2 }}`, "8 0 2"},
		"words joined":                     {`{{ camelcase "HTTPServer_XML-id 2x" }} {{ camelcase "_a__b_" }} {{ camelcase "GO_IS" }}`, "HTTPServerXMLId2x _A_B_ GOIS"},
		"the labels that Flux would add":   {`{{ toYaml .Labels }}`, "kustomize.toolkit.fluxcd.io/name: dev-reg\nkustomize.toolkit.fluxcd.io/namespace: flux-system\npurpose: x\ntype: application\nworkload: app\nworkspace: team"},
		"hashes of what templates can see": {`{{ hash .ConfigData }} {{ hash .Labels }} {{ hash .Manifests }} {{ hash . }}`, "8494472640291848647 15929168193087360198 5111722071778113656 3512044094710653759"},
		"the dot itself":                   {`{{ typeOf . }} {{ kindOf . }} {{ printf "%v" . }}`, "scheduler.dataType struct {app-t1 dev-edge-app-t1 dev team app map[kustomize.toolkit.fluxcd.io/name:dev-reg kustomize.toolkit.fluxcd.io/namespace:flux-system purpose:x type:application workload:app workspace:team] map[branch:dev path:./t1 repo:https://example.com/app] edge map[D:08]}"},
	} {
		t.Run(name, func(t *testing.T) {
			a := only(t, renderText(t, c.text, "  D: \"08\"", oneTarget))
			require.Equal(t, c.rendered+"\n", content(a, "reconciler.yaml"))
		})
	}
}

func TestTextsAreReadAsKubernetesReadsThem(t *testing.T) {
	for written, read := range map[string]string{
		"2024-01-02":           "2024-01-02",
		"2024-01-02T03:04:05Z": "2024-01-02T03:04:05Z",
		"12:30:45":             "12:30:45",
		"oN":                   "oN",
		"0o":                   "0o",
		"1.2.3":                "1.2.3",
		"~":                    "",
		"!!str 5":              "5",
		"a\n    b":             "a b",
	} {
		a := only(t, renderText(t, "{{ .ConfigData.V }}|{{ .Manifests.V }}", "  V: "+written, appWith("        V: "+strings.ReplaceAll(written, "\n    ", "\n         "), "{}")))
		require.Equal(t, read+"|"+read+"\n", content(a, "reconciler.yaml"), written)
	}
	for _, written := range []string{"007", "1e3", "true", "yes", "N", ".inf", "0x1F", "1_000"} {
		err := load(NewModel("dev"), "", "a.yaml", configMapYAML("c", "  V: "+written))
		require.ErrorContains(t, err, "a.yaml:5: data.V must be a string, and "+written+" is a ")
	}
}
