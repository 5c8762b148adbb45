package oci_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/airgap/registry"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// tagged is a registry with one tag.
type tagged struct {
	data  []byte
	asked []string // the methods of requests, with a colon where they had a condition
	etag  func(data []byte) string
	named bool // answers name the digest
}

func (r *tagged) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	method := req.Method
	if req.Header.Get("If-None-Match") != "" {
		method += ":"
	}
	r.asked = append(r.asked, method)
	w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
	if r.named {
		w.Header().Set("Docker-Content-Digest", digest.FromBytes(r.data).String())
	}
	if r.etag != nil {
		w.Header().Set("ETag", r.etag(r.data))
		if strings.Join(req.Header["If-None-Match"], ", ") == r.etag(r.data) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	_, _ = w.Write(r.data)
}

func TestAPollBearsABrokenBody(t *testing.T) {
	t.Parallel()
	n := 0
	loc, opts := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
		w.Header().Set("Content-Length", "2")
		_, _ = w.Write([]byte("{}")[:min(n, 2)])
		n++
	})
	repo, err := loc.Repository("bundles/dev/drone", opts)
	require.NoError(t, err)
	desc, data, err := new(oci.Poller).Poll(t.Context(), repo, "latest", "", 1000)
	require.NoError(t, err)
	require.Equal(t, "{}", string(data))
	require.Equal(t, digest.FromString("{}"), desc.Digest)
	require.Equal(t, 3, n)
}

func TestAnUnchangedTagCostsOneRequest(t *testing.T) {
	t.Parallel()
	byDigest := func(data []byte) string { return `"` + digest.FromBytes(data).String() + `"` }
	n := 0
	for name, c := range map[string]struct {
		registry tagged
		asked    string // the first, three without a change, one with it, and two more
	}{
		"ETags that are digests":      {tagged{named: true, etag: byDigest}, "GET GET: GET: GET: GET: GET: GET:"},
		"ETags of its own":            {tagged{named: true, etag: func(data []byte) string { return fmt.Sprintf(`W/"%d"`, len(data)) }}, "GET GET: GET: GET: GET: GET: GET:"},
		"no ETags":                    {tagged{named: true}, "GET GET: HEAD HEAD HEAD GET: HEAD HEAD"},
		"ETags that mean nothing":     {tagged{named: true, etag: func([]byte) string { n++; return fmt.Sprintf(`"%d"`, n) }}, "GET GET: HEAD HEAD HEAD GET: HEAD HEAD"},
		"neither ETags nor digests":   {tagged{}, "GET GET: HEAD GET: GET: GET: GET: GET:"},
		"an ETag as long as a prayer": {tagged{named: true, etag: func([]byte) string { return `"` + strings.Repeat("x", 300) + `"` }}, "GET GET: HEAD HEAD HEAD GET: HEAD HEAD"},
	} {
		t.Run(name, func(t *testing.T) {
			loc, opts := serve(t, c.registry.ServeHTTP)
			repo, err := loc.Repository("bundles/dev/drone", opts)
			require.NoError(t, err)
			p, known := &oci.Poller{}, digest.Digest("")
			for i := range 7 {
				if i == 0 || i == 4 {
					c.registry.data = fmt.Appendf(nil, `{"release": %d%s}`, i, strings.Repeat(" ", i))
				}
				desc, data, err := p.Poll(t.Context(), repo, "latest", known, 100)
				require.NoError(t, err)
				require.Equal(t, digest.FromBytes(c.registry.data), desc.Digest)
				if i == 0 || i == 4 {
					require.Equal(t, c.registry.data, data)
					require.Equal(t, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: desc.Digest, Size: int64(len(data))}, desc)
				} else {
					require.Nil(t, data)
				}
				known = desc.Digest
			}
			require.Equal(t, c.asked, strings.Join(c.registry.asked, " "))
		})
	}
}

