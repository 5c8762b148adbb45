package scheduler

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
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
