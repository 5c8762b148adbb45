package scheduler

import (
	"context"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
	"github.com/wherry-dev/wherry/scheduler/schema"
	"github.com/wherry-dev/wherry/scheduler/yamlvalue"
)

// FuzzLoad gives the loader foreign bytes. The loader may refuse them, with a place, or accept them, and an accepted
// platform renders the same twice.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		basics + oneTarget,
		fleet + fleetApp + "---\n" + policyYAML("all", "", ""),
		configMapYAML("azure-app-config", "  a.b.K: '{{ .ConfigData.K }}'"),
		`{"apiVersion": "v1", "kind": "List", "items": [{"kind": "ConfigMap", "apiVersion": "v1"}]}`,
		policyOf("p", "  chain: [a, dev]\n  groups: [{name: g, members: [{name: x, publicKey: k}]}]\n  environments:\n  - name: dev\n    rings: [r, s]\n    gate: &g {minCompliant: 9.5, soak: 1d, soakIn: [a], requiredClusters: {}, check: {url: https://x}, schedule: {timeZone: Europe/Berlin, open: [Mon-Thu 08:00-16:00], freeze: [{from: 2026-12-20, until: 2027-01-01}]}}\n    ringGate: {<<: *g, soakIn: []}\n"),
		"a: &a [*a]\n", "a: &a {<<: *a}\n", "? [a]\n: b\n", "- !!binary x\n", "%YAML 1.1\n---\n", "\x00", "\xff\xfe",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		m := NewModel("dev")
		if err := m.Load(context.Background(), Source{FS: fstest.MapFS{"a.yaml": {Data: []byte(content)}}}); err != nil {
			var input *finding.Error
			require.ErrorAs(t, err, &input)
			require.Equal(t, "a.yaml", input.File)
			requireCodes(t, finding.In(err))
			return
		}
		if _, err := m.Promotion(); err == nil {
			_, err := m.ExplainPromotion()
			require.NoError(t, err)
		} else {
			require.Equal(t, finding.CodePromotion, finding.In(err)[0].Code, "what Load accepts is a policy: only another one can contradict it")
		}
		first, firstErr := m.Render(context.Background(), Options{Parallel: 1})
		second, secondErr := m.Render(context.Background(), Options{Parallel: 4})
		require.Equal(t, firstErr == nil, secondErr == nil)
		if firstErr == nil {
			require.Equal(t, Tree(first), Tree(second))
		}
	})
}

func requireCodes(t *testing.T, found []finding.Finding) {
	t.Helper()
	for _, f := range found {
		require.Regexp(t, `^[EWN]1[0-9]{3}$`, f.Code, f.Message)
	}
}

// FuzzSelector gives a policy a foreign selector and labels. It selects what Kubernetes would, or is refused.
func FuzzSelector(f *testing.F) {
	for _, operator := range []string{"In", "NotIn", "Exists", "DoesNotExist", "Is"} {
		f.Add("purpose", operator, "x,y", "purpose", "x")
	}
	f.Add("", "", "", "a", "b")
	f.Add("example.com/a", "In", ",", "example.com/a", "")
	f.Add("a b", "In", "é", "", "")
	f.Fuzz(func(t *testing.T, key, operator, values, label, value string) {
		list := strings.Split(values, ",")
		if values == "" {
			list = nil
		}
		s := kinds.LabelSelector{MatchLabels: map[string]string{label: value}}
		s.MatchExpressions = append(s.MatchExpressions, kinds.LabelRequirement{Key: key, Operator: operator, Values: list})
		members := []map[string]string{{label: value}, {label: value, key: "x"}, {key: value}, {key: values, label: value}, {}}
		kube, kubeErr := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{
			MatchLabels:      s.MatchLabels,
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOperator(operator), Values: list}},
		})
		requirements, err := requirements(&s, &kinds.Common{})
		require.Equal(t, kubeErr == nil, err == nil)
		if err != nil {
			return
		}
		selected := newLabelIndex(members).selectBy(requirements)
		for i, labels := range members {
			require.Equal(t, kube.Matches(k8slabels.Set(labels)), selected.has(i), "%v", labels)
		}
	})
}

// FuzzParseValue gives foreign bytes as values of ConfigMaps. Any two of them can be merged, written
// and checked.
func FuzzParseValue(f *testing.F) {
	for _, seed := range []string{"x", "'x'", "'", "[a, {name: b}]", "{a: {b: [1]}}", "y: 2", "a: &a [*a]", "<<: {a: 1}", "1: .nan", "- ~", "{{ x }}", "a: !!float x", "? {a: b}\n: c"} {
		f.Add(seed, "[{name: b, c: 1}]")
	}
	compiled, err := schema.NewCache().Compile(`{"additionalProperties": {"type": ["integer", "object", "array"]}}`)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, a, b string) {
		layers := []layer{{entries: []entry{{key: "K", value: yamlvalue.Parse(a), text: a}}}, {entries: []entry{{key: "K", value: yamlvalue.Parse(b), text: b}}}}
		c := composeAlone(layers)
		require.Equal(t, c.yaml, composeAlone(layers).yaml, "composing must change no layer")
		require.Equal(t, yamlvalue.Marshal(c.data()), c.yaml)
		_, err := compiled.Check(c.schemaValues, schema.MaxSteps)
		require.NoError(t, err)
	})
}
