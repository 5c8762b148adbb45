package registry_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/airgap/registry"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

func TestWhatWasPushedIsThereAfterARestart(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	blob := bundle.NewBlob("application/octet-stream", []byte("content"))
	for _, step := range []string{"push", "fetch"} {
		reg, err := registry.Open(dir, registry.Options{})
		require.NoError(t, err)
		server := httptest.NewServer(reg.Handler())
		loc, err := oci.Parse("oci://" + server.Listener.Addr().String() + "/edge")
		require.NoError(t, err)
		repo, err := loc.Repository("bundles/dev/drone", oci.Options{})
		require.NoError(t, err)
		if step == "push" {
			require.NoError(t, repo.Push(ctx, blob.Descriptor, bytes.NewReader(blob.Data)))
		}
		got, err := bundle.ReadBlob(ctx, repo, blob.Descriptor, 1<<10)
		require.NoError(t, err)
		require.Equal(t, blob.Data, got)
		server.Close()
		require.NoError(t, reg.Close())
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	reg, err := registry.Open(t.TempDir(), registry.Options{})
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- reg.Serve(ctx, l) }()
	resp, err := http.Get("http://" + l.Addr().String() + "/v2/")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	cancel()
	require.NoError(t, <-served)
	_, err = net.Dial("tcp", l.Addr().String())
	require.Error(t, err)
}

func TestOpenSaysWhatIsWrongWithTheFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := registry.Open(file, registry.Options{})
	require.ErrorContains(t, err, "registry folder "+file)
	require.ErrorContains(t, err, "not a directory")
}

func TestAFailingRequestIsLoggedWithItsReason(t *testing.T) {
	dir := t.TempDir()
	var log strings.Builder
	reg, err := registry.Open(dir, registry.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	defer reg.Close()
	// The driver needs a folder where it finds a file now.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "docker"), nil, 0o600))
	answer := httptest.NewRecorder()
	reg.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/v2/edge/blobs/uploads/", nil))
	require.Equal(t, http.StatusInternalServerError, answer.Code)
	require.Contains(t, log.String(), "level=ERROR")
	require.Contains(t, log.String(), "not a directory")
}
