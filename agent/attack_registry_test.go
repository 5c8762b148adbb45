package agent

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/wherry-dev/wherry/bundle"
)

// manifestAnswer answers as a registry does for a manifest with the digest and size of d, with data as body.
func manifestAnswer(d ocispec.Descriptor, data []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
		w.Header().Set("Docker-Content-Digest", d.Digest.String())
		w.Header().Set("Content-Length", fmt.Sprint(d.Size))
		if r.Method == http.MethodGet {
			_, _ = w.Write(data)
		}
	}
}

// endless answers with bytes until the other side has had enough, and does not say how many there will be.
func endless(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
	for block := make([]byte, 1<<16); r.Method == http.MethodGet; {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

// inflating says little and means much: a gzip of zeros, one after another, as the transfer's encoding.
func inflating(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
	w.Header().Set("Content-Encoding", "gzip")
	for r.Method == http.MethodGet {
		if _, err := w.Write(gzipBomb()); err != nil {
			return
		}
	}
}

func redirect(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
}

// halfThen answers requests for all of a layer with half of it, and the connection's end, and those for the rest as
// rest does.
func halfThen(layer []byte, rest http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") != "" {
			rest(w, r)
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(layer)))
		_, _ = w.Write(layer[:len(layer)/2])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
}

// part answers with data as that part of something that has size bytes.
func part(from, to, size int, data []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, size))
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(data)
	}
}

