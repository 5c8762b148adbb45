package carry

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/graph"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/sweeptest"
)

// childVariable makes the test binary a carrier that is killed.
const childVariable = "WHERRY_TEST_CARRIER"

func TestMain(m *testing.M) {
	if text := os.Getenv(childVariable); text != "" {
		var o childOrder
		err := json.Unmarshal([]byte(text), &o)
		if err == nil {
			err = o.run()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	log.SetOutput(io.Discard)
	os.Exit(m.Run())
}

// childOrder is what a carrier in a process of its own is to do.
type childOrder struct {
	Dir   string
	List  List
	DieAt int32 // the number of the moment
	Chunk int64
}

func (o childOrder) run() error {
	db, err := openState(o.Dir)
	if err != nil {
		return err
	}
	var moments atomic.Int32
	db.Moment = func(string) {
		if moments.Add(1) == o.DieAt {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	c := New(db, options(nil, o.Chunk))
	defer c.Close()
	if err := bring(c, o.List); err != nil {
		return err
	}
	return db.Close()
}

func openState(dir string) (*state.DB, error) {
	db, err := state.Open(dir)
	if err != nil {
		return nil, err
	}
	return db, db.Init(state.CheckSchema, func(*bbolt.Tx) error { return nil })
}

// bring looks and transfers until nothing moves any more.
func bring(c *Carrier, lists ...List) error {
	for {
		if _, err := c.Look(lists, 1); err != nil {
			return err
		}
		c.Begin()
		if !c.Working() {
			return nil
		}
		for c.busy() {
			time.Sleep(time.Millisecond)
		}
	}
}

func (c *Carrier) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.job != nil
}

// options ask the hosts of sources, or the repository's own where there are none.
func options(hosts []string, chunk int64) Options {
	return Options{
		Platforms: graph.Platforms{"linux/amd64"}, Budget: 1 << 30, Retry: func(int) time.Duration { return time.Hour },
		Download: oci.DownloadOptions{Chunk: chunk, Retries: -1, Wait: time.Millisecond, MaxWait: time.Millisecond},
		Log:      slog.New(slog.DiscardHandler),
		Sources: func(_ context.Context, repository string) (all []Source, err error) {
			host, name, _ := strings.Cut(repository, "/")
			for _, h := range append(hosts, host) {
				repo, err := oci.Location{Host: h}.Repository(name, oci.Options{HTTPClient: &http.Client{}})
				if err != nil {
					return nil, err
				}
				all = append(all, Source{h, repo})
			}
			return all, nil
		},
	}
}

// source is a registry that counts what it sends, and can be made to fail.
type source struct {
	*httptest.Server
	t     *testing.T
	sent  atomic.Int64
	asked atomic.Int64
	hook  atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
}

type counted struct {
	http.ResponseWriter
	n *atomic.Int64
}

// Write counts before it writes: a client that has the last byte may look at once.
func (c counted) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	n, err := c.ResponseWriter.Write(p)
	c.n.Add(int64(n - len(p)))
	return n, err
}

func newSource(t *testing.T) *source {
	s := &source{t: t}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodGet || req.Method == http.MethodHead {
			s.asked.Add(1)
		}
		if hook := s.hook.Load(); hook != nil && (*hook)(w, req) {
			return
		}
		if strings.Contains(req.URL.Path, "/blobs/") && req.Method == http.MethodGet {
			w = counted{w, &s.sent}
		}
		inner.ServeHTTP(w, req)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *source) host() string { return strings.TrimPrefix(s.URL, "http://") }

func (s *source) push(mediaType string, data []byte) ocispec.Descriptor {
	s.t.Helper()
	repo, err := oci.Location{Host: s.host()}.Repository("app", oci.Options{})
	require.NoError(s.t, err)
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	if there, err := repo.Exists(s.t.Context(), d); err != nil || !there {
		require.NoError(s.t, repo.Push(s.t.Context(), d, bytes.NewReader(data)))
	}
	return d
}

func (s *source) json(mediaType string, v any) ocispec.Descriptor {
	s.t.Helper()
	data, err := json.Marshal(v)
	require.NoError(s.t, err)
	return s.push(mediaType, data)
}

// image pushes an image of layers of n bytes.
func (s *source) image(n int, layers ...string) ocispec.Descriptor {
	s.t.Helper()
	m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: s.push(ocispec.MediaTypeImageConfig, []byte(`{}`))}
	for _, l := range layers {
		m.Layers = append(m.Layers, s.push(ocispec.MediaTypeImageLayer, bytes.Repeat([]byte(l), n/len(l)+1)[:n]))
	}
	return s.json(m.MediaType, m)
}

func (s *source) wants(d digest.Digest) List {
	return List{Tree: digest.FromString("tree"), Running: true, Artifacts: []Wanted{{Repository: s.host() + "/app", Tag: "1", Digest: d, UsedBy: []string{"web-x"}}}}
}

// carrier returns a carrier on a state folder of its own.
func newCarrier(t *testing.T, o Options) *Carrier {
	db, err := openState(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	c := New(db, o)
	t.Cleanup(c.Close)
	return c
}

// named are what the index would name.
func (c *Carrier) named(t *testing.T) (names []string) {
	t.Helper()
	require.NoError(t, c.db.View(func(tx *bbolt.Tx) error {
		all, err := c.Named(tx)
		for _, n := range all {
			if n.Repository != "" {
				names = append(names, n.Tag)
			}
		}
		return err
	}))
	return names
}

func (c *Carrier) wait() assignments.Wait {
	return c.Wait(assignments.Record{Spec: bundle.Assignment{Name: "web-x", Carry: bundle.CarryImages}})
}

// A carrier is killed at one moment after another; make soak takes all of them.
func TestAKilledTransferGoesOn(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	s := newSource(t)
	root := s.json(ocispec.MediaTypeImageIndex, ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{s.image(20_000, "a", "b")},
	})
	s.signed(root)
	whole := int64(2*20_000 + len(`{}`) + len("signature") + len("the sbom"))
	for at := int32(1); ; at += int32(sweeptest.Every(7)) {
		o := childOrder{Dir: t.TempDir(), List: s.wants(root.Digest), DieAt: at, Chunk: 4096}
		run := func() error {
			order, err := json.Marshal(o)
			require.NoError(t, err)
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), childVariable+"="+string(order))
			out, err := cmd.CombinedOutput()
			if err != nil && cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("at %d: %v\n%s", at, err, out)
			}
			return err
		}
		s.sent.Store(0)
		killed := run() != nil
		look(t, o, killed)
		if !killed {
			require.Greater(t, at, int32(20), "there are that many moments")
			return
		}
		o.DieAt = 0
		require.NoError(t, run(), at)
		look(t, o, false)
		require.LessOrEqual(t, s.sent.Load(), whole+2*(4096+32<<10), "at %d: what had come stays, but for a chunk and what was on its way", at)
	}
}

