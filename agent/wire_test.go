package agent

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/delta"
)

// wire notes what the agent asks the registry for.
type wire struct {
	mu    sync.Mutex
	asked []string
}

func (s *site) listen() *wire {
	w := &wire{}
	hook := func(_ http.ResponseWriter, r *http.Request) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		what := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		switch {
		case strings.HasSuffix(what, ".sig"):
			what = "signature"
		case strings.Contains(r.URL.Path, "/blobs/"):
			what = "blob"
		}
		w.asked = append(w.asked, r.Method+" "+what)
		return false
	}
	s.registry.hook.Store(&hook)
	return w
}

func (w *wire) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	asked := w.asked
	w.asked = nil
	return asked
}

// trees returns two trees of a few assignments that differ in a line, the first of which compresses badly.
func trees() (before, after map[string]string) {
	random := rand.NewChaCha8([32]byte{7})
	before, after = map[string]string{}, map[string]string{}
	for i := range 8 {
		data := make([]byte, 2<<10)
		_, _ = random.Read(data)
		before[fmt.Sprintf("w%d-x/f", i)] = fmt.Sprintf("%x", data)
	}
	for path, content := range before {
		after[path] = content
	}
	after["w3-x/f"] += "\na: 2"
	return before, after
}

// deltaCommand is how this test binary applies a delta; see TestMain.
func deltaCommand(t testing.TB) []string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return []string{self, deltaArgument}
}

// offerDelta publishes release n with a delta from the tree of draft before.
func (s *site) offerDelta(n int64, before draft, files map[string]string, change ...func(*ocispec.Descriptor)) ocispec.Descriptor {
	s.t.Helper()
	return s.offerDeltaOf(s.draft(n, files), before, change...)
}

// offerDeltaOf publishes a draft with a delta from the tree of draft before.
func (s *site) offerDeltaOf(d, before draft, change ...func(*ocispec.Descriptor)) ocispec.Descriptor {
	s.t.Helper()
	data, err := delta.Make(s.tar(before), s.tar(d))
	require.NoError(s.t, err)
	layer := bundle.NewBlob(delta.MediaType, data)
	layer.Descriptor.Annotations = map[string]string{delta.AnnotationFrom: digest.FromBytes(s.tar(before)).String()}
	require.NoError(s.t, s.repo.Push(context.Background(), layer.Descriptor, bytes.NewReader(data)))
	for _, c := range change {
		c(&layer.Descriptor)
	}
	d.ChangeManifest = func(m *ocispec.Manifest) { m.Layers = append(m.Layers, layer.Descriptor) }
	return s.publish(d)
}

func (s *site) tar(d draft) []byte {
	s.t.Helper()
	packed, err := d.Pack()
	require.NoError(s.t, err)
	zip, err := gzip.NewReader(bytes.NewReader(packed.Gzip))
	require.NoError(s.t, err)
	data, err := io.ReadAll(zip)
	require.NoError(s.t, err)
	return data
}

func TestAnUpdateTakesFourRequests(t *testing.T) {
	s := newSite(t)
	s.epoch = 1
	require.NoError(t, s.install(agenttest.NewTrust(s.stream.Platform, s.now, agenttest.NewKey(), s.key)))
	before, after := trees()
	first := s.draft(1, before)
	s.publish(first)
	s.opts.Content.Deltas = delta.Command(deltaCommand(t))
	s.agent(func(a *Agent) {
		require.Equal(t, Done, a.Once(context.Background(), 0).Verdict)
		wire := s.listen()

		s.offerDelta(2, first, after)
		wire.take()
		r := a.Once(context.Background(), 0)
		require.Equal(t, bundle.Compliant, r.Status.State, r.Error)
		require.Equal(t, []string{"GET latest", "GET v2", "GET signature", "GET blob"}, wire.take())

		require.Equal(t, Idle, a.Once(context.Background(), 0).Verdict)
		require.Len(t, wire.take(), 1, "and a poll one")
	})
	requireFile(t, s.host, "w3-x/f", after["w3-x/f"])
	s.requireStored(r1(s, 2), true)
}

// r1 is the release that runs, which has that sequence.
func r1(s *site, sequence int64) (running *state.Release) {
	s.t.Helper()
	s.agent(func(a *Agent) {
		p := newPass(a, scope{})
		require.NoError(s.t, p.remember())
		require.Equal(s.t, sequence, p.running.Release.Sequence)
		running = p.running
	})
	return running
}

// requireStored checks in which form the store has a tree.
func (s *site) requireStored(r *state.Release, asTar bool) {
	s.t.Helper()
	blob := func(d digest.Digest) string { return filepath.Join(s.dir, state.StoreDir, "blobs/sha256", d.Encoded()) }
	tar, layer := blob(r.Release.Content.DiffID), blob(r.Tree.Digest)
	if !asTar {
		tar, layer = layer, tar
	}
	require.FileExists(s.t, tar)
	require.NoFileExists(s.t, layer)
}

