package registry_test

import (
	"bytes"
	"context"
	"io"
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
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "docker")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "docker"), nil, 0o600))
	answer := httptest.NewRecorder()
	reg.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/v2/edge/blobs/uploads/", nil))
	require.Equal(t, http.StatusInternalServerError, answer.Code)
	require.Contains(t, log.String(), "level=ERROR")
	require.Contains(t, log.String(), "not a directory")
}

// A download of a blob answers as distribution does, and a repository has only what was pushed to it.
func TestABlobIsDownloaded(t *testing.T) {
	reg, err := registry.Open(t.TempDir(), registry.Options{})
	require.NoError(t, err)
	defer reg.Close()
	server := httptest.NewServer(reg.Handler())
	defer server.Close()
	loc, err := oci.Parse("oci://" + server.Listener.Addr().String() + "/edge")
	require.NoError(t, err)
	repo, err := loc.Repository("bundles/dev/drone", oci.Options{})
	require.NoError(t, err)
	blob := bundle.NewBlob("application/octet-stream", []byte("content"))
	require.NoError(t, repo.Push(t.Context(), blob.Descriptor, bytes.NewReader(blob.Data)))
	d := blob.Descriptor.Digest.String()
	for _, tc := range []struct {
		name, method, path, header, value string
		status                            int
		body                              string
	}{
		{name: "whole", path: "bundles/dev/drone/blobs/" + d, status: 200, body: "content"},
		{name: "from a place on", path: "bundles/dev/drone/blobs/" + d, header: "Range", value: "bytes=3-", status: 206, body: "tent"},
		{name: "known already", path: "bundles/dev/drone/blobs/" + d, header: "If-None-Match", value: `"` + d + `"`, status: 304},
		{name: "without its content", method: http.MethodHead, path: "bundles/dev/drone/blobs/" + d, status: 200},
		{name: "of another repository", path: "bundles/dev/truck/blobs/" + d, status: 404},
		{name: "by a way round", path: "bundles/dev/truck/../drone/blobs/" + d, status: 301},
		{name: "of another digest", path: "bundles/dev/drone/blobs/sha256:" + strings.Repeat("0", 64), status: 404},
		{name: "without a digest", path: "bundles/dev/drone/blobs/content", status: 404},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.method == "" {
				tc.method = http.MethodGet
			}
			req, err := http.NewRequestWithContext(t.Context(), tc.method, server.URL+"/v2/edge/"+tc.path, nil)
			require.NoError(t, err)
			if tc.header != "" {
				req.Header.Set(tc.header, tc.value)
			}
			resp, err := http.DefaultTransport.RoundTrip(req)
			require.NoError(t, err)
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, tc.status, resp.StatusCode, "%s", body)
			if tc.status >= 300 {
				return
			}
			require.Equal(t, tc.body, string(body))
			require.Equal(t, d, resp.Header.Get("Docker-Content-Digest"))
			require.Equal(t, `"`+d+`"`, resp.Header.Get("ETag"))
			require.Equal(t, "application/octet-stream", resp.Header.Get("Content-Type"))
			require.Equal(t, "registry/2.0", resp.Header.Get("Docker-Distribution-Api-Version"))
		})
	}
}
