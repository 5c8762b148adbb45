package artifacts

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/lint"
)

func TestLintArtifacts(t *testing.T) {
	pod := func(name, image string) scheduler.Assignment {
		return scheduler.Assignment{Name: name, Files: []scheduler.File{{
			Path: "reconciler.yaml", Data: []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: [{name: c, image: \"" + image + "\"}]\n"),
		}}}
	}
	const pinned = "nginx@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	types := []scheduler.ClusterTypeResult{
		{Name: "asks", Annotations: map[string]string{scheduler.PinAnnotation: scheduler.PinCommit}, Assignments: []scheduler.Assignment{pod("a", "nginx:1")}},
		{Name: "names", Assignments: []scheduler.Assignment{pod("a", pinned)}},
	}
	report := &lint.Report{
		Rendered:     &scheduler.Result{ClusterTypes: types},
		ClusterTypes: map[string]finding.Position{"floats": {File: "a.yaml", Line: 3}},
	}
	lint := func() []finding.Finding {
		var l Linter
		for i := range report.Rendered.ClusterTypes {
			l.Take(&report.Rendered.ClusterTypes[i])
		}
		return l.Findings(report)
	}
	require.Empty(t, lint())
	report.Rendered.ClusterTypes = append(types,
		scheduler.ClusterTypeResult{Name: "floats", Assignments: []scheduler.Assignment{pod("x", "nginx:2"), pod("y", "nginx:1"), pod("z", "nginx:1")}},
		scheduler.ClusterTypeResult{Name: "too", Assignments: []scheduler.Assignment{pod("x", "nginx:2")}})
	require.Equal(t, []finding.Finding{{
		Code: "N1701", Note: true, Position: finding.Position{File: "a.yaml", Line: 3},
		Message: "artifacts without digest or commit: 2, on 2 of the cluster types, such as image docker.io/library/nginx:1 for floats/y",
		Hint:    "name them by digest or commit, or have publishing do so with the annotation wherry.dev/pin: commit",
	}}, lint())
}