// A registry, or a link, that answers as it likes. Release 6 is as good as its publisher could make it.
func TestAttackByTheRegistry(t *testing.T) {
	const latest = "/manifests/" + bundle.LatestTag
	// onLayer has the registry answer for the layer of release 6, onTag for the moving tag, whose answer is the
	// manifest: it is asked for once.
	onLayer := func(answer func(s *siege, layer []byte) http.HandlerFunc) func(*siege) digest.Digest {
		return func(s *siege) digest.Digest {
			offered := s.release(6, "a: 6")
			tree := s.manifestOf(offered.Digest).Layers[0]
			s.answer("/blobs/"+tree.Digest.String(), answer(s, s.blob(tree)))
			return offered.Digest
		}
	}
	onTag := func(answer http.HandlerFunc) func(*siege) digest.Digest {
		return func(s *siege) digest.Digest {
			s.answer(latest, answer)
			return ""
		}
	}
	body := func(data []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(data) }
	}
	mountAll(t, []attack{
		{name: "a flipped bit in a layer", lateAt: 6, want: bundle.DigestMismatch, mount: onLayer(func(_ *siege, layer []byte) http.HandlerFunc {
			layer[len(layer)/2] ^= 1
			return body(layer)
		})},
		{name: "a layer with a tail", lateAt: 6, want: bundle.DigestMismatch, mount: onLayer(func(_ *siege, layer []byte) http.HandlerFunc {
			return body(append(layer, "more"...))
		})},
		{name: "a cut layer", lateAt: 6, want: unreachable, mount: onLayer(func(_ *siege, layer []byte) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", fmt.Sprint(len(layer)))
				_, _ = w.Write(layer[:len(layer)/2])
			}
		})},
		{name: "an endless layer", lateAt: 6, want: bundle.DigestMismatch, mount: onLayer(func(*siege, []byte) http.HandlerFunc { return endless })},
		{name: "another release's layer", lateAt: 6, want: bundle.DigestMismatch, mount: onLayer(func(s *siege, _ []byte) http.HandlerFunc {
			return body(s.blob(s.manifestOf(s.good.Digest).Layers[0]))
		})},
		{name: "another layer at another host", lateAt: 6, want: bundle.DigestMismatch, mount: onLayer(func(s *siege, _ []byte) http.HandlerFunc {
			return redirect(s.otherHost(body([]byte("evil"))).URL)
		})},
		{name: "a layer at a huge URL", lateAt: 6, want: bundle.DigestMismatch, mount: onLayer(func(s *siege, _ []byte) http.HandlerFunc {
			return redirect(s.otherHost(body([]byte("evil"))).URL + "/" + strings.Repeat("x", 1<<19))
		})},
		{name: "a layer at a file URL", lateAt: 6, want: unreachable, mount: onLayer(func(*siege, []byte) http.HandlerFunc {
			return redirect("file:///etc/passwd")
		})},
		{name: "a missing layer", lateAt: 6, want: "NotFound", mount: onLayer(func(*siege, []byte) http.HandlerFunc {
			return http.NotFound
		})},
		{name: "a layer that changes half-way", lateAt: 6, want: bundle.DigestMismatch, mount: onLayer(func(_ *siege, layer []byte) http.HandlerFunc {
			half, size := len(layer)/2, len(layer)
			return halfThen(layer, part(half, size-1, size, make([]byte, size-half)))
		})},
		{name: "the rest of another layer", lateAt: 6, want: bundle.DigestMismatch, mount: onLayer(func(_ *siege, layer []byte) http.HandlerFunc {
			return halfThen(layer, body(make([]byte, len(layer))))
		})},
		{name: "the rest of a longer layer", lateAt: 6, want: bundle.DigestMismatch, mount: onLayer(func(_ *siege, layer []byte) http.HandlerFunc {
			half, size := len(layer)/2, len(layer)
			return halfThen(layer, part(half, size-1, 1<<40, layer[half:]))
		})},
		{name: "another part of a layer", lateAt: 6, want: unreachable, mount: onLayer(func(_ *siege, layer []byte) http.HandlerFunc {
			return halfThen(layer, part(0, len(layer)-1, len(layer), layer))
		})},
		{name: "an unrequested part of a layer", lateAt: 6, want: unreachable, mount: onLayer(func(_ *siege, layer []byte) http.HandlerFunc {
			return part(1, len(layer)-1, len(layer), layer[1:])
		})},
		{name: "the older release with the newer ETag", want: bundle.OlderRelease, mount: func(s *siege) digest.Digest {
			older := s.release(4, "a: 4")
			data := s.blob(older)
			answer := manifestAnswer(older, data)
			s.answer(latest, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("ETag", `"`+s.good.Digest.String()+`"`)
				answer(w, r)
			})
			return older.Digest
		}},
		{name: "an endless manifest", want: unreachable, mount: onTag(endless)},
		{name: "a manifest as a gzip bomb", want: unreachable, mount: onTag(inflating)},
		{name: "a manifest of an exabyte", want: bundle.TooLarge, mount: func(s *siege) digest.Digest {
			offered := s.release(6, "a: 6")
			s.answer(latest, manifestAnswer(ocispec.Descriptor{Digest: offered.Digest, Size: 1 << 60}, nil))
			return offered.Digest
		}},
		{name: "an endless signature manifest", want: bundle.TooLarge, mount: func(s *siege) digest.Digest {
			offered := s.release(6, "a: 6").Digest
			s.answer("/manifests/"+bundle.SignatureTag(offered), endless)
			return offered
		}},
		{name: "a tag of missing content", want: unreachable, mount: onTag(manifestAnswer(ocispec.Descriptor{Digest: digest.FromString("nothing"), Size: 10}, nil))},
		{name: "a malformed digest header", want: unreachable, mount: onTag(manifestAnswer(ocispec.Descriptor{Digest: "sha256:../../x", Size: 10}, nil))},
		{name: "a manifest with another digest header", want: unreachable, mount: func(s *siege) digest.Digest {
			offered := s.release(6, "a: 6")
			s.answer(latest, manifestAnswer(offered, bytes.Repeat([]byte("x"), int(offered.Size))))
			return ""
		}},
		{name: "redirects in a circle", want: unreachable, mount: onTag(redirect(latest))},
		{name: "a tag at a file URL", want: unreachable, mount: onTag(redirect("file:///etc/passwd"))},
		{name: "a login page", want: unreachable, mount: onTag(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<h1>Welcome to the hotel</h1>")
		})},
		{name: "an error with control characters", want: unreachable, mount: onTag(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, `{"errors":[{"code":"TEAPOT","message":"\u001b]0;owned\u0007\u001b[2J"}]}`)
		})},
		{name: "an endless header", want: unreachable, mount: onTag(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Docker-Content-Digest", strings.Repeat("x", 16<<20))
		})},
		{name: "a token service at a file URL", want: unreachable, mount: func(s *siege) digest.Digest {
			s.credential.Store(&auth.Credential{Username: "agent", Password: "secret"})
			s.answer(latest, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("WWW-Authenticate", `Bearer realm="file:///etc/passwd",service="edge"`)
				w.WriteHeader(http.StatusUnauthorized)
			})
			return ""
		}},
		{name: "a token service at another host", want: "CredentialsWithheld", mount: func(s *siege) digest.Digest {
			return s.nameTokenService(s.elsewhere()+"/token", auth.Credential{Username: "agent", Password: "secret"})
		}},
		{name: "the same with an identity token", want: "CredentialsWithheld", mount: func(s *siege) digest.Digest {
			return s.nameTokenService(s.elsewhere()+"/token", auth.Credential{RefreshToken: "secret"})
		}},
		{name: "the same without TLS", want: "CredentialsWithheld", says: "without TLS", mount: func(s *siege) digest.Digest {
			return s.nameTokenService("http://tokens.evil.example/token", auth.Credential{Username: "agent", Password: "secret"})
		}},
		{name: "the registry's name before an @", want: "CredentialsWithheld", says: "not sent to evil.example", mount: func(s *siege) digest.Digest {
			return s.nameTokenService("https://"+s.location().Host+"@evil.example/token", auth.Credential{Username: "agent", Password: "secret"})
		}},
		{name: "a token service that redirects", want: "CredentialsWithheld", says: "redirects there", mount: func(s *siege) digest.Digest {
			s.credential.Store(&auth.Credential{Username: "agent", Password: "secret"})
			s.answers(map[string]http.HandlerFunc{latest: challenge(s.registry.URL + "/token"), "/token": redirect(s.elsewhere() + "/token")})
			return ""
		}},
		{name: "the same redirect with an identity token", want: "CredentialsWithheld", says: "redirects there", mount: func(s *siege) digest.Digest {
			s.credential.Store(&auth.Credential{RefreshToken: "secret"})
			away := redirect(s.elsewhere() + "/token")
			hook := func(w http.ResponseWriter, r *http.Request) bool {
				switch {
				case strings.HasSuffix(r.URL.Path, latest):
					challenge(s.registry.URL+"/token")(w, r)
				case r.URL.Path == "/token":
					away(w, r)
				default:
					return false
				}
				return true
			}
			s.registry.hook.Store(&hook)
			return ""
		}},
		{name: "an empty registry", want: "NotFound", mount: onTag(http.NotFound)},
	})
}

