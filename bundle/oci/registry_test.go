package oci_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// serve returns the location of a registry that answers with h, and options that do not try again.
func serve(t *testing.T, h http.HandlerFunc) (oci.Location, oci.Options) {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return oci.Location{Host: server.Listener.Addr().String(), Prefix: "edge"}, oci.Options{HTTPClient: server.Client()}
}

func TestErrorsHaveAKind(t *testing.T) {
	for _, tc := range []struct {
		name   string
		status int
		kind   error
		text   string
	}{
		{"a registry that is broken", 500, oci.ErrUnreachable, "registry unreachable: answered 500 Internal Server Error"},
		{"a registry that is busy", 429, oci.ErrUnreachable, "registry unreachable: answered 429 Too Many Requests"},
		{"no credentials", 401, oci.ErrUnauthorized, "unauthorized"},
		{"a denied request", 403, oci.ErrUnauthorized, "unauthorized: answered 403 Forbidden"},
		{"nothing there", 404, errdef.ErrNotFound, "not found"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			loc, opts := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("WWW-Authenticate", `Basic realm="edge"`)
				w.WriteHeader(tc.status)
			})
			t.Setenv("DOCKER_CONFIG", t.TempDir())
			repo, err := loc.Repository("bundles/dev/drone", opts)
			require.NoError(t, err)
			blob := bundle.NewBlob("application/octet-stream", []byte("content"))
			_, resolve := repo.Resolve(t.Context(), "latest")
			_, fetch := repo.Fetch(t.Context(), blob.Descriptor)
			push := repo.Push(t.Context(), blob.Descriptor, strings.NewReader("content"))
			for _, err := range []error{resolve, fetch, push} {
				require.ErrorIs(t, err, tc.kind)
				require.ErrorContains(t, err, tc.text)
				require.ErrorContains(t, err, loc.Host+"/edge/bundles/dev/drone")
			}
		})
	}
}

func TestNobodyListensIsUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	repo, err := oci.Location{Host: l.Addr().String(), Prefix: "edge"}.Repository("a", oci.Options{})
	require.NoError(t, err)
	_, err = repo.Resolve(t.Context(), "latest")
	require.ErrorIs(t, err, oci.ErrUnreachable)
	require.ErrorContains(t, err, "connection refused")
	_, err = repo.Tags(t.Context())
	require.ErrorIs(t, err, oci.ErrUnreachable)
}

func TestAnEndedContextIsNotAnUnreachableRegistry(t *testing.T) {
	loc, opts := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	repo, err := loc.Repository("a", opts)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = repo.Resolve(ctx, "latest")
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, oci.ErrUnreachable)
	_, err = repo.Fetch(ctx, bundle.NewBlob("x", nil).Descriptor)
	require.ErrorIs(t, err, context.Canceled)
}

func TestABodyThatEndsEarlyIsUnreachableAndOneThatDoesNotEndIsCut(t *testing.T) {
	blob := bundle.NewBlob("application/octet-stream", []byte("0123456789"))
	loc, opts := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/short/") {
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "01234")
			return
		}
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat("0123456789", 1000)); err != nil {
				return
			}
		}
	})
	short, err := loc.Repository("short", opts)
	require.NoError(t, err)
	body, err := short.Fetch(t.Context(), blob.Descriptor)
	require.NoError(t, err)
	_, err = io.ReadAll(body)
	require.ErrorIs(t, err, oci.ErrUnreachable)
	require.NoError(t, body.Close())

	endless, err := loc.Repository("endless", opts)
	require.NoError(t, err)
	body, err = endless.Fetch(t.Context(), blob.Descriptor)
	require.NoError(t, err)
	data, err := io.ReadAll(body)
	require.ErrorContains(t, err, "longer than the 10 bytes")
	require.Len(t, data, 10)
	require.NoError(t, body.Close())
}