func TestPollsOfRegistriesAndLayouts(t *testing.T) {
	t.Parallel()
	reg, err := registry.Open(t.TempDir(), registry.Options{})
	require.NoError(t, err)
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		requests++
		reg.Handler().ServeHTTP(w, req)
	}))
	t.Cleanup(func() { server.Close(); require.NoError(t, reg.Close()) })
	for kind, loc := range map[string]oci.Location{"registry": {Host: server.Listener.Addr().String()}, "layout": {Dir: t.TempDir() + "/new"}} {
		t.Run(kind, func(t *testing.T) {
			repo, err := loc.Repository("bundles/dev/drone", oci.Options{})
			require.NoError(t, err)
			p := &oci.Poller{}
			_, _, err = p.Poll(t.Context(), repo, "latest", "", bundle.MaxManifestBytes)
			require.ErrorIs(t, err, errdef.ErrNotFound)
			for _, text := range []string{"one", "two"} {
				m, config := manifest(t, text)
				pushAll(t, repo, config, m)
				require.NoError(t, repo.Tag(t.Context(), m.Descriptor, "latest"))
				desc, data, err := p.Poll(t.Context(), repo, "latest", digest.FromString("another"), bundle.MaxManifestBytes)
				require.NoError(t, err)
				require.Equal(t, m.Descriptor, desc)
				require.True(t, bytes.Equal(m.Data, data))
				before := requests
				for range 2 {
					same, data, err := p.Poll(t.Context(), repo, "latest", desc.Digest, bundle.MaxManifestBytes)
					require.NoError(t, err)
					require.Nil(t, data)
					require.Equal(t, ocispec.Descriptor{Digest: desc.Digest}, same)
				}
				if kind == "registry" {
					require.Equal(t, 2, requests-before)
				}
				_, _, err = p.Poll(t.Context(), repo, "latest", "", 10)
				require.ErrorIs(t, err, errdef.ErrSizeExceedsLimit)
			}
			_, _, err = p.Poll(t.Context(), repo, "no/tag", "", 10)
			require.Error(t, err)
		})
	}
}

func TestAnswersToAPollThatAreNone(t *testing.T) {
	t.Parallel()
	known := digest.FromString("known")
	for name, c := range map[string]struct {
		known  digest.Digest
		answer http.HandlerFunc
		kind   error
		words  string
	}{
		"busy":                        {known, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, oci.ErrUnreachable, "answered 503"},
		"denied":                      {known, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }, oci.ErrUnauthorized, "answered 403"},
		"gone":                        {known, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, errdef.ErrNotFound, "answered 404"},
		"304, and nothing is known":   {"", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(304) }, nil, "answered 304"},
		"a manifest without its type": {known, func(w http.ResponseWriter, _ *http.Request) { w.Header()["Content-Type"] = nil }, nil, "that is not a manifest"},
		"a digest of something else": {known, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
			w.Header().Set("Docker-Content-Digest", known.String())
			_, _ = w.Write([]byte("{}"))
		}, content.ErrMismatchedDigest, "calls it otherwise"},
		"half a manifest": {known, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("{"))
		}, oci.ErrUnreachable, "unexpected EOF"},
		"a manifest said to be too long": {known, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
			w.Header().Set("Content-Length", "1001")
		}, errdef.ErrSizeExceedsLimit, "more than 1000 bytes"},
		"a manifest without an end": {known, func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
			for req.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<10)); err != nil {
					return
				}
			}
		}, errdef.ErrSizeExceedsLimit, "more than 1000 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			loc, opts := serve(t, c.answer)
			repo, err := loc.Repository("bundles/dev/drone", opts)
			require.NoError(t, err)
			_, _, err = new(oci.Poller).Poll(t.Context(), repo, "latest", c.known, 1000)
			require.ErrorContains(t, err, c.words)
			require.ErrorContains(t, err, "poll "+loc.Host+"/edge/bundles/dev/drone:latest: ")
			if c.kind != nil {
				require.ErrorIs(t, err, c.kind)
			}
		})
	}
}
