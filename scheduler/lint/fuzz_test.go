package lint

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
	"github.com/wherry-dev/wherry/scheduler/yamlvalue"
)

func requireCodes(t *testing.T, found []finding.Finding) {
	t.Helper()
	for _, f := range found {
		require.Regexp(t, `^[EWN]1[0-9]{3}$`, f.Code, f.Message)
	}
}

// FuzzLint gives the rules platforms of foreign bytes. Each finding has a code.
func FuzzLint(f *testing.F) {
	for _, seed := range []string{
		sound + oneTarget,
		sound + policyYAML("none", "labelSelector: {matchLabels: {purpose: y}}", "labelSelector: {matchExpressions: [{key: size, operator: In, values: [small]}]}"),
		configMapYAML("azure-app-config", "  a.b.K: '{{ .ConfigData.K }}'"),
		`{"apiVersion": "v1", "kind": "List", "items": [{"kind": "ConfigMap", "apiVersion": "v1"}]}`,
		"a: &a {<<: *a}\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		m := scheduler.NewModel("dev")
		if m.Load(t.Context(), scheduler.Source{FS: fstest.MapFS{"a.yaml": {Data: []byte(content)}}}) != nil {
			return
		}
		if report, err := Run(t.Context(), m, Options{}); err == nil {
			requireCodes(t, report.Findings)
		}
	})
}

// FuzzValue gives the rules about values foreign texts.
func FuzzValue(f *testing.F) {
	for _, seed := range []string{"x", "'x'", "[a, {name: b}]", "{a: {b: [1]}}", "y: 2", "a: &a [*a]", "<<: {a: 1}", "1: .nan", "- ~", "{{ x }}", "a: !!float x", "? {a: b}\n: c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l := &linter{model: scheduler.NewModel("dev")}
		l.value(&kinds.ConfigMap{}, "K", kinds.Text{Value: s})
		unnamedLists(yamlvalue.Parse(s), "K")
		requireCodes(t, l.found)
	})
}

// FuzzNearLabel gives foreign selectors and labels.
func FuzzNearLabel(f *testing.F) {
	f.Add("example.com/a", "In", "x", "example.com/a", "")
	f.Add("", "", "", "a", "b")
	f.Fuzz(func(_ *testing.T, key, operator, value, label, other string) {
		s := kinds.LabelSelector{MatchLabels: map[string]string{label: other}}
		s.MatchExpressions = append(s.MatchExpressions, kinds.LabelRequirement{Key: key, Operator: operator, Values: []string{value}})
		nearLabel(s, []map[string]string{{label: other}, {label: other, key: "x"}, {key: other}, {}})
	})
}