// look requires that nothing is named that is not whole, and, unless killed, that all is.
func look(t *testing.T, o childOrder, killed bool) {
	t.Helper()
	db, err := openState(o.Dir)
	require.NoError(t, err)
	defer db.Close()
	c := New(db, options(nil, o.Chunk))
	named := c.named(t)
	if !killed {
		require.ElementsMatch(t, []string{"", "1", "", bundle.SignatureTag(o.List.Artifacts[0].Digest)}, named)
	}
	if len(named) == 0 {
		return
	}
	require.Subset(t, named, []string{"", "1"})
	g, ok := c.graph(o.List.Artifacts[0].Digest)
	require.True(t, ok)
	for _, d := range c.withReferrers(o.List.Artifacts[0].Digest, g).All() {
		data, err := os.ReadFile(filepath.Join(o.Dir, state.StoreDir, ocispec.ImageBlobsDir, "sha256", d.Digest.Encoded()))
		require.NoError(t, err)
		require.Equal(t, d.Digest, digest.FromBytes(data))
	}
}

func TestPlacesAreAskedInOrder(t *testing.T) {
	for _, c := range []struct {
		name  string
		first func(w http.ResponseWriter, req *http.Request) bool
		sent  bool // by the first
	}{
		{"the first has it", nil, true},
		{"nothing listens at the first", nil, false},
		{"the first lacks it", func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusNotFound); return true }, false},
		{"the first wants a login", func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusForbidden); return true }, false},
		{"the first is away", func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }, false},
		{"the first has the manifest alone", func(w http.ResponseWriter, req *http.Request) bool {
			if strings.Contains(req.URL.Path, "/blobs/") {
				w.WriteHeader(http.StatusNotFound)
				return true
			}
			return false
		}, false},
		{"the first has other bytes", func(w http.ResponseWriter, req *http.Request) bool {
			if strings.Contains(req.URL.Path, "/blobs/") {
				_, _ = w.Write(bytes.Repeat([]byte("x"), 500))
				return true
			}
			return false
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			first, origin := newSource(t), newSource(t)
			d := origin.image(500, "a")
			first.image(500, "a")
			if c.first != nil {
				first.hook.Store(&c.first)
			}
			if strings.HasPrefix(c.name, "nothing listens") {
				first.Close()
			}
			origin.sent.Store(0)
			origin.asked.Store(0)
			k := newCarrier(t, options([]string{first.host()}, 0))
			require.NoError(t, bring(k, origin.wants(d.Digest)))
			require.Equal(t, []string{"", "1"}, k.named(t), k.wait())
			require.Empty(t, k.wait().Reason)
			if c.sent {
				require.Zero(t, origin.asked.Load())
			} else {
				require.NotZero(t, origin.sent.Load())
			}
		})
	}
}

