package agent

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/engines"
	"github.com/wherry-dev/wherry/agent/intake"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/directory"
)

// epoch is when the fixtures' first release is issued; their clock stands an hour later.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// site is one publisher with its registry, and one agent with its host.
type site struct {
	t        testing.TB
	registry *testRegistry
	repo     oci.Target
	linked   oci.Target // what the agent has for repo, where it is not that
	trust    oci.Target // the repository of trust documents
	key      *ecdsa.PrivateKey
	dir      string // the agent's state folder
	host     string // the folder that the directory adapter fills
	now      time.Time
	opts     Options
	log      bytes.Buffer
	stream   bundle.Stream
	uid      string // of the agent's cluster; empty is plant-7
	epoch    int64  // of the releases that are drafted
}

// testRegistry is an in-process registry that counts requests, and can go away.
type testRegistry struct {
	*httptest.Server
	blobs     atomic.Int64 // GETs of blobs
	requests  atomic.Int64
	trust     atomic.Int64 // requests for trust documents
	away      atomic.Bool
	trustAway atomic.Bool
	spoil     atomic.Pointer[func(path string, body []byte) []byte]
	// hook answers a request itself, or says that it has not.
	hook atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
}

func newTestRegistry(t testing.TB) *testRegistry {
	r := &testRegistry{}
	inner := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)))
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.requests.Add(1)
		if req.Method == http.MethodGet && strings.Contains(req.URL.Path, "/blobs/") {
			r.blobs.Add(1)
		}
		trust := strings.HasPrefix(req.URL.Path, "/v2/edge/"+bundle.TrustRepository+"/")
		if trust {
			r.trust.Add(1)
		}
		if r.away.Load() || trust && r.trustAway.Load() {
			panic(http.ErrAbortHandler)
		}
		if hook := r.hook.Load(); hook != nil && (*hook)(w, req) {
			return
		}
		spoil := r.spoil.Load()
		if spoil == nil || req.Method != http.MethodGet {
			inner.ServeHTTP(w, req)
			return
		}
		recorded := httptest.NewRecorder()
		inner.ServeHTTP(recorded, req)
		body := (*spoil)(req.URL.Path, recorded.Body.Bytes())
		for k, v := range recorded.Header() {
			w.Header()[k] = v
		}
		w.Header().Del("Content-Length")
		w.WriteHeader(recorded.Code)
		_, _ = w.Write(body)
	}))
	t.Cleanup(r.Close)
	return r
}

func newSite(t testing.TB) *site {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	s := &site{
		t: t, registry: newTestRegistry(t), key: key, dir: filepath.Join(t.TempDir(), "state"), host: filepath.Join(t.TempDir(), "host"),
		now: epoch.Add(time.Hour), stream: bundle.Stream{Platform: "default", Environment: "dev", ClusterType: "drone"},
	}
	s.repo, s.trust = s.repository(s.stream), s.at(bundle.TrustRepository)
	s.opts = Options{
		TrustSource: s.trust,
		Engines:     engines.Options{Reconcilers: map[string]reconcilers.Reconciler{"directory": directory.New(s.host, directory.Options{})}},
		Content:     content.Options{Download: oci.DownloadOptions{Wait: time.Millisecond, MaxWait: time.Millisecond}},
		Intake:      intake.Options{Space: emptyDisk},
		Version:     "v0.0.0-test",
		Now:         func() time.Time { return s.now },
		Log:         slog.New(slog.NewTextHandler(&s.log, nil)),
	}
	return s
}

// emptyDisk is the disk of sites, however full the machine's own one is.
func emptyDisk(string) (free, size int64, known bool) { return 1 << 40, 1 << 40, true }

// folders are what the adapter has put on the host.
func (s *site) folders() []os.DirEntry {
	s.t.Helper()
	entries, err := os.ReadDir(s.host)
	require.NoError(s.t, err)
	return slices.DeleteFunc(entries, func(e os.DirEntry) bool { return e.Name() == ".wherry" })
}

func (s *site) location() oci.Location {
	loc, err := oci.Parse("oci://" + strings.TrimPrefix(s.registry.URL, "http://") + "/edge")
	require.NoError(s.t, err)
	return loc
}

func (s *site) repository(stream bundle.Stream) oci.Target { return s.at(stream.Repository()) }

func (s *site) at(repository string) oci.Target {
	// Without retries, so that tests of a registry that is away end soon. The transport is this server's: with
	// the default one, another test whose server ends breaks connections here.
	client := &http.Client{Transport: s.registry.Client().Transport, Timeout: time.Minute}
	repo, err := s.location().Repository(repository, oci.Options{HTTPClient: client})
	require.NoError(s.t, err)
	return repo
}

// agent opens the state and returns an agent. The state is closed at the end of f.
func (s *site) agent(f func(*Agent)) {
	s.t.Helper()
	state, err := OpenState(s.dir, s.opts.Now)
	require.NoError(s.t, err)
	defer state.Close()
	f(s.agentOn(state))
}

func (s *site) agentOn(state *State) *Agent {
	uid := cmp.Or(s.uid, "plant-7")
	cluster := bundle.ReportCluster{UID: uid, Name: uid, Platform: s.stream.Platform, Environment: s.stream.Environment, Type: s.stream.ClusterType}
	source := s.repo
	if s.linked != nil {
		source = s.linked
	}
	bound, err := state.Bound(cluster)
	require.NoError(s.t, err)
	if stream := FeedOf(bound).Stream; stream != s.stream {
		source = s.repository(stream)
	}
	return New(state, source, bundle.Pinned(bundle.Keys{s.key.Public()}), bound, s.opts)
}

// once makes one pass in a process of its own, so to speak.
func (s *site) once() (r Result) {
	s.t.Helper()
	s.agent(func(a *Agent) { r = a.Once(context.Background(), 0) })
	return r
}

// draft is a release before it is published, and where it will be.
type draft struct {
	agenttest.Draft
	repo oci.Target
}

// draft returns release n of the site's stream, with one assignment per folder of files.
func (s *site) draft(n int64, files map[string]string) draft {
	d := agenttest.New(s.stream, n, s.now.Add(time.Duration(n)*time.Minute-time.Hour), files, s.key)
	d.Release.Epoch = s.epoch
	return draft{d, s.repo}
}

// publish pushes the draft as latest and returns its manifest's descriptor.
func (s *site) publish(d draft) ocispec.Descriptor {
	s.t.Helper()
	desc, err := d.Publish(context.Background(), d.repo)
	require.NoError(s.t, err)
	return desc
}
