package metrics

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/reference/agent-metrics.md anew")

// The page on metrics is made of them, so that /metrics and page say the same.
func TestThePageOnMetricsIsOfThem(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Metrics of the agent\n\nAn agent with `--listen` serves them at `/metrics`. Made of their help by `go test ./agent/metrics -update`. No metric is about a single assignment.\n\n| metric | type | |\n|-|-|-|\n")
	for _, m := range allMetrics {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", m.name, m.kind, strings.TrimSuffix(m.help, "."))
		require.True(t, strings.HasSuffix(m.name, "_total") == (m.kind == counter), m.name)
	}
	const page = "../../docs/reference/agent-metrics.md"
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(b.String()), 0o644))
	}
	got, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(got), "-update writes it")
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
