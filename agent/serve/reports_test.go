package serve

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/hubapi"
)

func TestReportsArePassedOnAndNothingElseIsTaken(t *testing.T) {
	counters := new(Counters)
	h := NewHandler(t.TempDir(), "shop", counters, nil)
	post := func(path string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader("body")))
		return w.Code
	}
	address, err := hubapi.ReportsURL("", "plant-7")
	require.NoError(t, err)
	require.Equal(t, http.StatusMethodNotAllowed, post("/"+strings.TrimPrefix(address, "/")), "nothing is taken unless it is wanted")

	var got string
	mux := http.NewServeMux()
	mux.HandleFunc(hubapi.ReportsPattern, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		got = r.PathValue("uid") + " " + string(body)
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	(&Server{handler: h}).AcceptReports(mux)
	require.Equal(t, http.StatusServiceUnavailable, post("/"+strings.TrimPrefix(address, "/")))
	require.Equal(t, "plant-7 body", got)
	require.Equal(t, http.StatusMethodNotAllowed, post("/v2/shop/bundles/dev/till/blobs/uploads/"))
	require.Equal(t, http.StatusNotFound, post("/v1/clusters/plant-7/other"))
	require.Equal(t, map[int]int64{404: 1, 405: 2, 503: 1}, counters.Requests())
}
