package platform

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/gittest"
	"github.com/wherry-dev/wherry/scheduler"
)

// A server that a registration is not allowed to name learns nothing of it, by whatever way it would be read.
func TestARegistrationThatIsNotAllowedIsNotFetched(t *testing.T) {
	asked := new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(server.Close)
	dir := gittest.WriteFiles(t, filepath.Join(t.TempDir(), "platform"), map[string]string{"p.yaml": `apiVersion: wherry.dev/v1alpha1
kind: Platform
metadata: {name: p}
spec:
  workspaces:
    - {name: team, repositories: ["` + server.URL + `/org"]}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: WorkloadRegistration
metadata: {name: good}
spec: {workspace: team, workload: {repo: "` + server.URL + `/org/app", branch: main}}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: WorkloadRegistration
metadata: {name: evil}
spec: {workspace: team, workload: {repo: "` + server.URL + `/org-evil/app", branch: main}}
`})
	load := func(src Source) map[string]scheduler.FailureReason {
		src.Platform, src.Environment = dir, "dev"
		loaded, err := Load(t.Context(), src)
		require.NoError(t, err)
		reasons := map[string]scheduler.FailureReason{}
		for _, u := range loaded.Unread {
			reasons[u.Registration] = scheduler.ReasonOf(u.Err, "SourceUnreadable")
		}
		return reasons
	}
	require.Equal(t, map[string]scheduler.FailureReason{"good": "SourceUnreadable", "evil": scheduler.WorkspaceNotAllowed}, load(Source{}))
	require.NotZero(t, asked.Load(), "the allowed one is asked")

	empty := t.TempDir()
	asked.Store(0)
	for _, src := range []Source{
		{Workloads: map[string]string{"good": empty}},
		{Workloads: map[string]string{"good": empty, "evil": empty}},
		{Workloads: map[string]string{"good": empty, "evil": server.URL + "/elsewhere#main"}},
		{Workloads: map[string]string{"good": empty}, Mirrors: map[string]string{server.URL + "/org-evil": server.URL + "/org"}},
	} {
		require.Equal(t, map[string]scheduler.FailureReason{"evil": scheduler.WorkspaceNotAllowed}, load(src))
	}
	require.Zero(t, asked.Load())
}
