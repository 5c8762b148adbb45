package scheduler

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func given(list []GivenValue) []string {
	var lines []string
	for _, g := range list {
		line := fmt.Sprintf("%s %s %s: %s", g.Effect, g.Name, g.Position, strings.ReplaceAll(g.Value, "\n", " | "))
		for _, w := range g.Where {
			met := "unmet"
			if w.Met {
				met = "met"
			}
			line += fmt.Sprintf(" [%s=%s %s]", w.Label, w.Value, met)
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

func parts(list []ValuePart) []string {
	var lines []string
	for _, p := range list {
		lines = append(lines, fmt.Sprintf("%s=%s %s %s", p.Path, p.Value, p.Name, p.Position))
	}
	return lines
}

func TestAConfigurationValueIsExplained(t *testing.T) {
	e := exampleExplainer(t, "dev")
	for name, c := range map[string]struct {
		clusterType, target, key string
		value, rendered          string
		given, parts, others     []string
		hint                     string
	}{
		"the last of two": {
			"shop", "till-test", "LOG_LEVEL", "debug", "",
			[]string{"sets a-common main/configs/common.yaml:11: info", "replaces d-dev dev/configs/dev.yaml:8: debug"},
			nil, nil, "",
		},
		"a list that others add to": {
			"roastery", "profiles-load", "ALERTS", "- after: 5m\n  name: power\n- after: 15m\n  name: link\n- after: 10s\n  name: temperature", "",
			[]string{
				"sets a-common main/configs/common.yaml:15: - name: power |   after: 5m | - name: link |   after: 1h",
				"merges b-roastery main/configs/common.yaml:29: - name: link |   after: 15m | - name: temperature |   after: 10s [cluster-type=roastery met]",
			},
			[]string{
				"[power].after=5m a-common main/configs/common.yaml:15", "[power].name=power a-common main/configs/common.yaml:15",
				"[link].after=15m b-roastery main/configs/common.yaml:29", "[link].name=link a-common main/configs/common.yaml:15",
				"[temperature].after=10s b-roastery main/configs/common.yaml:29", "[temperature].name=temperature b-roastery main/configs/common.yaml:29",
			},
			nil, "",
		},
		"templates": {
			"shop", "till-test", "API_URL", "https://{{ .ConfigData.API_HOST }}/{{ .Workload }}", "https://api.dev.example.com/till",
			[]string{"sets a-common main/configs/common.yaml:14: https://{{ .ConfigData.API_HOST }}/{{ .Workload }}"},
			nil, nil, "",
		},
		"the longer Azure key": {
			"shop", "till-test", "LOYALTY", "true", "",
			[]string{"sets azure-app-config main/configs/common.yaml:52: false", "replaces azure-app-config main/configs/common.yaml:53: true [region=north met]"},
			nil, nil, "",
		},
		"an Azure key that does not apply": {
			"warehouse", "profiles-load", "LANGUAGE", "", "",
			nil, nil,
			[]string{"azure-app-config main/configs/common.yaml:54: fi [region=north unmet] [workload=menu unmet]"},
			"",
		},
		"nobody's key": {"shop", "till-test", "LOG_LEVLE", "", "", nil, nil, nil, `did you mean "LOG_LEVEL"?`},
	} {
		t.Run(name, func(t *testing.T) {
			x, err := e.Config(context.Background(), c.clusterType, c.target, c.key)
			require.NoError(t, err)
			require.Equal(t, len(c.given) > 0, x.Set)
			require.Equal(t, c.value, x.Value)
			require.Equal(t, c.rendered, x.Rendered)
			require.Equal(t, c.given, given(x.Given))
			require.Equal(t, c.parts, parts(x.Parts))
			require.Equal(t, c.others, given(x.Others))
			require.Equal(t, c.hint, x.Hint)
		})
	}
}

// explainKey explains a key of app-t1 on edge, on a platform with these ConfigMaps.
func explainKey(t *testing.T, configMaps, key string) *ConfigExplanation {
	t.Helper()
	m := NewModel("dev")
	require.NoError(t, load(m, "", "platform.yaml", basics))
	require.NoError(t, load(m, "", "config.yaml", configMaps))
	require.NoError(t, load(m, "reg", "app.yaml", oneTarget))
	x, err := explainerOf(t, m).Config(context.Background(), "edge", "app-t1", key)
	require.NoError(t, err)
	return x
}

func TestPartsOfAStructuredValueKnowWhoGaveThem(t *testing.T) {
	x := explainKey(t, configMapYAML("a", "  V: |\n    db: {host: one, port: 1}\n    tags: [x]")+
		configMapYAML("b", "  V: |\n    db: {port: 2}\n    tags: [z]")+
		configMapYAML("c", "  V: |\n    tags: []\n    extra: {}"), "V")
	require.Equal(t, []string{
		"db.host=one a config.yaml:5", "db.port=2 b config.yaml:13", "extra={} c config.yaml:21", "tags[0]=x a config.yaml:5", "tags[1]=z b config.yaml:13",
	}, parts(x.Parts))
}

func TestAnotherKindOfValueReplaces(t *testing.T) {
	x := explainKey(t, configMapYAML("a", "  V: |\n    - x")+configMapYAML("b", "  V: |\n    k: x")+configMapYAML("c", "  V: plain")+configMapYAML("d", "  V: |\n    - x"), "V")
	require.Equal(t, []string{"sets a config.yaml:5: - x", "replaces b config.yaml:12: k: x", "replaces c config.yaml:19: plain", "replaces d config.yaml:25: - x"}, given(x.Given))
	require.Equal(t, []string{"[0]=x d config.yaml:25"}, parts(x.Parts))
}

func TestSecretsAreNotExplainedAloud(t *testing.T) {
	x := explainKey(t, configMapYAML("a", "  DB_PASSWORD: hunter1")+configMapYAML("b", "  DB_PASSWORD: '{{ \"hunter2\" }}'"), "DB_PASSWORD")
	require.NotContains(t, fmt.Sprintf("%+v", x), "hunter1")
	x = explainKey(t, configMapYAML("a", "  DB: |\n    user: till\n    password: hunter3"), "DB")
	require.NotContains(t, fmt.Sprintf("%+v", x), "hunter3")
	require.True(t, x.Secret)
	require.Equal(t, []string{"password=(secret) a config.yaml:5", "user=till a config.yaml:5"}, parts(x.Parts))
}

func TestAViolatedSchemaDoesNotRepeatASecret(t *testing.T) {
	schema := `apiVersion: scheduler.kalypso.io/v1alpha1
kind: ConfigSchema
metadata: {name: s}
spec: {schema: '{"properties": {"DB_PASSWORD": {"pattern": "^x", "minLength": 12}, "PIN": {"type": "integer", "minimum": 10000}, "LEVEL": {"pattern": "^x"}}}'}
---
`
	text := failure(t, render(t, basics+schema+configMapYAML("a", "  DB_PASSWORD: hunter2\n  PIN: \"4711\"\n  LEVEL: debug"), oneTarget))
	require.NotContains(t, text, "hunter2")
	require.NotContains(t, strings.ReplaceAll(text, ",", ""), "4711")
	require.Contains(t, text, "DB_PASSWORD: not what is asked for (the value looks like a secret and is not shown)")
	require.Contains(t, text, "DB_PASSWORD: minLength: got 7, want 12")
	require.Contains(t, text, "PIN: not what is asked for")
	require.Contains(t, text, "LEVEL: 'debug' does not match pattern '^x'")
}

func TestATemplateThatFailsIsExplained(t *testing.T) {
	x := explainKey(t, configMapYAML("a", "  V: '{{ .ConfigData.V }}'"), "V")
	require.True(t, x.Set)
	require.Contains(t, x.Error, "the value of V refers to itself: V → V")
}

func TestWhyAConfigMapDoesNotApply(t *testing.T) {
	one := strings.Replace(configMapYAML("a", "  V: x"), `"true"`, `"true", region: south, deployment-target: app-t2, workload: app, cluster-type: core`, 1)
	x := explainKey(t, one, "V")
	north, app, edge, name := "north", "app", "edge", "app-t1"
	require.Equal(t, []LabelCheck{
		{Label: "cluster-type", Value: "core", ClusterType: &edge},
		{Label: "deployment-target", Value: "app-t2", Target: &name},
		{Label: "region", Value: "south", ClusterType: &north},
		{Label: "workload", Value: "app", Target: &app, Met: true},
	}, x.Others[0].Where)
	require.False(t, x.Set)
	require.Empty(t, x.Hint)
}
