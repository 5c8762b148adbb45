package directory_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers/directory"
)

// sized returns n bytes that do not compress.
func sized(n int) string {
	data := make([]byte, n)
	random := rand.NewChaCha8([32]byte{7})
	_, _ = random.Read(data)
	return string(data)
}

// isBlob says whether r asks for the content of the blob that holds text.
func isBlob(r *http.Request, text string) bool {
	return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/blobs/"+digest.FromString(text).String())
}

func TestARegistryThatFailsIsNamed(t *testing.T) {
	const model = "a model"
	serve := func(text string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if isBlob(r, model) {
				_, _ = io.WriteString(w, text)
			}
			return isBlob(r, model)
		}
	}
	status := func(code int) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(code); return true }
	}
	for _, c := range []struct {
		name   string
		state  bundle.State
		reason string
		front  func(http.ResponseWriter, *http.Request) bool
	}{
		{"a blob that was changed", bundle.Failed, directory.ArtifactMismatch, serve("A model")},
		{"a blob that is shorter", bundle.Failed, directory.ArtifactMismatch, serve("a mod")},
		{"a blob that is longer", bundle.Failed, directory.ArtifactMismatch, serve("a model, and more")},
		{"a longer blob of unknown length", bundle.Failed, directory.ArtifactMismatch, func(w http.ResponseWriter, r *http.Request) bool {
			if isBlob(r, model) {
				_, _ = io.WriteString(w, model)
				w.(http.Flusher).Flush()
				_, _ = io.WriteString(w, ", and more")
			}
			return isBlob(r, model)
		}},
		{"another manifest", bundle.Failed, directory.ArtifactMismatch, func(w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path, "/manifests/") {
				w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
				http.ServeContent(w, r, "", time.Time{}, strings.NewReader(`{"schemaVersion":2,"layers":[]}`))
			}
			return strings.Contains(r.URL.Path, "/manifests/")
		}},
		{"a link that breaks", bundle.Pending, directory.ArtifactUnreachable, func(w http.ResponseWriter, r *http.Request) bool {
			if isBlob(r, model) {
				w.Header().Set("Content-Length", fmt.Sprint(len(model)))
				_, _ = io.WriteString(w, "a m")
				panic(http.ErrAbortHandler)
			}
			return false
		}},
		{"a blob that is not there", bundle.Failed, directory.ArtifactNotFound, func(w http.ResponseWriter, r *http.Request) bool {
			if isBlob(r, model) {
				w.WriteHeader(http.StatusNotFound)
			}
			return isBlob(r, model)
		}},
		{"a registry without the artifact", bundle.Failed, directory.ArtifactNotFound, status(http.StatusNotFound)},
		{"a registry that wants a login", bundle.Failed, directory.ArtifactForbidden, status(http.StatusUnauthorized)},
		{"a registry in trouble", bundle.Pending, directory.ArtifactUnreachable, status(http.StatusBadGateway)},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			h.compliant(with(assignment(t, "drone", map[string]string{"a": "1"}), h.push(titled("eye", "old"))))
			a := with(assignment(t, "drone", map[string]string{"a": "2"}), h.push(titled("eye", model)))
			h.answer(c.front)
			res := h.settled(a)
			require.Equal(t, []any{c.state, c.reason}, []any{res.State, res.Reason}, res.Message)
			require.Contains(t, res.Message, h.host()+"/models/eye", "it says where")
			require.Equal(t, res, h.Observe(t.Context(), a))
			require.Equal(t, map[string]string{"drone/a": "1", "drone/eye": "old"}, contents(t, h.root), "the old content stays, and nothing unverified")

			h.answer(nil)
			h.restart() // which forgets that the same failure would cost as much again
			h.compliant(a)
			h.only(map[string]string{"drone/a": "2", "drone/eye": model})
		})
	}
}

