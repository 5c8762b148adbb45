package scheduler

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

func checkYAML(name, spec string) string {
	return "apiVersion: wherry.dev/v1alpha1\nkind: PlatformCheck\nmetadata: {name: " + name + "}\nspec:\n  " + spec + "\n---\n"
}

// checked has two cluster types with a Service each.
const checked = `apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: rec}
spec:
  manifests:
    - |
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: app}
    - |
      apiVersion: v1
      kind: Service
      metadata: {name: app}
      spec: {type: LoadBalancer}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: SchedulingPolicy
metadata: {name: all}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: WorkloadRegistration
metadata: {name: reg}
spec: {workspace: team}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata: {name: drone, labels: {kind: drone}}
spec: {reconciler: rec, namespaceService: rec}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata: {name: plant}
spec: {reconciler: rec, namespaceService: rec}
---
`

const noLoadBalancer = "clusterTypeSelector: {labelSelector: {matchLabels: {kind: drone}}}\n  objects: {kinds: [Service]}\n  expression: object.spec.type != 'LoadBalancer'\n  message: not in a drone"

func TestACheckFailsTheAssignmentAlone(t *testing.T) {
	result := render(t, checked+checkYAML("lb", noLoadBalancer), oneTarget)
	require.Equal(t, "plant/app-t1", pairs(result))
	f := result.ClusterTypes[0].Failures[0]
	require.Equal(t, CheckFailed, f.Reason)
	require.Equal(t, []finding.Finding{{
		Position: finding.Position{File: "platform.yaml", Line: 12}, Code: finding.CodeCheckFailed, Group: "lb",
		Message: "Service app in namespace.yaml: not in a drone",
		Hint:    `PlatformCheck "lb" at platform.yaml:41; target "t1" of workload "app" (registration "reg") at app.yaml:6`,
	}, {
		Position: finding.Position{File: "platform.yaml", Line: 12}, Code: finding.CodeCheckFailed, Group: "lb",
		Message: "Service app in reconciler.yaml: not in a drone",
		Hint:    `PlatformCheck "lb" at platform.yaml:41; target "t1" of workload "app" (registration "reg") at app.yaml:6`,
	}}, finding.In(f.Err))
	require.True(t, strings.HasPrefix(f.Err.Error(), "platform.yaml:12: Service app in namespace.yaml: not in a drone (PlatformCheck"))
}

func TestACheckOfSeverityWarningIsSaidEachTime(t *testing.T) {
	m := NewModel("dev")
	require.NoError(t, load(m, "", "platform.yaml", checked+checkYAML("lb", "severity: warning\n  objects: {kinds: [Service]}\n  expression: object.spec.type != 'LoadBalancer'\n  message: not here")))
	require.NoError(t, load(m, "reg", "app.yaml", oneTarget))
	cache := newMemoryCache()
	for range 2 {
		result, err := m.Render(context.Background(), Options{Cache: cache})
		require.NoError(t, err)
		require.Equal(t, "drone/app-t1 plant/app-t1", pairs(result))
		require.Len(t, result.Warnings, 1, "one for the place")
		require.Equal(t, finding.CodeCheckWarned, result.Warnings[0].Code)
		require.Equal(t, "Service app in namespace.yaml: not here for drone/app-t1 and 3 more", result.Warnings[0].Message)
	}
}

func TestWhatACheckCannotAnswerItRefuses(t *testing.T) {
	result := render(t, checked+checkYAML("c", "objects: {kinds: [Deployment]}\n  expression: object.spec.replicas > 1"), oneTarget)
	found := finding.In(result.ClusterTypes[1].Failures[0].Err)
	require.Equal(t, finding.CodeCheckEvaluation, found[0].Code)
	require.Equal(t, "platform.yaml:8", found[0].Position.String())
	require.Equal(t, "Deployment app in namespace.yaml: the check cannot be evaluated: no such key: spec", found[0].Message)
}

func TestAMistakeInACheckStopsTheEnvironment(t *testing.T) {
	m := NewModel("dev")
	require.NoError(t, load(m, "", "platform.yaml", checked+checkYAML("c", "expression: objct.x")+checkYAML("d", "plan: 'plan.x'")))
	_, err := m.Render(context.Background(), Options{})
	require.ErrorContains(t, err, `PlatformCheck "c": column 1 of the expression: undeclared reference to 'objct'`)
	require.ErrorContains(t, err, `PlatformCheck "d": column 5 of the expression: undefined field 'x'`)
	require.ErrorContains(t, load(m, "", "more.yaml", checkYAML("c", "expression: 'true'")), `PlatformCheck "c" is defined twice: first at platform.yaml:35`)
	require.ErrorContains(t, load(m, "", "more.yaml", checkYAML("e", "expresion: 'true'")), `more.yaml:5: PlatformCheck "e": unknown field spec.expresion (did you mean "expression"?)`)
	require.NoError(t, load(m, "reg", "team.yaml", checkYAML("theirs", "expression: 'false'")))
	require.NotContains(t, m.Objects().Checks, "theirs")
}