func TestWhatCannotBeBroughtSaysWhy(t *testing.T) {
	answer := func(code int) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(code); return true }
	}
	index := func(s *source, p *ocispec.Platform) ocispec.Descriptor {
		m := s.image(10, "a")
		m.Platform = p
		return s.json(ocispec.MediaTypeImageIndex, ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{m}})
	}
	image := func(s *source) digest.Digest { return s.image(10, "a").Digest }
	for _, c := range []struct {
		name            string
		wants           func(*source) digest.Digest
		hook            func(http.ResponseWriter, *http.Request) bool
		reason, message string
	}{
		{"not there", image, answer(404), ReasonArtifactNotFound, "not found"},
		{"a login", image, answer(401), ReasonArtifactForbidden, "unauthorized"},
		{"out of order", image, answer(503), ReasonArtifactUnreachable, "503"},
		{"nothing listens", func(s *source) digest.Digest { d := image(s); s.Close(); return d }, nil, ReasonArtifactUnreachable, "connection refused"},
		{"no digest", func(*source) digest.Digest { return "" }, nil, ReasonInvalidArtifact, "it has no digest"},
		{"no SHA-256", func(*source) digest.Digest { return "sha512:12" }, nil, ReasonInvalidArtifact, "is no SHA-256 digest"},
		{"another platform", func(s *source) digest.Digest {
			return index(s, &ocispec.Platform{OS: "linux", Architecture: "arm64", Variant: "v8"}).Digest
		}, nil, ReasonInvalidArtifact, "it is not for linux/amd64, but for linux/arm64/v8"},
		{"no artifact", func(s *source) digest.Digest {
			return s.json(ocispec.MediaTypeImageManifest, map[string]any{"schemaVersion": 2, "mediaType": ocispec.MediaTypeImageManifest, "layers": []any{}}).Digest
		}, nil, ReasonInvalidArtifact, "not an OCI artifact"},
		{"blobs of other bytes", image, func(w http.ResponseWriter, req *http.Request) bool {
			if strings.Contains(req.URL.Path, "/blobs/") {
				_, _ = io.WriteString(w, "zz")
				return true
			}
			return false
		}, ReasonArtifactMismatch, "digest"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSource(t)
			want := c.wants(s)
			if c.hook != nil {
				s.hook.Store(&c.hook)
			}
			k := newCarrier(t, options(nil, 0))
			require.NoError(t, bring(k, s.wants(want)))
			w := k.wait()
			require.Equal(t, c.reason, w.Reason, w.Message)
			require.Contains(t, w.Message, c.message)
			require.Contains(t, w.Message, s.host()+"/app:1")
			require.Equal(t, bundle.Pulling, w.State)
			require.False(t, w.Moving, "it keeps no other wave")
			require.Empty(t, k.named(t))
			asked := s.asked.Load()
			require.NoError(t, bring(k, s.wants(want)))
			require.Equal(t, asked, s.asked.Load(), "it is not asked for again before its time")
		})
	}
}

// What the publisher says of an image is for all platforms.
func TestASizeForAllPlatformsIsABound(t *testing.T) {
	s := newSource(t)
	list := s.wants(s.image(10, "a").Digest)
	list.Artifacts[0].Size = 210 << 20
	away := func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(503); return true }
	s.hook.Store(&away)
	k := newCarrier(t, options(nil, 0))
	require.NoError(t, bring(k, list))
	require.True(t, k.Status().MissingAtMost)
	require.Contains(t, k.wait().Message, "1 of 1 artifacts are missing, at most 210 MiB: ")
	list.Artifacts[0].Size = 0
	require.NoError(t, bring(k, list))
	require.False(t, k.Status().MissingAtMost)
	require.Contains(t, k.wait().Message, "at least 0 bytes: ")
}

