package oci_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// behind serves one manifest and one blob, as change has it.
func behind(t *testing.T, m bundle.Blob, blob bundle.Blob, change func(w http.ResponseWriter, r *http.Request) (done bool)) (oci.Target, *atomic.Int32) {
	var requests atomic.Int32
	loc, opts := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		answer := httptest.NewRecorder()
		switch r.URL.Path {
		case "/v2/edge/a/manifests/latest", "/v2/edge/a/manifests/" + m.Descriptor.Digest.String():
			answer.Header().Set("Content-Type", m.Descriptor.MediaType)
			answer.Header().Set("Content-Length", fmt.Sprint(len(m.Data)))
			answer.Header().Set("Docker-Content-Digest", m.Descriptor.Digest.String())
			_, _ = answer.Write(m.Data)
		case "/v2/edge/a/blobs/" + blob.Descriptor.Digest.String():
			answer.Header().Set("Content-Length", fmt.Sprint(len(blob.Data)))
			_, _ = answer.Write(blob.Data)
		default:
			answer.WriteHeader(http.StatusNotFound)
		}
		for key, values := range answer.Header() {
			w.Header()[key] = values
		}
		if change(w, r) {
			return
		}
		w.WriteHeader(answer.Code)
		if r.Method != http.MethodHead {
			_, _ = io.Copy(w, answer.Body)
		}
	})
	repo, err := loc.Repository("a", opts)
	require.NoError(t, err)
	return repo, &requests
}

// Docker-Content-Digest is optional, and proxies refuse HEAD.
func TestADigestIsFoundWithoutHEAD(t *testing.T) {
	m, _ := manifest(t, "one")
	blob := bundle.NewBlob("application/octet-stream", []byte("content"))
	for name, change := range map[string]func(w http.ResponseWriter, r *http.Request) bool{
		"no digest": func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Del("Docker-Content-Digest")
			return false
		},
		"no HEAD": func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodHead {
				w.Header().Del("Content-Length")
				w.WriteHeader(http.StatusMethodNotAllowed)
			}
			return r.Method == http.MethodHead
		},
		"no HEAD, no digest and no length": func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Del("Docker-Content-Digest")
			w.Header().Del("Content-Length")
			if r.Method == http.MethodHead {
				w.WriteHeader(http.StatusNotImplemented)
			}
			return r.Method == http.MethodHead
		},
	} {
		t.Run(name, func(t *testing.T) {
			repo, requests := behind(t, m, blob, change)
			for range 2 {
				desc, err := repo.Resolve(t.Context(), "latest")
				require.NoError(t, err)
				require.Equal(t, m.Descriptor, desc)
			}
			require.Equal(t, int32(3), requests.Load(), "HEAD is tried once")
			desc, err := repo.Resolve(t.Context(), m.Descriptor.Digest.String())
			require.NoError(t, err)
			require.Equal(t, m.Descriptor, desc)
			whole, err := bundle.ResolveManifest(t.Context(), repo, "latest")
			require.NoError(t, err)
			require.Equal(t, m.WithData(), whole)
			for _, there := range []ocispec.Descriptor{m.Descriptor, blob.Descriptor} {
				ok, err := repo.Exists(t.Context(), there)
				require.NoError(t, err)
				require.True(t, ok)
			}
			ok, err := repo.Exists(t.Context(), bundle.NewBlob("application/octet-stream", []byte("other")).Descriptor)
			require.NoError(t, err)
			require.False(t, ok)
			_, err = repo.Resolve(t.Context(), "gone")
			require.ErrorIs(t, err, errdef.ErrNotFound)
		})
	}
}

