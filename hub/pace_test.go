package hub

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
)

func TestPaceDividesWhatAHubTakesAmongThoseWhoSend(t *testing.T) {
	p := &pacer{perMinute: 1000}
	at := epoch
	require.Equal(t, 1000, p.pace("a", at).ReportsPerMinute)
	require.Equal(t, 1000, p.pace("a", at).ReportsPerMinute)
	for i := range 9 {
		p.pace(fmt.Sprint(i), at)
	}
	require.Equal(t, 100, p.pace("a", at).ReportsPerMinute)
	at = at.Add(time.Minute)
	require.Equal(t, 100, p.pace("a", at).ReportsPerMinute, "those of the last minute may not have ended")
	at = at.Add(time.Minute)
	require.Equal(t, 1000, p.pace("a", at).ReportsPerMinute)
	for i := range 5000 {
		p.pace(fmt.Sprint(i), at)
	}
	require.Equal(t, 1, p.pace("a", at).ReportsPerMinute)
	require.Equal(t, 1000, p.pace("a", at.Add(-time.Hour)).ReportsPerMinute, "a clock that is set back")
}

func TestReceiptsHoldAPaceAndABusyHubSaysWhenToComeBack(t *testing.T) {
	h, _ := newHub(t)
	a := newAgent(t, "plant-7")
	a.register(t, h)
	status, receipt, _ := post(t, h, a.UID, a.seal(t, a.report(1, 1, item("web", bundle.Compliant))))
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, DefaultReportsPerMinute, receipt.Pace.ReportsPerMinute)

	h.pacer.requests.Add(maxRequests)
	body, err := json.Marshal(map[string]any{"reports": []json.RawMessage{a.seal(t, a.report(1, 2))}})
	require.NoError(t, err)
	w := httptest.NewRecorder()
	h.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/clusters/"+a.UID+"/reports", bytes.NewReader(body)))
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Contains(t, w.Body.String(), CodeBusy)
	after, err := strconv.Atoi(w.Header().Get("Retry-After"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, after, minRetry)
	require.Less(t, after, maxRetry)
	h.pacer.requests.Add(-maxRequests)
	status, _, _ = post(t, h, a.UID, a.seal(t, a.report(1, 2)))
	require.Equal(t, http.StatusOK, status)
	require.Zero(t, h.pacer.requests.Load())
}
