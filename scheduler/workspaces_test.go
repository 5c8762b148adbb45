package scheduler

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

func platformWith(workspaces string) string {
	return "apiVersion: wherry.dev/v1alpha1\nkind: Platform\nmetadata: {name: coffee}\nspec:\n  workspaces:\n" + workspaces
}

func TestTheServiceAccountOfAWorkspace(t *testing.T) {
	tests := []struct {
		name, platform, registration, want string
	}{
		{"none without a Platform", "", "reg", ""},
		{"none where the Platform does not list the workspace", platformWith("    - {name: others}\n"), "reg", ""},
		{"its own by default", platformWith("    - {name: team}\n"), "reg", "dev-edge-app-t1/wherry-team"},
		{"a name is one in the assignment's namespace", platformWith("    - {name: team, serviceAccount: deployer}\n"), "reg", "dev-edge-app-t1/deployer"},
		{"one in a namespace of its own", platformWith("    - {name: team, serviceAccount: teams/team}\n"), "reg", "teams/team"},
		{"none for what lies in the platform itself", platformWith("    - {name: team}\n"), "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := NewModel("dev")
			require.NoError(t, load(m, "", "p.yaml", basics+test.platform))
			require.NoError(t, load(m, test.registration, "w.yaml", oneTarget))
			cache := newMemoryCache()
			for range 2 { // rendered, and found again
				result, err := m.Render(context.Background(), Options{Cache: cache})
				require.NoError(t, err)
				require.Equal(t, test.want, result.ClusterTypes[0].Assignments[0].ServiceAccount)
			}
			m.workspaces = map[string]workspace{"team": {account: "a/b"}}
			result, err := m.Render(context.Background(), Options{Cache: cache})
			require.NoError(t, err)
			require.Equal(t, test.registration != "", result.ClusterTypes[0].Assignments[0].ServiceAccount == "a/b", "what was kept does not know it")
		})
	}
}

func TestWorkspacesThatCannotBeConfined(t *testing.T) {
	tests := []struct{ workspaces, want string }{
		{"    - {serviceAccount: a}\n", "a.yaml:6: a workspace of the Platform has no name"},
		{"    - {name: a}\n    - {name: a}\n", `a.yaml:7: workspace "a" is listed twice: first at a.yaml:6`},
		{"    - {name: Team A}\n", `a.yaml:6: workspace "Team A": no ServiceAccount can be called "wherry-Team A"`},
		{"    - {name: a, serviceAccount: a/b/c}\n", `a.yaml:6: workspace "a": no ServiceAccount can be called "a/b/c"`},
		{"    - {name: a, serviceAccount: /b}\n", `no ServiceAccount can be called "/b"`},
		{"    - {name: a, serviceAccount: \"a\\nb\"}\n", `no ServiceAccount can be called "a\nb"`},
	}
	for _, test := range tests {
		err := load(NewModel("dev"), "", "a.yaml", platformWith(test.workspaces))
		require.ErrorContains(t, err, test.want)
	}
}

// manyTargets is a Workload with n targets for dev.
func manyTargets(workload string, n int) string {
	var targets []string
	for i := range n {
		targets = append(targets, fmt.Sprintf("t%d", i))
	}
	return targetsYAML(workload, "", targets...)
}

func TestARegistrationThatBringsTooMuchFailsAlone(t *testing.T) {
	load2 := func(limits, evil string) (*Model, error) {
		m := NewModel("dev")
		require.NoError(t, load(m, "", "platform.yaml", fleet+everything+platformWith("    - {name: other-team"+limits+"}\n")))
		require.NoError(t, load(m, "reg", "app.yaml", targetsYAML("menu", "", "test")))
		return m, load(m, "other", "evil.yaml", evil)
	}
	t.Run("targets in its source", func(t *testing.T) {
		_, err := load2("", manyTargets("evil", DefaultMaxTargets))
		require.NoError(t, err)
		_, err = load2("", manyTargets("evil", DefaultMaxTargets+1))
		require.EqualError(t, err, `platform.yaml:11: registration "other" has more than 2000 deployment targets for environment "dev" (divide it, or raise limits.targets of workspace "other-team" in spec.workspaces of the Platform)`)
		require.Equal(t, LimitExceeded, ReasonOf(err, RenderFailed))
		require.Equal(t, finding.CodeLimit, finding.In(err)[0].Code)
		_, err = load2(", limits: {targets: 3000}", manyTargets("evil", DefaultMaxTargets+1))
		require.NoError(t, err)
		_, err = load2(", limits: {targets: 3}", manyTargets("evil", 4))
		require.ErrorContains(t, err, "more than 3 deployment targets")
	})
	t.Run("bytes in its source", func(t *testing.T) {
		_, err := load2(", limits: {bytes: 1000}", "# "+strings.Repeat("x", 1000))
		require.ErrorContains(t, err, `registration "other" has more than 1000 bytes in its source`)
		require.Equal(t, LimitExceeded, ReasonOf(err, RenderFailed))
	})
	t.Run("files in its source", func(t *testing.T) {
		m, err := load2(", limits: {files: 1}", "")
		require.NoError(t, err)
		err = m.Load(t.Context(), Source{FS: fstest.MapFS{"a.yaml": {}, "b.yaml": {}}, Registration: "other"})
		require.ErrorContains(t, err, `registration "other" has more than 1 files in its source`)
	})
	for setting, limit := range map[string]int{"files": 30, "bytes": 300} {
		t.Run(setting+" on a cluster type", func(t *testing.T) {
			many := "# " + strings.Repeat("x", 300) + "\n"
			m, err := load2(fmt.Sprintf(", limits: {%s: %d}", setting, limit), targetsYAML("a", ""))
			require.NoError(t, err)
			m.objects.Workloads = append(m.objects.Workloads, workloadsIn(t, many+manyTargets("evil", 11))...)
			result, err := m.Render(t.Context(), Options{})
			require.NoError(t, err)
			require.Equal(t, "c1/menu-test c2/menu-test c3/menu-test", pairs(result))
			for _, ct := range result.ClusterTypes {
				require.Len(t, ct.Failures, 11)
				for _, f := range ct.Failures {
					require.Equal(t, LimitExceeded, f.Reason)
					require.ErrorContains(t, f.Err, fmt.Sprintf(`registration "other" has more than %d %s on cluster type %q`, limit, setting, ct.Name))
				}
			}
		})
	}
	_, err := load2("", "")
	require.NoError(t, err)
	m := NewModel("dev")
	require.ErrorContains(t, load(m, "", "p.yaml", platformWith("    - {name: a, limits: {targets: -1}}\n")), `workspace "a": a limit is below zero`)
	require.ErrorContains(t, load(m, "", "p.yaml", platformWith("    - {name: a, limits: {bytes: 64Mi}}\n")), "spec.workspaces[0].limits.bytes must be a whole number")
}

// workloadsIn returns the workloads of an app team's source without its limits.
func workloadsIn(t *testing.T, text string) []*kinds.Workload {
	t.Helper()
	m := NewModel("dev")
	require.NoError(t, load(m, "other", "evil.yaml", text))
	return m.objects.Workloads
}
