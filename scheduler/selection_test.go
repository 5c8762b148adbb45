package scheduler

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fleet has cluster types c1 (large, edge), c2 (small) and c3 without labels, and app teams reg and
// other with targets app-x, app-w, app-z and svc-main.
const fleet = `apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: t}
spec: {manifests: ["{{ .ClusterType }}/{{ .DeploymentTargetName }}"]}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: WorkloadRegistration
metadata: {name: reg}
spec: {workspace: team}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: WorkloadRegistration
metadata: {name: other}
spec: {workspace: other-team}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata: {name: c1, labels: {size: large, edge: "true"}}
spec: {reconciler: t, namespaceService: t, configType: t}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata: {name: c2, labels: {size: small}}
spec: {reconciler: t, namespaceService: t, configType: t}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata: {name: c3}
spec: {reconciler: t, namespaceService: t, configType: t}
---
`

const fleetApp = `apiVersion: scheduler.kalypso.io/v1alpha1
kind: Workload
metadata: {name: app}
spec:
  deploymentTargets:
    - {name: x, environment: dev, labels: {purpose: x}}
    - {name: w, environment: dev, labels: {purpose: w, workspace: other-team, workload: svc}}
    - {name: z, environment: dev}
    - {name: q, environment: prod, labels: {purpose: x}}
    - {name: r, environment: "", labels: {purpose: x}}
`

const fleetService = `apiVersion: scheduler.kalypso.io/v1alpha1
kind: Workload
metadata: {name: svc, labels: {purpose: service}}
spec:
  deploymentTargets:
    - {name: main, environment: dev, labels: {purpose: x}}
`

func policyYAML(name, targets, types string) string {
	return "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: SchedulingPolicy\nmetadata: {name: " + name + "}\nspec:\n  deploymentTargetSelector: {" + targets + "}\n  clusterTypeSelector: {" + types + "}\n---\n"
}

func renderFleet(t *testing.T, policies string) (*Result, error) {
	t.Helper()
	m := NewModel("dev")
	require.NoError(t, load(m, "", "platform.yaml", fleet+policies))
	require.NoError(t, load(m, "reg", "app.yaml", fleetApp))
	require.NoError(t, load(m, "other", "svc.yaml", fleetService))
	return m.Render(context.Background(), Options{})
}

// pairs lists type/target of a result in one line.
func pairs(r *Result) string {
	var all []string
	for _, ct := range r.ClusterTypes {
		for _, a := range ct.Assignments {
			all = append(all, ct.Name+"/"+a.Name)
		}
	}
	return strings.Join(all, " ")
}

