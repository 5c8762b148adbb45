package scheduler

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

func exampleExplainer(t *testing.T, environment string) *Explainer {
	t.Helper()
	m := NewModel(environment)
	for _, src := range exampleSources(t, "coffee", environment) {
		require.NoError(t, m.Load(context.Background(), src))
	}
	return explainerOf(t, m)
}

func explainerOf(t *testing.T, m *Model) *Explainer {
	t.Helper()
	e, err := m.Explainer(nil)
	require.NoError(t, err)
	return e
}

func TestAnAssignmentIsExplained(t *testing.T) {
	x, err := exampleExplainer(t, "dev").Pair(context.Background(), "shop", "till-test")
	require.NoError(t, err)
	require.True(t, x.Assigned)
	require.Equal(t, Named{"till-test", finding.Position{File: "storefront/workloads.yaml", Line: 9}}, x.Target)
	require.Equal(t, "storefront-team", x.Workspace)
	require.Equal(t, "dev-shop-till-test", x.Namespace)
	require.Equal(t, "kubernetes", x.Adapter)
	require.Equal(t, "the kinds in reconciler.yaml", x.AdapterBecause)
	require.Equal(t, []string{"a-common", "c-till", "d-dev", "azure-app-config"}, names(x.Config))
	require.Equal(t, []string{
		"load=false: ✓ !kind []; ✗ size notin (small) [small]; ✗ purpose=load-test [functional-test]",
		"storefront=true: ✓ size=small [small]; ✓ workspace=storefront-team [storefront-team]; ✓ purpose=functional-test [functional-test]",
		"tills-everywhere-small=true: ✓ size in (small) [small]; ✓ workload=till [till]",
	}, matchLines(x.Policies))
}

// matchLines writes each policy in one line.
func matchLines(policies []PolicyMatch) []string {
	var lines []string
	for _, p := range policies {
		var terms []string
		for _, term := range p.Terms {
			mark, value := "✗", ""
			if term.Met {
				mark = "✓"
			}
			if term.Value != nil {
				value = *term.Value
			}
			terms = append(terms, mark+" "+term.Asks+" ["+value+"]")
		}
		selects := "=false: "
		if p.Selects {
			selects = "=true: "
		}
		lines = append(lines, p.Name+selects+strings.Join(terms, "; "))
	}
	return lines
}

func names(list []Named) []string {
	var all []string
	for _, n := range list {
		all = append(all, n.Name)
	}
	return all
}

func TestExplanationsAgreeWithWhatIsRendered(t *testing.T) {
	eachExample(t, func(t *testing.T, name, environment string) {
		m := NewModel(environment)
		for _, src := range exampleSources(t, name, environment) {
			require.NoError(t, m.Load(context.Background(), src))
		}
		requireAgreement(t, m)
	})
	cases, err := filepath.Glob(filepath.Join(os.Getenv("WHERRY_CASES"), "kalypso", "*s", "*", "case.json"))
	require.NoError(t, err)
	for _, file := range cases { // none where WHERRY_CASES is not set
		folder := filepath.Dir(file)
		t.Run(filepath.Base(folder), func(t *testing.T) { requireAgreement(t, loadCase(t, folder)) })
	}
}

// requireAgreement explains every pair and every key of a model, and compares the answers with the rendered result.
func requireAgreement(t *testing.T, m *Model) {
	t.Helper()
	result, err := m.Render(context.Background(), Options{})
	require.NoError(t, err)
	e := explainerOf(t, m)
	for _, ct := range result.ClusterTypes {
		rendered, failed := map[string]Assignment{}, map[string]string{}
		for _, a := range ct.Assignments {
			rendered[a.Name] = a
		}
		for _, f := range ct.Failures {
			failed[f.Name] = f.Err.Error()
		}
		for i, target := range e.r.targets {
			x, err := e.Pair(context.Background(), ct.Name, target.Name)
			require.NoError(t, err)
			require.Equal(t, failed[target.Name], x.Error)
			a, ok := rendered[target.Name]
			require.Equal(t, ok || x.Error != "", x.Assigned, "%s/%s", ct.Name, target.Name)
			if !ok {
				continue
			}
			var selecting []string
			for _, p := range x.Policies {
				if p.Selects {
					selecting = append(selecting, p.Name)
				}
			}
			require.Equal(t, a.Policies, selecting)
			require.Equal(t, a.Adapter, x.Adapter)
			require.Equal(t, a.Namespace, x.Namespace)
			require.Len(t, x.Config, len(a.Config))
			for i, c := range a.Config {
				require.Equal(t, Named(c), x.Config[i])
			}
			in, err := newAssigner(e.r, m.objects.ClusterTypes[ct.Name]).input(i)
			require.NoError(t, err)
			for key, value := range in.config.data() {
				x, err := e.Config(context.Background(), ct.Name, target.Name, key)
				require.NoError(t, err)
				require.Equal(t, show.Mask(key, textOf(value)), x.Value)
				require.Equal(t, in.config.Origin(key), x.Given[len(x.Given)-1].Position)
			}
		}
	}
}

func TestEveryKindOfTermIsExplained(t *testing.T) {
	m := NewModel("dev")
	require.NoError(t, load(m, "", "platform.yaml", fleet+policyYAML("p",
		"workspace: other-team, labelSelector: {matchLabels: {purpose: x}, matchExpressions: [{key: purpose, operator: NotIn, values: [x, v]}, {key: nope, operator: Exists}]}",
		"labelSelector: {matchExpressions: [{key: size, operator: In, values: [small, large]}, {key: edge, operator: DoesNotExist}, {key: nope, operator: NotIn, values: [x]}]}")+
		policyYAML("q", "", "")))
	require.NoError(t, load(m, "reg", "app.yaml", fleetApp))
	e := explainerOf(t, m)
	x, err := e.Pair(context.Background(), "c1", "app-x")
	require.NoError(t, err)
	require.Equal(t, []string{
		"p=false: ✗ !edge [true]; ✓ nope notin (x) []; ✓ size in (large,small) [large]; ✗ workspace=other-team [team]; ✗ nope []; ✓ purpose=x [x]; ✗ purpose notin (v,x) [x]",
		"q=true: ",
	}, matchLines(x.Policies))
}