// ECR answers 403 to a token that has expired. The file with the login has a new one by then.
func TestALoginThatHasExpiredIsReadAnew(t *testing.T) {
	m, _ := manifest(t, "one")
	var password atomic.Pointer[string]
	expired, denied := "expired", atomic.Bool{}
	password.Store(&expired)
	loc, opts := serve(t, func(w http.ResponseWriter, r *http.Request) {
		user, given, ok := r.BasicAuth()
		switch {
		case !ok:
			w.Header().Set("WWW-Authenticate", `Basic realm="ecr"`)
			w.WriteHeader(http.StatusUnauthorized)
		case user != "AWS" || given != *password.Load() || denied.Load():
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"errors":[{"code":"DENIED","message":"Your authorization token has expired. Reauthenticate and try again."}]}`)
		case r.Method == http.MethodPost:
			w.Header().Set("Location", r.URL.Path+"session")
			w.WriteHeader(http.StatusAccepted)
		case r.Method == http.MethodPut:
			body, err := io.ReadAll(r.Body)
			if err != nil || !bytes.Equal(body, []byte("content")) {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			w.WriteHeader(http.StatusCreated)
		default:
			w.Header().Set("Content-Type", m.Descriptor.MediaType)
			w.Header().Set("Docker-Content-Digest", m.Descriptor.Digest.String())
			_, _ = w.Write(m.Data)
		}
	})
	file := filepath.Join(t.TempDir(), "config.json")
	login := func(password string) {
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, loc.Host, base64.StdEncoding.EncodeToString([]byte("AWS:"+password))), 0o600))
	}
	login("expired")
	var err error
	opts.Credential, err = oci.Credentials(file)
	require.NoError(t, err)
	repo, err := loc.Repository("a", opts)
	require.NoError(t, err)
	_, err = repo.Resolve(t.Context(), "latest")
	require.NoError(t, err)

	fresh := "fresh"
	password.Store(&fresh)
	_, err = repo.Resolve(t.Context(), "latest")
	require.ErrorIs(t, err, oci.ErrUnauthorized, "nobody has logged in anew")
	require.ErrorContains(t, err, "403")
	login("fresh")
	blob := bundle.NewBlob("application/octet-stream", []byte("content"))
	require.NoError(t, repo.Push(t.Context(), blob.Descriptor, bytes.NewReader(blob.Data)), "a body is sent again")
	_, err = repo.Resolve(t.Context(), "latest")
	require.NoError(t, err)

	denied.Store(true)
	_, err = repo.Resolve(t.Context(), "latest")
	require.ErrorContains(t, err, "answered 403 Forbidden", "what is denied stays denied")
}

// tripper is a registry without a network, so that its clock is virtual.
type tripper func(r *http.Request) *http.Response

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// A token that is old may have expired, whatever the registry calls it; one that is new is for something else.
func TestAnOldTokenIsRenewedAfter403(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := manifest(t, "one")
		tokens, requests := 0, 0
		valid := time.Now().Add(time.Hour)
		client := &http.Client{Transport: tripper(func(r *http.Request) *http.Response {
			requests++
			w := httptest.NewRecorder()
			switch given := r.Header.Get("Authorization"); {
			case r.URL.Path == "/token":
				tokens++
				valid = time.Now().Add(time.Hour)
				_, _ = fmt.Fprintf(w, `{"token":"t%d"}`, tokens)
			case given == "":
				w.Header().Set("WWW-Authenticate", `Bearer realm="https://registry.example/token",service="edge"`)
				w.WriteHeader(http.StatusUnauthorized)
			case r.Method == http.MethodDelete, given != fmt.Sprintf("Bearer t%d", tokens), time.Now().After(valid):
				w.WriteHeader(http.StatusForbidden)
			default:
				w.Header().Set("Content-Type", m.Descriptor.MediaType)
				w.Header().Set("Docker-Content-Digest", m.Descriptor.Digest.String())
				w.Header().Set("Content-Length", fmt.Sprint(len(m.Data)))
				_, _ = w.Write(m.Data)
			}
			answer := w.Result()
			answer.Request = r
			return answer
		})}
		opts := oci.Options{HTTPClient: client, Credential: auth.StaticCredential("registry.example", auth.Credential{Username: "me", Password: "secret"})}
		repo, err := oci.Location{Host: "registry.example"}.Repository("a", opts)
		require.NoError(t, err)
		resolve := func() {
			t.Helper()
			_, err := repo.Resolve(t.Context(), "latest")
			require.NoError(t, err)
		}
		resolve()
		require.Equal(t, 1, tokens)
		time.Sleep(2 * time.Hour)
		resolve()
		require.Equal(t, 2, tokens)
		before := requests
		require.ErrorContains(t, repo.Untag(t.Context(), "latest"), "403")
		require.ErrorContains(t, repo.Untag(t.Context(), "latest"), "403")
		require.LessOrEqual(t, requests-before, 4, "a new token is not renewed, whatever is denied")
	})
}
