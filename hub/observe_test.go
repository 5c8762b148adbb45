package hub

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store/storetest"
)

func TestMetricsCountWhatTheHubHasDone(t *testing.T) {
	h, _ := newHub(t)
	a := newAgent(t, "plant-7")
	a.register(t, h)
	item := storetest.Item("drone", bundle.Compliant)
	first := a.seal(t, a.report(1, 1, item))
	post(t, h, a.UID, first, a.seal(t, a.report(1, 2, item)), a.seal(t, a.report(1, 3, item)))
	post(t, h, a.UID, first, a.seal(t, a.report(1, 2, storetest.Item("drone", bundle.Failed))))
	post(t, h, "uid-stranger", first)
	_, err := h.Import(t.Context(), [][]byte{a.seal(t, a.report(1, 4, item))}, "media")
	require.NoError(t, err)

	w := httptest.NewRecorder()
	h.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusForbidden, w.Code, "metrics are for administrators")

	w = httptest.NewRecorder()
	h.getMetrics(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, line := range []string{
		`wherry_hub_clusters{environment="dev",state="compliant"} 1`,
		`wherry_hub_clusters_by_type{type="drone",state="compliant"} 1`,
		`wherry_hub_reports_stored_total{via="http"} 3`,
		`wherry_hub_reports_stored_total{via="media"} 1`,
		`wherry_hub_reports_duplicate_total 1`,
		`wherry_hub_reports_rejected_total{code="Conflict"} 1`,
		`wherry_hub_requests_refused_total{code="UnknownCluster"} 1`,
		`wherry_hub_request_duration_seconds_count{route="POST /v1/clusters/{uid}/reports",status="2xx"} 2`,
		`wherry_hub_request_duration_seconds_count{route="POST /v1/clusters/{uid}/reports",status="4xx"} 1`,
	} {
		require.Contains(t, w.Body.String(), "\n"+line+"\n")
	}
	require.Contains(t, w.Body.String(), "\nwherry_hub_database_bytes ")
	require.Contains(t, w.Body.String(), "\nwherry_hub_disk_size_bytes ")
	require.Contains(t, w.Body.String(), "\nwherry_hub_feed_position ")
	require.Contains(t, w.Body.String(), "\nwherry_hub_feed_lag 0\n")
	require.NotContains(t, w.Body.String(), "plant-7")
}