// challenge answers that a token is needed, of the service at realm.
func challenge(realm string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="`+realm+`",service="edge"`)
		w.WriteHeader(http.StatusUnauthorized)
	}
}

// nameTokenService gives the agent a credential, and has the registry ask for a token of the service at realm.
func (s *siege) nameTokenService(realm string, c auth.Credential) digest.Digest {
	s.credential.Store(&c)
	s.answer("/manifests/"+bundle.LatestTag, challenge(realm))
	return ""
}

// elsewhere is the URL of a host that nobody may send anything secret to.
func (s *siege) elsewhere() string {
	return s.otherHost(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("Authorization") != "" || bytes.Contains(body, []byte("secret")) {
			s.t.Errorf("%s %s came with credentials", r.Method, r.URL)
		}
	}).URL
}

// blob reads a blob from the registry.
func (s *siege) blob(d ocispec.Descriptor) []byte {
	s.t.Helper()
	data, err := bundle.ReadBlob(s.t.(*testing.T).Context(), s.repo, d, 1<<20)
	require.NoError(s.t, err)
	return data
}

func (s *siege) otherHost(h http.HandlerFunc) *httptest.Server {
	server := httptest.NewServer(h)
	s.t.Cleanup(server.Close)
	return server
}

// A registry may keep its blobs elsewhere. What the agent has for the registry is not for that place.
func TestAttackOnCredentials(t *testing.T) {
	s := besiege(t, func(s *siege) {
		s.credential.Store(&auth.Credential{Username: "agent", Password: "secret"})
	})
	offered := s.release(6, "a: 6")
	tree := s.manifestOf(offered.Digest).Layers[0]
	layer := s.blob(tree)
	var asked, told atomic.Int64
	elsewhere := s.otherHost(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Authorization") != "" {
			told.Add(1)
		}
		_, _ = w.Write(layer)
	})
	var known atomic.Bool
	hook := func(w http.ResponseWriter, r *http.Request) bool {
		switch user, password, _ := r.BasicAuth(); {
		case user != "agent" || password != "secret":
			w.Header().Set("WWW-Authenticate", `Basic realm="edge"`)
			w.WriteHeader(http.StatusUnauthorized)
		case strings.HasSuffix(r.URL.Path, tree.Digest.String()):
			known.Store(true)
			redirect(elsewhere.URL)(w, r)
		default:
			return false
		}
		return true
	}
	s.registry.hook.Store(&hook)

	r := s.sync()

	require.Equal(t, offered.Digest, r.Status.Release.Running.Digest, r.Error)
	require.True(t, known.Load(), "the registry itself gets them")
	require.EqualValues(t, 1, asked.Load())
	require.Zero(t, told.Load())
	s.stop()
	require.NotContains(t, s.log.String(), "secret")
	s.start()
	s.end(9)
}

// Status, report and log say that credentials are withheld, from where, and what allows it: while the agent runs, when
// it does not, and the log once.
func TestWithheldCredentialsAreToldOf(t *testing.T) {
	s := besiege(t)
	realm := s.elsewhere()
	s.nameTokenService(realm+"/token", auth.Credential{Username: "agent", Password: "secret"})
	host := strings.TrimPrefix(realm, "http://")
	for range 2 {
		s.sync()
	}
	running := s.status()
	s.stop()
	state, err := ReadState(s.dir)
	require.NoError(t, err)
	stopped, err := state.Status(s.now)
	require.NoError(t, err)
	require.NoError(t, state.Close())
	for _, st := range []Status{running, stopped} {
		require.Equal(t, bundle.Compliant, st.State)
		require.Equal(t, ReasonCredentialsWithheld, st.Reason)
		require.Contains(t, st.Message, "credentials for "+s.location().Host+" were not sent to "+host)
		require.Contains(t, st.Message, "--auth-host "+host+" (in agent.yaml: authHosts)")
	}
	require.Equal(t, 1, strings.Count(s.log.String(), "reason=CredentialsWithheld"), s.log.String())
	require.NotContains(t, s.log.String(), "secret")
}

// A registry says that nothing has changed to an agent that has nothing yet.
func TestAttackOnTheFirstPoll(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish(s.draft(6, map[string]string{"shop-main/config.yaml": "a: 6"}))
	hook := func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusNotModified)
		return true
	}
	s.registry.hook.Store(&hook)
	r := s.once()
	require.Equal(t, Unreachable, r.Verdict)
	require.Equal(t, bundle.Pending, r.Status.State)
	require.Equal(t, "Unreachable", r.Status.Reason)
	require.Contains(t, r.Status.Message, "304")
	require.NoDirExists(t, s.host)
	s.registry.hook.Store(nil)
	r = s.once()
	require.Equal(t, bundle.Compliant, r.Status.State, r.Error)
}

// A body that stalls delays the fetch, and no command to the agent.
func TestAttackByTrickling(t *testing.T) {
	s := besiege(t)
	offered := s.release(6, "a: 6")
	tree := s.manifestOf(offered.Digest).Layers[0]
	released := make(chan struct{})
	s.answer("/blobs/"+tree.Digest.String(), func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte{0x1f})
		w.(http.Flusher).Flush()
		select {
		case <-released:
			panic(http.ErrAbortHandler)
		case <-r.Context().Done():
		}
	})
	done := make(chan Result, 1)
	go func() {
		r, _ := s.client.Sync(t.Context(), 0)
		done <- r
	}()
	require.Eventually(t, func() bool { return s.status().Step == "fetch" }, time.Minute, time.Millisecond)
	st := s.status()
	require.Equal(t, bundle.Pulling, st.State)
	require.Equal(t, s.good.Digest, st.Release.Running.Digest)
	s.requireHost("a: 1")
	close(released)
	s.requireRefused(<-done, unreachable, "")
	s.end(9)
}
