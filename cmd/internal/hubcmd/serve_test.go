package hubcmd

import (
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/access"
)

func TestTheAddressHasTLSWithACertificate(t *testing.T) {
	t.Parallel()
	known := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate, and a client that trusts that
	t.Cleanup(known.Close)
	pair := known.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)
	dir := t.TempDir()
	s := serving{addr: "127.0.0.1:0", certificate: filepath.Join(dir, "cert"), key: filepath.Join(dir, "key")}
	require.NoError(t, os.WriteFile(s.certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), 0o600))
	require.NoError(t, os.WriteFile(s.key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))

	l, url, err := s.listen(slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	server := &http.Server{Handler: http.NotFoundHandler()}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-ended })
	answer, err := known.Client().Get(url)
	require.NoError(t, err)
	require.Equal(t, pair.Certificate[0], answer.TLS.PeerCertificates[0].Raw)
	require.NoError(t, answer.Body.Close())
}

func TestTheSampleFleetIsServedAndLeavesNothingBehind(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	require.NoError(t, withDemo(t.Context(), hub.Options{Anonymous: access.Viewer}, 120, func(h *hub.Hub) error {
		w := httptest.NewRecorder()
		h.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		require.Contains(t, w.Body.String(), ">120 clusters</a>")
		return nil
	}))
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left)
}