func TestWhatBringsNextToNothingIsUnreachable(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	silent := func(http.ResponseWriter, *http.Request) { <-over }
	loc, opts := serve(t, silent)
	t.Cleanup(func() { close(over) })
	opts.Patience = 50 * time.Millisecond
	repo, err := loc.Repository("bundles/dev/drone", opts)
	require.NoError(t, err)
	blob := bundle.NewBlob("x", make([]byte, 1000))
	_, resolve := repo.Resolve(t.Context(), "latest")
	_, fetch := repo.Fetch(t.Context(), blob.Descriptor)
	require.ErrorIs(t, resolve, oci.ErrUnreachable)
	require.ErrorIs(t, fetch, oci.ErrUnreachable)

	loc, opts = serve(t, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Length", "1000")
		for req.Context().Err() == nil {
			_, _ = w.Write(make([]byte, 1))
			w.(http.Flusher).Flush()
			time.Sleep(10 * time.Millisecond)
		}
	})
	opts.Patience = 200 * time.Millisecond
	repo, err = loc.Repository("bundles/dev/drone", opts)
	require.NoError(t, err)
	body, err := repo.Fetch(t.Context(), blob.Descriptor)
	if err == nil {
		_, err = io.ReadAll(body)
		require.NoError(t, body.Close())
	}
	require.ErrorIs(t, err, oci.ErrUnreachable)
	require.ErrorContains(t, err, "stalled")
}

func TestEndlessTagsAreCut(t *testing.T) {
	loc, opts := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</v2/edge/a/tags/list?n=1000&last=x>; rel=\"next\"")
		_, _ = io.WriteString(w, `{"tags":[`+strings.Repeat(`"x",`, 9999)+`"x"]}`)
	})
	repo, err := loc.Repository("a", opts)
	require.NoError(t, err)
	_, err = repo.Tags(t.Context())
	require.ErrorContains(t, err, "more than 100000 names")
}

func TestARegistryWithoutCatalogIsUnsupported(t *testing.T) {
	for _, status := range []int{401, 403, 404, 405, 501} {
		loc, opts := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		store, err := loc.Open(opts)
		require.NoError(t, err)
		_, err = store.Repositories(t.Context())
		require.ErrorIs(t, err, errors.ErrUnsupported, "%d", status)
	}
}

func TestARegistryThatMayWantTLSSaysSo(t *testing.T) {
	loc, opts := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) })
	repo, err := loc.Repository("a", opts)
	require.NoError(t, err)
	_, err = repo.Resolve(t.Context(), "latest")
	require.ErrorContains(t, err, "it was asked without TLS, and may want TLS: loopback addresses are always asked without it")
}

// A Secret of type kubernetes.io/dockercfg is mounted in the folder of $DOCKER_CONFIG under its own name.
func TestAnOlderPullSecretIsReadUnderItsOwnName(t *testing.T) {
	config := t.TempDir()
	t.Setenv("DOCKER_CONFIG", config)
	t.Setenv("PATH", config) // no credential helper is found
	loc, opts := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "operator" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="edge"`)
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	secret := fmt.Sprintf(`{%q: {"username": "operator", "password": "secret", "auth": "b3BlcmF0b3I6c2VjcmV0"}}`, loc.Host)
	require.NoError(t, os.WriteFile(filepath.Join(config, ".dockercfg"), []byte(secret), 0o600))
	repo, err := loc.Repository("a", opts)
	require.NoError(t, err)
	_, err = repo.Tags(t.Context())
	require.NotErrorIs(t, err, oci.ErrUnauthorized)
}

func TestLoginKeepsWhatTheRegistryAccepts(t *testing.T) {
	config := t.TempDir()
	t.Setenv("DOCKER_CONFIG", config)
	t.Setenv("PATH", config) // no credential helper is found
	loc, opts := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "operator" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="edge"`)
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	_, err := oci.Login(t.Context(), loc.Host, "operator", "guess", opts)
	require.ErrorIs(t, err, oci.ErrUnauthorized)
	require.NoFileExists(t, filepath.Join(config, "config.json"))

	recorded, err := oci.Login(t.Context(), loc.Host, "operator", "secret", opts)
	require.NoError(t, err)
	require.Empty(t, recorded)
	saved, err := os.ReadFile(filepath.Join(config, "config.json"))
	require.NoError(t, err)
	require.Contains(t, string(saved), loc.Host)
	repo, err := loc.Repository("a", opts)
	require.NoError(t, err)
	_, err = repo.Tags(t.Context())
	require.NotErrorIs(t, err, oci.ErrUnauthorized)

	require.NoError(t, oci.Logout(t.Context(), loc.Host))
	saved, err = os.ReadFile(filepath.Join(config, "config.json"))
	require.NoError(t, err)
	require.NotContains(t, string(saved), loc.Host)
	require.NoError(t, oci.Logout(t.Context(), loc.Host), "a second logout changes nothing")
}
