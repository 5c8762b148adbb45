package platform

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/gittest"
	"github.com/wherry-dev/wherry/scheduler"
)

func TestWorkloadsAreReadAtTheCommitThatIsAskedFor(t *testing.T) {
	control, app, _ := platformRepos(t)
	first := appFiles()["workload/web.yaml"]
	known := gittest.CommitFiles(t, app, "main", map[string]string{"workload/web.yaml": first})
	gittest.CommitFiles(t, app, "main", map[string]string{"workload/web.yaml": strings.ReplaceAll(first, "name: shop", "name: store")})
	for _, test := range []struct {
		name, commit string
		want         string // the name of the assignment
	}{
		{"the head", "", "web-store"},
		{"an earlier commit", known, "web-shop"},
		{"the head in place of a commit that is gone, as after a push with force", strings.Repeat("a", 40), "web-store"},
	} {
		t.Run(test.name, func(t *testing.T) {
			loaded, err := Load(t.Context(), Source{Platform: control, Environment: "dev", WorkloadsAt: func(registration, repo, branch string) string {
				require.Equal(t, []string{"web", "file://" + app, "main"}, []string{registration, repo, branch})
				return test.commit
			}})
			require.NoError(t, err)
			require.Empty(t, loaded.Unread)
			result, err := loaded.Model.Render(t.Context(), scheduler.Options{})
			require.NoError(t, err)
			require.Equal(t, test.want, result.ClusterTypes[0].Assignments[0].Name)
		})
	}
	loaded, err := Load(t.Context(), Source{Platform: control, Environment: "dev", Workloads: map[string]string{"web": app}, WorkloadsAt: func(string, string, string) string {
		t.Error("a source that a person names is read as it is")
		return ""
	}})
	require.NoError(t, err)
	require.Empty(t, loaded.Unread)
}
