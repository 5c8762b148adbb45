package hub

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store/postgres/pgtest"
)

// PostgreSQL is away: people with a token go on to read what is in memory, with its age; nothing can be changed; and the log says
// so once.
func TestAHubWhoseServerIsAwayAnswersFromMemory(t *testing.T) {
	s := pgtest.Start(t)
	var mu sync.Mutex
	var out bytes.Buffer
	h, err := Open(t.TempDir(), Options{Database: s.URL(t), Log: slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return out.Write(b)
	}), nil))})
	require.NoError(t, err)
	t.Cleanup(func() { _ = h.Close() })
	a := newAgent(t, "plant-7")
	a.register(t, h)
	reader, _, err := h.Access().Create(t.Context(), access.Request{Name: "ann", Role: access.Viewer})
	require.NoError(t, err)
	writer, _, err := h.Access().Create(t.Context(), access.Request{Name: "bob", Role: access.Operator})
	require.NoError(t, err)
	ask := func(method, path string, token access.Token) *httptest.ResponseRecorder {
		r, w := httptest.NewRequest(method, path, nil), httptest.NewRecorder()
		r.Header.Set("Authorization", "Bearer "+token.Reveal())
		h.Handler().ServeHTTP(w, r)
		return w
	}
	for _, token := range []access.Token{reader, writer} {
		require.Equal(t, http.StatusOK, ask("GET", "/v1/clusters", token).Code)
	}
	require.Equal(t, http.StatusOK, ask("GET", "/readyz", access.Token{}).Code)

	s.Kill(t)
	require.Eventually(t, func() bool { return ask("GET", "/readyz", reader).Code == http.StatusServiceUnavailable }, time.Minute, 50*time.Millisecond, "it is asked once a second")
	for range 20 {
		w := ask("GET", "/v1/clusters", reader)
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		var list fleet.Clusters
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &list))
		require.Len(t, list.Clusters, 1)
		require.False(t, list.ReadAt.IsZero(), "it says how old it is")
		require.Equal(t, http.StatusOK, ask("GET", "/", reader).Code)
		require.Equal(t, http.StatusServiceUnavailable, ask("POST", "/v1/clusters/plant-7/retire", writer).Code)
		require.Equal(t, http.StatusServiceUnavailable, ask("GET", "/readyz", reader).Code)
		post(t, h, a.UID, a.seal(t, a.report(1, 1)))
	}
	mu.Lock()
	said := out.String()
	mu.Unlock()
	for _, line := range []string{"request not answered", "not ready", "the database cannot be read"} {
		require.Equal(t, 1, strings.Count(said, line), said)
	}

	s.Restart(t)
	_, err = h.Access().Revoke(t.Context(), "ann")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return ask("GET", "/v1/clusters", reader).Code == http.StatusUnauthorized }, time.Minute, 50*time.Millisecond)
	require.Equal(t, http.StatusOK, ask("POST", "/v1/clusters/plant-7/retire", writer).Code)
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(b []byte) (int, error) { return w(b) }
