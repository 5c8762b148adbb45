package queue

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/hubapi"
)

func TestALargeBodyIsCompressed(t *testing.T) {
	var encoding string
	var size int64
	var reports hubapi.Reports
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		encoding, size = r.Header.Get("Content-Encoding"), r.ContentLength
		body := io.Reader(r.Body)
		var err error
		if encoding == "gzip" {
			body, err = gzip.NewReader(r.Body)
		}
		if err == nil {
			err = json.NewDecoder(body).Decode(&reports)
		}
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, "{}")
	}))
	defer server.Close()
	send := func(envelope string) {
		t.Helper()
		_, err := Hub{URL: server.URL}.Send(t.Context(), server.Client(), "plant-7", []json.RawMessage{json.RawMessage(envelope)})
		require.NoError(t, err)
		require.Equal(t, []json.RawMessage{json.RawMessage(envelope)}, reports.Reports)
	}
	send(`"small"`)
	require.Empty(t, encoding)
	large := `"` + strings.Repeat("large", 2000) + `"`
	send(large)
	require.Equal(t, "gzip", encoding)
	require.Positive(t, size, "hubs and proxies want to know it")
	require.Less(t, size, int64(len(large)/4))
}