func TestADeltaThatIsOfNoUseCostsTheFullLayer(t *testing.T) {
	before, after := trees()
	for _, tc := range []struct {
		name   string
		change func(s *site, layer *ocispec.Descriptor)
		asked  int // blobs
	}{
		{"it starts from another tree", func(_ *site, layer *ocispec.Descriptor) {
			layer.Annotations[delta.AnnotationFrom] = digest.FromString("other").String()
		}, 1},
		{"it says no digest that it starts from", func(_ *site, layer *ocispec.Descriptor) {
			layer.Annotations[delta.AnnotationFrom] = "../../agent.db"
		}, 1},
		{"it is as large as the layer", func(_ *site, layer *ocispec.Descriptor) { layer.Size = 1 << 20 }, 1},
		{"it is of a negative size", func(_ *site, layer *ocispec.Descriptor) { layer.Size = -1 }, 1},
		{"it is of another type", func(_ *site, layer *ocispec.Descriptor) { layer.MediaType = "application/zstd" }, 1},
		{"it makes something else", func(s *site, layer *ocispec.Descriptor) {
			blob := bundle.NewBlob(delta.MediaType, []byte("evil"))
			require.NoError(s.t, s.repo.Push(context.Background(), blob.Descriptor, bytes.NewReader(blob.Data)))
			layer.Digest, layer.Size = blob.Descriptor.Digest, blob.Descriptor.Size
		}, 2},
		{"it is not there", func(_ *site, layer *ocispec.Descriptor) { layer.Digest = digest.FromString("gone") }, 2},
		{"the registry has something else", func(s *site, layer *ocispec.Descriptor) {
			d := layer.Digest
			spoil := func(path string, body []byte) []byte {
				if strings.HasSuffix(path, d.String()) {
					body[len(body)/2] ^= 1
				}
				return body
			}
			s.registry.spoil.Store(&spoil)
		}, 2},
		{"the base is damaged", func(s *site, _ *ocispec.Descriptor) {
			path := filepath.Join(s.dir, state.StoreDir, "blobs/sha256", r1(s, 1).Tree.Digest.Encoded())
			data, err := os.ReadFile(path)
			require.NoError(s.t, err)
			data[len(data)/2] ^= 1
			require.NoError(s.t, os.WriteFile(path, data, 0o600))
		}, 2},
		{"the program for it is gone", func(s *site, _ *ocispec.Descriptor) { s.opts.Content.Deltas = delta.Command([]string{"/nowhere"}) }, 2},
		{"it is not wanted", func(s *site, _ *ocispec.Descriptor) { s.opts.Content.Deltas = nil }, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.opts.Content.Deltas = delta.Command(deltaCommand(t))
			first := s.draft(1, before)
			s.publish(first)
			s.once()
			s.offerDelta(2, first, after, func(layer *ocispec.Descriptor) { tc.change(s, layer) })
			s.registry.blobs.Store(0)

			r := s.once()

			require.Equal(t, bundle.Compliant, r.Status.State, r.Error)
			require.EqualValues(t, 2, r.Status.Release.Running.Sequence)
			require.EqualValues(t, tc.asked, s.registry.blobs.Load())
			requireFile(t, s.host, "w3-x/f", after["w3-x/f"])
			s.requireStored(r1(s, 2), false)
		})
	}
}

func TestADeltaStartsFromATreeThatADeltaHasMade(t *testing.T) {
	s := newSite(t)
	s.opts.Content.Deltas = delta.Command(deltaCommand(t))
	before, after := trees()
	first, second := s.draft(1, before), s.draft(2, after)
	s.publish(first)
	s.once()
	s.offerDelta(2, first, after)
	s.once()
	third := maps.Clone(after)
	third["w3-x/f"] += "again"
	s.offerDelta(3, second, third)
	require.EqualValues(t, 3, s.once().Status.Release.Running.Sequence)
	s.requireStored(r1(s, 3), true)
	requireFile(t, s.host, "w3-x/f", third["w3-x/f"])
}

// blobBytes reads a blob from the registry.
func (s *site) blobBytes(d ocispec.Descriptor) []byte {
	s.t.Helper()
	data, err := bundle.ReadBlob(context.Background(), s.repo, d, 8<<20)
	require.NoError(s.t, err)
	return data
}

// stallAfter has the registry stop in the middle of a blob, until the returned function is called.
func (s *site) stallAfter(d digest.Digest, data []byte, n int) func() {
	over := make(chan struct{})
	hook := func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, d.String()) {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		_, _ = w.Write(data[:n])
		w.(http.Flusher).Flush()
		select {
		case <-over:
		case <-r.Context().Done():
		}
		panic(http.ErrAbortHandler)
	}
	s.registry.hook.Store(&hook)
	return func() { close(over) }
}

// ranges serves a blob in parts, and notes where requests begin.
func (s *site) ranges(d digest.Digest, data []byte) *[]int {
	var begun []int
	hook := func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, d.String()) {
			return false
		}
		from := 0
		_, _ = fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from)
		begun = append(begun, from)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
		return true
	}
	s.registry.hook.Store(&hook)
	return &begun
}

// layer describes the layer of a manifest in the registry.
func (s *site) layer(manifest ocispec.Descriptor) ocispec.Descriptor {
	s.t.Helper()
	var m ocispec.Manifest
	require.NoError(s.t, json.Unmarshal(s.blobBytes(manifest), &m))
	return m.Layers[0]
}
