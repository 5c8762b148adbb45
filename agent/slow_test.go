package agent

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// In these tests, fewer than a thousand bytes in this time are a stall. It stands for a byte a second under the rule of
// 256 bytes a minute.
const patience, dripped = 200 * time.Millisecond, 1000

// drip sends a byte at a time for as long as the client reads.
func drip(w io.Writer, r *http.Request, rest []byte) {
	for i := 0; r.Context().Err() == nil; i++ {
		if _, err := w.Write(rest[i%len(rest):][:1]); err != nil {
			return
		}
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		time.Sleep(patience / 40)
	}
}

// drippingHeader answers with a header that does not end.
func drippingHeader(w http.ResponseWriter, r *http.Request) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	_, _ = conn.Write([]byte("HTTP/1.1 200 OK\r\nX-Long: "))
	drip(conn, r, []byte("x"))
}

// drippingBody answers with a body, of which it brings little after its first n bytes.
func drippingBody(body []byte, n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		_, _ = w.Write(body[:n])
		drip(w, r, body[n:])
	}
}

// A registry, or a link, that goes on and gets nowhere holds up one pass, and no longer than the rule says.
func TestWhatGoesOnForEverEndsAPassAndNothingElse(t *testing.T) {
	files, _ := trees()
	const latest = "/manifests/" + bundle.LatestTag
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(silent.Close)
	login := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="`+silent.URL+`/token",service="edge"`)
		w.WriteHeader(http.StatusUnauthorized)
	}
	for _, tc := range []struct {
		name   string
		answer func(t *testing.T, layer []byte) http.HandlerFunc
		tag    bool // to the poll, and not to the request for the layer
		kept   int  // bytes of the layer
	}{
		{name: "a layer", kept: 2000, answer: func(_ *testing.T, layer []byte) http.HandlerFunc { return drippingBody(layer, 2000) }},
		{name: "the header of a layer", answer: func(*testing.T, []byte) http.HandlerFunc { return drippingHeader }},
		{name: "a login for a layer", answer: func(*testing.T, []byte) http.HandlerFunc { return login }},
		{name: "a manifest", tag: true, answer: func(*testing.T, []byte) http.HandlerFunc { return drippingBody(make([]byte, 5000), 1) }},
		{name: "the header of a manifest", tag: true, answer: func(*testing.T, []byte) http.HandlerFunc { return drippingHeader }},
		{name: "a login for a manifest", tag: true, answer: func(*testing.T, []byte) http.HandlerFunc { return login }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.publish(s.draft(1, map[string]string{"shop-main/config.yaml": "a: 1"}))
			s.once()
			layer := s.layer(s.publish(s.draft(2, files)))
			data, suffix := s.blobBytes(layer), layer.Digest.String()
			opts := oci.Options{HTTPClient: &http.Client{Transport: &http.Transport{}}, AuthHosts: []string{silent.Listener.Addr().String()}, Credential: auth.StaticCredential(s.location().Host, auth.Credential{Username: "a", Password: "b"})}
			if tc.tag {
				suffix, opts.Patience = latest, patience
			}
			answer := tc.answer(t, data)
			hook := func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, suffix) {
					answer(w, r)
					return true
				}
				return false
			}
			s.registry.hook.Store(&hook)
			store, err := s.location().Open(opts)
			require.NoError(t, err)
			s.linked, err = store.Repository(s.stream.Repository())
			require.NoError(t, err)
			download, window := s.opts.Content.Download, patience
			if tc.kept > 0 {
				window *= 10 // in which they have to come, on a busy machine too
			}
			s.opts.Content.Download.Window, s.opts.Content.Download.MinProgress, s.opts.Content.Download.Retries = window, dripped, -1

			r := s.once()

			require.Equal(t, Unreachable, r.Verdict, r.Error)
			require.Equal(t, "Unreachable", r.Status.Reason)
			require.Equal(t, bundle.Compliant, r.Status.Items[0].State)
			require.EqualValues(t, 1, r.Status.Release.Running.Sequence)
			requireFile(t, s.host, "shop-main/config.yaml", "a: 1")

			s.linked, s.opts.Content.Download = nil, download
			begun := s.ranges(layer.Digest, data)
			r = s.once()
			require.Equal(t, bundle.Compliant, r.Status.State, r.Error)
			require.EqualValues(t, 2, r.Status.Release.Running.Sequence)
			require.Len(t, *begun, 1)
			require.GreaterOrEqual(t, (*begun)[0], tc.kept, "what had come is kept")
			requireFile(t, s.host, "w3-x/f", files["w3-x/f"])
		})
	}
}
