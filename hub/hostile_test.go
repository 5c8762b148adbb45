package hub

import (
	"database/sql"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/store/storetest"
)

func TestKindsAndStatesThatThisVersionDoesNotKnow(t *testing.T) {
	tests := []struct {
		name   string
		change func(*bundle.Report)
		code   hubapi.Code
	}{
		{"a kind of a newer agent", func(r *bundle.Report) { r.Kind = "rehearsal" }, ""},
		{"a state of a newer agent", func(r *bundle.Report) { r.State = "rehearsing"; r.Items[0].State = "rehearsing" }, ""},
		{"no kind", func(r *bundle.Report) { r.Kind = "" }, hubapi.CodeBadReport},
		{"a kind that is no word", func(r *bundle.Report) { r.Kind = "<script>" }, hubapi.CodeBadReport},
		{"a kind without end", func(r *bundle.Report) { r.Kind = bundle.ReportKind(strings.Repeat("k", 1000)) }, hubapi.CodeBadReport},
		{"an older medium without a digest", func(r *bundle.Report) { r.OlderMedium = &bundle.OlderMedium{Digest: "<script>"} }, hubapi.CodeBadReport},
		{"a state that is no word", func(r *bundle.Report) { r.Items[0].State = "Compliant\x1b[2J" }, hubapi.CodeBadReport},
		{"a newer schema", func(r *bundle.Report) { r.Schema = 2 }, hubapi.CodeBadReport},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, _ := newHub(t)
			a := newAgent(t, "plant-7")
			a.register(t, h)
			r := a.report(1, 1, storetest.Item("drone", bundle.Compliant))
			tt.change(&r)
			status, receipt, _ := post(t, h, a.UID, a.seal(t, r))
			require.Equal(t, http.StatusOK, status)
			if tt.code == "" {
				require.Equal(t, 1, receipt.Accepted, "%v", receipt.Rejected)
				return
			}
			require.Equal(t, tt.code, receipt.Rejected[0].Reason)
			require.Empty(t, receipt.Ack)
			require.Zero(t, storedReports(t, h))
		})
	}
}

// Another process holds the lock on the database. Agents wait, those who read do not, and nothing is acknowledged before it is
// stored.
func TestADatabaseThatAnotherProcessHasLocked(t *testing.T) {
	dir, c := t.TempDir(), storetest.NewClock()
	h := openHub(t, dir, c)
	a := newAgent(t, "plant-7")
	a.register(t, h)
	post(t, h, a.UID, a.seal(t, a.report(1, 1, storetest.Item("drone", bundle.Compliant))))

	other, err := sql.Open("sqlite", filepath.Join(dir, DatabaseFile))
	require.NoError(t, err)
	defer other.Close()
	lock, err := other.Conn(t.Context())
	require.NoError(t, err)
	defer lock.Close()
	_, err = lock.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)

	body := requestOf(t, a.seal(t, a.report(1, 2, storetest.Item("drone", bundle.Failed))))
	answered := make(chan []byte, 1)
	go func() { answered <- postTo(h, a.UID, body) }()
	for _, path := range []string{"/healthz", "/v1/clusters", "/v1/deployments", "/"} {
		w := httptest.NewRecorder()
		h.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		require.Equal(t, http.StatusOK, w.Code, "%s: %s", path, w.Body)
	}
	select {
	case said := <-answered:
		require.Fail(t, "the report was answered while it could not be stored", "%s", said)
	default:
	}
	require.Equal(t, 1, storedReports(t, h))
	_, err = lock.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	require.Contains(t, string(<-answered), `"accepted":1`)
	require.Equal(t, 2, storedReports(t, h))
}