func TestPoliciesSelect(t *testing.T) {
	const onlyC3, onlyX = "labelSelector: {matchExpressions: [{key: size, operator: DoesNotExist}]}", "labelSelector: {matchLabels: {purpose: x}}"
	for name, c := range map[string]struct{ targets, types, pairs string }{
		"everything with empty selectors":      {"labelSelector: {}", "labelSelector: {}", "c1/app-w c1/app-x c1/app-z c1/svc-main c2/app-w c2/app-x c2/app-z c2/svc-main c3/app-w c3/app-x c3/app-z c3/svc-main"},
		"everything with no selectors":         {"", onlyC3, "c3/app-w c3/app-x c3/app-z c3/svc-main"},
		"by a label":                           {onlyX, onlyC3, "c3/app-x"},
		"by a label that the workload sets":    {"labelSelector: {matchLabels: {purpose: service}}", onlyC3, "c3/svc-main"},
		"by workload, which nobody can fake":   {"labelSelector: {matchLabels: {workload: svc}}", onlyC3, "c3/svc-main"},
		"by workspace, which nobody can fake":  {"workspace: other-team", onlyC3, "c3/svc-main"},
		"by the workspace's label":             {"labelSelector: {matchLabels: {workspace: team}}", onlyC3, "c3/app-w c3/app-x c3/app-z"},
		"by workspace and label":               {"workspace: team, " + onlyX, onlyC3, "c3/app-x"},
		"In":                                   {"labelSelector: {matchExpressions: [{key: purpose, operator: In, values: [x, w]}]}", onlyC3, "c3/app-w c3/app-x"},
		"NotIn, which takes what has no label": {"labelSelector: {matchExpressions: [{key: purpose, operator: NotIn, values: [x, service]}]}", onlyC3, "c3/app-w c3/app-z"},
		"Exists":                               {"labelSelector: {matchExpressions: [{key: purpose, operator: Exists}]}", onlyC3, "c3/app-w c3/app-x c3/svc-main"},
		"all of several":                       {"labelSelector: {matchLabels: {workspace: team}, matchExpressions: [{key: purpose, operator: Exists}, {key: purpose, operator: NotIn, values: [x]}]}", onlyC3, "c3/app-w"},
		"types by label":                       {onlyX, "labelSelector: {matchLabels: {size: large, edge: \"true\"}}", "c1/app-x"},
		"types by NotIn":                       {onlyX, "labelSelector: {matchExpressions: [{key: size, operator: NotIn, values: [large]}]}", "c2/app-x c3/app-x"},
		"no type by its name":                  {onlyX, "labelSelector: {matchLabels: {name: c1}}", ""},
		"nothing by an unknown label":          {"labelSelector: {matchLabels: {nope: x}}", "", ""},
		"nothing by an unknown workspace":      {"workspace: nope", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := renderFleet(t, policyYAML("p", c.targets, c.types))
			require.NoError(t, err)
			require.Equal(t, c.pairs, pairs(result))
			require.Len(t, result.ClusterTypes, 3, "types without assignments are there too")
			if c.pairs == "" {
				require.Len(t, result.Warnings, 1)
				require.Contains(t, result.Warnings[0].Message, `SchedulingPolicy "p" selects no `)
				require.Equal(t, c.types == onlyC3 || c.types == "", result.Warnings[0].Note, "targets may be about to come, types are the platform's own")
			}
		})
	}
}

func TestSeveralPoliciesAreSeveralReasonsForOneAssignment(t *testing.T) {
	const one = "labelSelector: {matchLabels: {purpose: x}}"
	result, err := renderFleet(t, policyYAML("b", one, "")+policyYAML("a", "", "labelSelector: {matchLabels: {size: small}}"))
	require.NoError(t, err)
	require.Equal(t, "c1/app-x c2/app-w c2/app-x c2/app-z c2/svc-main c3/app-x", pairs(result))
	require.Equal(t, []string{"b"}, result.ClusterTypes[0].Assignments[0].Policies)
	require.Equal(t, []string{"a", "b"}, result.ClusterTypes[1].Assignments[1].Policies)
	require.Equal(t, []string{"a"}, result.ClusterTypes[1].Assignments[0].Policies)
}

func TestASelectorThatSaysNothingStopsTheEnvironment(t *testing.T) {
	_, err := renderFleet(t, policyYAML("p", "labelSelector: {matchExpressions: [{key: a, operator: Inn, values: [b]}]}", "")+
		policyYAML("q", "", "labelSelector: {matchExpressions: [{key: a, operator: In}]}"))
	require.ErrorContains(t, err, `platform.yaml:35: SchedulingPolicy "p": "Inn" is not a valid label selector operator (operators are In, NotIn, Exists and DoesNotExist)`)
	require.ErrorContains(t, err, `SchedulingPolicy "q": values: Invalid value`)
}

func TestTargetsThatWouldShareAName(t *testing.T) {
	clash := oneTarget + "    - {name: b-c, environment: dev}\n---\n" + strings.NewReplacer("name: app,", "name: app-b,", "name: t1", "name: c").Replace(oneTarget)
	result := render(t, basics, clash)
	requireFailures(t, result, map[string]string{
		"edge/app-b-c": `app.yaml:17: target "c" of workload "app-b" (registration "reg") and target "b-c" of workload "app" (registration "reg") at app.yaml:10 would both be called "app-b-c" (rename one of them)`,
	})
	require.Equal(t, "edge/app-t1", pairs(result))
}

