package oci_test

import (
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/oci"
)

func TestTheRightToPushIsAskedForAndNothingIsLeft(t *testing.T) {
	content := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)))
	var asked []string
	refuse := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method)
		if refuse && r.Method == http.MethodPost {
			http.Error(w, `{"errors":[{"code":"DENIED","message":"read only"}]}`, http.StatusForbidden)
			return
		}
		content.ServeHTTP(w, r)
	}))
	defer server.Close()
	l, err := oci.Parse("oci://" + strings.TrimPrefix(server.URL, "http://") + "/edge")
	require.NoError(t, err)
	require.NoError(t, l.MayPush(t.Context(), "environments/dev", oci.Options{}))
	require.Equal(t, []string{http.MethodPost, http.MethodDelete}, asked, "an upload is begun, and given up")
	store, err := l.Open(oci.Options{})
	require.NoError(t, err)
	names, err := store.Repositories(t.Context())
	require.NoError(t, err)
	require.Empty(t, names)

	refuse = true
	require.ErrorIs(t, l.MayPush(t.Context(), "environments/dev", oci.Options{}), oci.ErrUnauthorized)
	server.Close()
	require.ErrorIs(t, l.MayPush(t.Context(), "environments/dev", oci.Options{HTTPClient: http.DefaultClient}), oci.ErrUnreachable)
}

func TestTheRightToPushToAFolderIsAskedForAndNothingIsLeft(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, oci.Location{Dir: filepath.Join(dir, "new", "layout")}.MayPush(t.Context(), "environments/dev", oci.Options{}))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	err = oci.Location{Dir: filepath.Join(dir, "file", "layout")}.MayPush(t.Context(), "environments/dev", oci.Options{})
	require.Error(t, err)
	require.False(t, errors.Is(err, fs.ErrNotExist), "%v", err)
	require.ErrorIs(t, oci.Location{Archive: "site.tar"}.MayPush(t.Context(), "environments/dev", oci.Options{}), oci.ErrReadOnly)
}
