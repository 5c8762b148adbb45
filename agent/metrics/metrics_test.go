package metrics

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheTableOfMetricsIsComplete(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/agent.md")
	require.NoError(t, err)
	listed := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)`[^|]* \\| (gauge|counter|histogram) \\|").FindAllStringSubmatch(string(page), -1) {
		listed[m[1]] = m[2]
	}
	served := map[string]string{}
	for _, m := range allMetrics {
		served[m.name] = m.kind
	}
	require.Equal(t, served, listed)
	for _, name := range slices.Sorted(maps.Keys(served)) {
		require.True(t, strings.HasSuffix(name, "_total") == (served[name] == counter), name)
	}
}

func TestTrafficIsCounted(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }))
	defer server.Close()
	var c Counter
	client := &http.Client{Transport: c.Wrap(server.Client().Transport)}
	resp, err := client.Get(server.URL + "/v2/")
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	client.CloseIdleConnections()
	require.EqualValues(t, 1, c.Requests.Load())
	require.EqualValues(t, len(body), c.Bytes.Load(), fmt.Sprintf("%q", body))
	require.NotEmpty(t, body)
}