func TestACutTransferGoesOnWhereItWas(t *testing.T) {
	s := newSource(t)
	layer := bytes.Repeat([]byte("abc"), 40_000)[:100_000]
	d := s.image(len(layer), "abc")
	var ranges []string
	hook := func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.HasSuffix(req.URL.Path, digest.FromBytes(layer).Encoded()) || req.Method != http.MethodGet {
			return false
		}
		if ranges = append(ranges, req.Header.Get("Range")); len(ranges) == 1 {
			w.Header().Set("Content-Length", "100000")
			_, _ = w.Write(layer[:60_000])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		return false
	}
	s.hook.Store(&hook)
	o := options(nil, 4096)
	o.Retry = func(int) time.Duration { return 0 }
	k := newCarrier(t, o)
	_, err := k.Look([]List{s.wants(d.Digest)}, 1)
	require.NoError(t, err)
	require.Equal(t, ReasonCarrying, k.wait().Reason)
	require.True(t, k.wait().Moving)
	require.NoError(t, bring(k, s.wants(d.Digest)))
	require.Equal(t, []string{"", "1"}, k.named(t))
	require.Len(t, ranges, 2)
	require.Regexp(t, "^bytes=[1-9][0-9]{3,}-99999$", ranges[1])
}

func TestOneBlobOfTwoImagesComesOnce(t *testing.T) {
	s := newSource(t)
	one, two := s.image(10_000, "base", "one"), s.image(10_000, "base", "two")
	list := s.wants(one.Digest)
	list.Artifacts = append(list.Artifacts, Wanted{Repository: s.host() + "/app", Tag: "2", Digest: two.Digest, UsedBy: []string{"web-x"}})
	k := newCarrier(t, options(nil, 0))
	require.NoError(t, bring(k, list))
	require.EqualValues(t, 3*10_000+2, s.sent.Load())
	require.Equal(t, []string{"", "1", "", "2"}, k.named(t))

	list.Artifacts[1].Tag = "1"
	require.NoError(t, bring(k, list))
	require.Equal(t, []string{"", ""}, k.named(t), "a tag that stands for two images is none")
}

func TestTheListOfARelease(t *testing.T) {
	d := "sha256:" + strings.Repeat("1", 64)
	list := []bundle.Assignment{
		{Name: "b", Carry: bundle.CarryAll}, {Name: "a", Carry: bundle.CarryImages, Wave: 1}, {Name: "c"}, {Name: "e", Carry: bundle.CarryAll, Delivery: bundle.Embedded},
	}
	got := ListOf("tree", list, []bundle.Artifact{
		{Type: bundle.ArtifactImage, Reference: "docker.io/library/nginx:1", Digest: d, Size: 7, UsedBy: []string{"a", "b", "c"}},
		{Type: bundle.ArtifactChart, Reference: "oci://charts.example/db:^1.0", Digest: d, UsedBy: []string{"a", "b", "e"}},
		{Type: bundle.ArtifactChart, Reference: "https://charts.example/db:1.0", Digest: d, UsedBy: []string{"b"}},
		{Type: bundle.ArtifactGit, Reference: "https://git.example/x#main", Digest: "sha1:1", UsedBy: []string{"b"}},
		{Type: bundle.ArtifactZarf, Reference: "oci://reg.example:5000/p@" + d, Digest: d, UsedBy: []string{"e"}},
		{Type: bundle.ArtifactImage, Reference: "docker.io/library/other:1", Digest: d, UsedBy: []string{"c"}},
	})
	require.Equal(t, List{Tree: "tree", Artifacts: []Wanted{
		{Repository: "docker.io/library/nginx", Tag: "1", Digest: digest.Digest(d), Size: 7, UsedBy: []string{"a", "b"}},
		{Repository: "charts.example/db", Tag: "^1.0", Digest: digest.Digest(d), UsedBy: []string{"b"}},
		{Repository: "reg.example:5000/p", Digest: digest.Digest(d), UsedBy: []string{"e"}},
	}}, got)
}

// Where the agent is not told, the release says for which platforms its clusters need images.
func TestThePlatformsAreThoseOfTheRelease(t *testing.T) {
	s := newSource(t)
	m := s.image(10, "a")
	m.Platform = &ocispec.Platform{OS: "linux", Architecture: "riscv64"}
	index := s.json(ocispec.MediaTypeImageIndex, ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{m}})
	o := options(nil, 0)
	o.Platforms = nil
	k, list := newCarrier(t, o), s.wants(index.Digest)
	require.NoError(t, bring(k, list))
	require.Equal(t, ReasonInvalidArtifact, k.wait().Reason, "it is for other machines than this one")
	k = newCarrier(t, o)
	list.Platforms = graph.Platforms{"linux/riscv64"}
	require.NoError(t, bring(k, list))
	require.Empty(t, k.wait().Message)
}