func TestWithoutARegistryNothingIsFetched(t *testing.T) {
	h := newHost(t)
	a := with(assignment(t, "drone", map[string]string{"a": "1"}), h.push(titled("eye", "model")))
	h.server.Close()
	res := h.settled(a)
	require.Equal(t, bundle.Pending, res.State)
	require.Equal(t, directory.ArtifactUnreachable, res.Reason)
	require.Contains(t, res.Message, a.Fetched[0].Reference)

	r := directory.New(h.root, directory.Options{})
	// It may fail before Apply has returned, or after.
	require.Contains(t, []bundle.State{bundle.Pulling, bundle.Failed}, r.Apply(t.Context(), a).State)
	require.Eventually(t, func() bool { return r.Observe(t.Context(), a).State == bundle.Failed }, time.Minute, time.Millisecond)
	require.Contains(t, r.Observe(t.Context(), a).Message, "fetches no artifacts")
	require.NoError(t, r.Close())
}

// gate lets a blob pass up to its half, and the rest once it is opened.
type gate struct {
	text   string
	half   chan struct{} // closed when half has passed
	opened chan struct{}
}

func newGate(text string) *gate { return &gate{text, make(chan struct{}), make(chan struct{})} }

func (g *gate) front(w http.ResponseWriter, r *http.Request) bool {
	if !isBlob(r, g.text) {
		return false
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(g.text)))
	_, _ = io.WriteString(w, g.text[:len(g.text)/2])
	w.(http.Flusher).Flush()
	close(g.half)
	select {
	case <-g.opened:
		_, _ = io.WriteString(w, g.text[len(g.text)/2:])
	case <-r.Context().Done():
	}
	return true
}

func TestProgressIsToldAndOthersGoOn(t *testing.T) {
	h := newHost(t)
	one, two := sized(1<<20), sized(3<<20)
	a := with(assignment(t, "drone", map[string]string{"a": "1"}), h.push(titled("one", one), titled("two", two)))
	g := newGate(two)
	h.answer(g.front)
	require.Equal(t, bundle.Pulling, h.Apply(t.Context(), a).State)
	<-g.half
	require.Eventually(t, func() bool {
		return h.Observe(t.Context(), a).Message == "2.5 MiB of 4.0 MiB of what is fetched"
	}, time.Minute, time.Millisecond)
	require.Equal(t, directory.Fetching, h.Apply(t.Context(), a).Reason, "to apply again goes on with it")
	require.Equal(t, bundle.Compliant, h.Apply(t.Context(), assignment(t, "other", map[string]string{"b": "2"})).State)
	entries, err := os.ReadDir(h.root)
	require.NoError(t, err)
	require.Len(t, entries, 2, "no folder before all of it is here")

	newer := assignment(t, "drone", map[string]string{"a": "1"}) // the same content, in the tree of a newer release
	require.NoError(t, os.RemoveAll(a.Dir))
	require.Equal(t, bundle.Pulling, h.Observe(t.Context(), with(newer, a.Fetched...)).State)
	close(g.opened)
	require.Eventually(t, func() bool { return h.Observe(t.Context(), with(newer, a.Fetched...)).State == bundle.Compliant }, time.Minute, time.Millisecond)
	h.only(map[string]string{"drone/a": "1", "drone/one": one, "drone/two": two, "other/b": "2"})
}

func TestOtherContentAndRemovalEndAFetch(t *testing.T) {
	for _, c := range []string{"other content", "removal", "close"} {
		t.Run(c, func(t *testing.T) {
			h := newHost(t)
			one, two := sized(1000), sized(2000)
			first := with(assignment(t, "drone", map[string]string{"a": "1"}), h.push(titled("one", one), titled("two", two)))
			g := newGate(two)
			h.answer(g.front)
			require.Equal(t, bundle.Pulling, h.Apply(t.Context(), first).State)
			<-g.half
			switch c {
			case "other content":
				h.compliant(with(assignment(t, "drone", map[string]string{"a": "2"}), h.push(titled("one", one))))
				require.Equal(t, []string{digest.FromString(one).Encoded(), digest.FromString(two).Encoded()}, h.asked(), "what is here stays")
				h.only(map[string]string{"drone/a": "2", "drone/one": one})
			case "removal":
				require.Equal(t, bundle.Removed, h.Remove(t.Context(), first).State)
				requireEmpty(t, h.root)
			case "close":
				require.NoError(t, h.Close())
				require.Equal(t, bundle.Progressing, h.Apply(t.Context(), first).State)
				h.answer(nil)
				h.restart()
				h.compliant(first)
				require.Equal(t, []string{digest.FromString(two).Encoded()}, h.asked(), "only the blob under way was lost")
			}
		})
	}
}