func TestWhatDoesNotExistIsNamedWithASuggestion(t *testing.T) {
	e := exampleExplainer(t, "dev")
	for name, c := range map[string]struct{ clusterType, target, says string }{
		"a type and a target, misspelt":       {"shpo", "till-tset", "environment \"dev\" has no cluster type \"shpo\" (did you mean \"shop\"?)\nenvironment \"dev\" has no deployment target \"till-tset\" (did you mean \"till-test\"?)"},
		"a target by the end of its name":     {"shop", "test", `environment "dev" has no deployment target "test" (did you mean menu-test, till-test?)`},
		"a target by its workload":            {"shop", "profiles", `environment "dev" has no deployment target "profiles" (did you mean profiles-load?)`},
		"nothing like it":                     {"shop", "zzzzzzzz", `environment "dev" has no deployment target "zzzzzzzz" (known: menu-test, profiles-load, till-test)`},
		"a target of another environment":     {"shop", "till-live", `storefront/workloads.yaml:16: deployment target "till-live" is for environment "prod", not for "dev"`},
		"a type of another environment":       {"factory", "till-test", `environment "dev" has no cluster type "factory" (known: machine, roastery, shop, warehouse)`},
		"nothing at all, which is not a name": {"", "till-test", `environment "dev" has no cluster type "" (known: machine, roastery, shop, warehouse)`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := e.Pair(context.Background(), c.clusterType, c.target)
			require.EqualError(t, err, c.says)
		})
	}
}

func TestAFailureIsExplained(t *testing.T) {
	m := NewModel("dev")
	require.NoError(t, load(m, "", "platform.yaml", strings.Replace(basics, "reconciler: rec", "reconciler: rce", 1)))
	require.NoError(t, load(m, "reg", "app.yaml", oneTarget))
	e := explainerOf(t, m)
	x, err := e.Pair(context.Background(), "edge", "app-t1")
	require.NoError(t, err)
	require.True(t, x.Assigned)
	require.Contains(t, x.Error, `platform.yaml:23: cluster type "edge": spec.reconciler names template "rce", which does not exist (did you mean "rec"?)`)
	require.Empty(t, x.Adapter)
}

func TestTheAdaptersReason(t *testing.T) {
	m := NewModel("dev")
	require.NoError(t, load(m, "", "platform.yaml", strings.Replace(basics, "name: edge,", `name: edge, annotations: {wherry.dev/adapter: argo},`, 1)))
	require.NoError(t, load(m, "reg", "app.yaml", strings.Replace(oneTarget, "name: app,", `name: app, annotations: {t1.wherry.dev/adapter: zarf},`, 1)+"    - {name: t2, environment: dev}\n"))
	e := explainerOf(t, m)
	for target, want := range map[string][2]string{
		"app-t1": {"zarf", `annotation t1.wherry.dev/adapter on Workload "app" at app.yaml:3`},
		"app-t2": {"argo", `annotation wherry.dev/adapter on ClusterType "edge" at platform.yaml:25`},
	} {
		x, err := e.Pair(context.Background(), "edge", target)
		require.NoError(t, err)
		require.Equal(t, want, [2]string{x.Adapter, x.AdapterBecause})
	}
}

func TestSettingsThatCountAreListed(t *testing.T) {
	m := NewModel("dev")
	require.NoError(t, load(m, "", "platform.yaml", annotate(basics, "edge", `wherry.dev/drift: report, wherry.dev/restart-on-config: "true"`)))
	require.NoError(t, load(m, "reg", "app.yaml", annotate(oneTarget, "app", `wherry.dev/drift: correct, t1.wherry.dev/wave: "2"`)))
	x, err := explainerOf(t, m).Pair(context.Background(), "edge", "app-t1")
	require.NoError(t, err)
	require.Equal(t, []Setting{
		{"drift", "correct", `annotation wherry.dev/drift on Workload "app" at app.yaml:3`},
		{"restart-on-config", "true", `annotation wherry.dev/restart-on-config on ClusterType "edge" at platform.yaml:25`},
		{"wave", "2", `annotation t1.wherry.dev/wave on Workload "app" at app.yaml:3`},
	}, x.Settings)
}

func TestWaitingTargets(t *testing.T) {
	m := NewModel("dev")
	require.NoError(t, load(m, "", "platform.yaml", fleet+policyYAML("p", "labelSelector: {matchLabels: {purpose: x}}", "")+
		policyYAML("nowhere", "labelSelector: {matchLabels: {purpose: w}}", "labelSelector: {matchLabels: {size: none}}")))
	require.NoError(t, load(m, "reg", "app.yaml", fleetApp))
	require.NoError(t, load(m, "other", "svc.yaml", fleetService))
	e := explainerOf(t, m)
	require.Equal(t, []WaitingTarget{
		{Named{"app-w", finding.Position{File: "app.yaml", Line: 7}}, "team", "app"},
		{Named{"app-z", finding.Position{File: "app.yaml", Line: 8}}, "team", "app"},
		{Named{"svc-main", finding.Position{File: "svc.yaml", Line: 6}}, "other-team", "svc"},
	}, e.Waiting())
	require.Equal(t, finding.Position{File: "platform.yaml", Line: 31}, e.Policy("p"))
	require.Equal(t, finding.Position{}, e.Policy("q"))
}
