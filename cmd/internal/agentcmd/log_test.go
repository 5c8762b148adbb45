package agentcmd

import (
	"bytes"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/oci"
)

// Some servers end a connection that is idle with an answer, which nobody has asked for.
func TestAnAnswerThatNobodyAskedForIsNotForOperators(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		time.Sleep(20 * time.Millisecond) // the connection is idle by then
		_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
	}))
	t.Cleanup(server.Close)
	var operators, debuggers lines
	t.Cleanup(func() { log.SetOutput(os.Stderr); log.SetFlags(log.LstdFlags) })
	sendStandardLog(slog.NewTextHandler(&operators, nil))
	both := slog.NewTextHandler(&debuggers, &slog.HandlerOptions{Level: slog.LevelDebug})
	log.SetOutput(io.MultiWriter(slog.NewLogLogger(both, slog.LevelDebug).Writer(), log.Writer()))
	client, err := oci.NewHTTPClient(oci.Network{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		resp, err := client.Get(server.URL)
		if err != nil {
			return false // the request met the connection's end
		}
		resp.Body.Close()
		return strings.Contains(debuggers.String(), "Unsolicited response")
	}, time.Minute, 50*time.Millisecond)
	require.Empty(t, operators.String())
}

// lines may be written while they are read.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