func TestTwoTeamsWithOneWorkloadNameFailAloneAndBothSidesAreNamed(t *testing.T) {
	m := NewModel("dev")
	require.NoError(t, load(m, "", "platform.yaml", fleet+policyYAML("all", "", "")))
	require.NoError(t, load(m, "reg", "app.yaml", fleetApp))
	require.NoError(t, load(m, "other", "thief.yaml", oneTarget+"    - {name: x, environment: dev}\n"))
	result, err := m.Render(context.Background(), Options{})
	require.NoError(t, err)
	const both = `target "x" of workload "app" (registration "other") and target "x" of workload "app" (registration "reg") at app.yaml:6 would both be called "app-x"`
	requireFailures(t, result, map[string]string{"c1/app-x": both, "c2/app-x": both, "c3/app-x": both})
	require.Equal(t, "c1/app-t1 c1/app-w c1/app-z", strings.Join(strings.Fields(pairs(result))[:3], " "))
}

func TestANamespaceThatWouldBeTooLong(t *testing.T) {
	long := strings.Repeat("long-", 10) + "name"
	require.Equal(t, `app.yaml:6: namespace "dev-edge-app-`+long+`" would have 67 characters, 63 are permitted: environment "dev", cluster type "edge" at platform.yaml:23, target "`+long+`" of workload "app" (registration "reg") (shorten one of the names)`,
		failure(t, render(t, basics, strings.Replace(oneTarget, "name: t1", "name: "+long, 1))))
	only(t, render(t, basics, strings.Replace(oneTarget, "name: t1", "name: "+long[4:], 1)))
}

func TestWorkspaces(t *testing.T) {
	t.Run("a workload in the platform itself belongs to none", func(t *testing.T) {
		m := NewModel("dev")
		require.NoError(t, load(m, "", "platform.yaml", basics+oneTarget))
		result, err := m.Render(context.Background(), Options{})
		require.NoError(t, err)
		a := only(t, result)
		require.Empty(t, a.Workspace)
		require.Equal(t, "name: app-t1\nworkspace: \n", content(a, "reconciler.yaml"))
	})
	t.Run("a source without registration is a mistake", func(t *testing.T) {
		m := NewModel("dev")
		require.NoError(t, load(m, "", "platform.yaml", basics))
		require.NoError(t, load(m, "rag", "app.yaml", oneTarget))
		_, err := m.Render(context.Background(), Options{})
		require.EqualError(t, err, `app.yaml:1: workload "app" comes from registration "rag", and there is no WorkloadRegistration of that name (did you mean "reg"?)`)
	})
}

func TestEnvironments(t *testing.T) {
	t.Run("hyphens are fine", func(t *testing.T) {
		m := NewModel("us-dev")
		require.NoError(t, load(m, "", "platform.yaml", basics))
		require.NoError(t, load(m, "reg", "app.yaml", strings.Replace(oneTarget, "environment: dev", "environment: us-dev", 1)))
		result, err := m.Render(context.Background(), Options{})
		require.NoError(t, err)
		require.Equal(t, "team", only(t, result).Workspace)
	})
	for _, name := range []string{"", "../up", "Dev", "a b", "a/b"} {
		t.Run("a name that is none: "+name, func(t *testing.T) {
			_, err := NewModel(name).Render(context.Background(), Options{})
			require.ErrorContains(t, err, "there can be no environment")
		})
	}
}

func TestTheBaseCommit(t *testing.T) {
	m := NewModel("dev")
	require.NoError(t, load(m, "", "platform.yaml", basics+"apiVersion: scheduler.kalypso.io/v1alpha1\nkind: BaseRepo\nmetadata: {name: main}\nspec: {commit: abc}\n---\napiVersion: scheduler.kalypso.io/v1alpha1\nkind: BaseRepo\nmetadata: {name: global}\nspec: {commit: other}\n"))
	result, err := m.Render(context.Background(), Options{})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"edge/README.md": ReadmeText, TrackingFile: "abc"}, treeOf(result))
	result, err = m.Render(context.Background(), Options{BaseCommit: "def"})
	require.NoError(t, err)
	require.Equal(t, "def", treeOf(result)[TrackingFile])
}

func TestBitsets(t *testing.T) {
	b := newBitset(130)
	for _, i := range []int{0, 63, 64, 129} {
		b.add(i)
	}
	var members []int
	for i := range b.all {
		members = append(members, i)
		if i == 64 {
			break
		}
	}
	require.Equal(t, []int{0, 63, 64}, members)
	full := fullBitset(130)
	full.subtract(b)
	require.False(t, full.has(129))
	require.True(t, full.has(128))
	full.intersect(b)
	require.True(t, full.empty())
}
