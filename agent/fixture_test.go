package agent

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sort"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/stretchr/testify/require"

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
	key      *ecdsa.PrivateKey
	dir      string // the agent's state folder
	host     string // the folder that the directory adapter fills
	now      time.Time
	opts     Options
	log      bytes.Buffer
	stream   bundle.Stream
}

// testRegistry is an in-process registry that counts requests, and can go away.
type testRegistry struct {
	*httptest.Server
	blobs    atomic.Int64 // GETs of blobs
	requests atomic.Int64
	away     atomic.Bool
	spoil    atomic.Pointer[func(path string, body []byte) []byte]
}

func newTestRegistry(t testing.TB) *testRegistry {
	r := &testRegistry{}
	inner := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)))
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.requests.Add(1)
		if req.Method == http.MethodGet && strings.Contains(req.URL.Path, "/blobs/") {
			r.blobs.Add(1)
		}
		if r.away.Load() {
			panic(http.ErrAbortHandler)
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
	s.repo = s.repository(s.stream)
	s.opts = Options{
		Reconcilers: map[string]reconcilers.Reconciler{"directory": directory.New(s.host, directory.Options{})},
		Version:     "v0.0.0-test",
		Now:         func() time.Time { return s.now },
		Log:         slog.New(slog.NewTextHandler(&s.log, nil)),
	}
	return s
}

func (s *site) location() oci.Location {
	loc, err := oci.Parse("oci://" + strings.TrimPrefix(s.registry.URL, "http://") + "/edge")
	require.NoError(s.t, err)
	return loc
}

func (s *site) repository(stream bundle.Stream) oci.Target {
	// Without retries, so that tests of a registry that is away end soon.
	repo, err := s.location().Repository(stream.Repository(), oci.Options{HTTPClient: &http.Client{Timeout: 10 * time.Second}})
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
	cluster := bundle.ReportCluster{UID: "plant-7", Name: "plant-7", Platform: s.stream.Platform, Environment: s.stream.Environment, Type: s.stream.ClusterType}
	return New(state, s.repo, bundle.Keys{s.key.Public()}, cluster, s.opts)
}

// once makes one pass in a process of its own, so to speak.
func (s *site) once() (r Result) {
	s.t.Helper()
	s.agent(func(a *Agent) { r = a.Once(context.Background(), 0) })
	return r
}

// draft is a release before it is published.
type draft struct {
	release bundle.Release
	files   map[string]string // path: content
	adapter string
	signer  crypto.Signer // nil leaves it unsigned
	change  func(*ocispec.Manifest)
	seal    func(*bundle.Release)
	list    func([]bundle.Assignment)
	repo    oci.Target
}

// draft returns release n of the site's stream, with one assignment per folder of files.
func (s *site) draft(n int64, files map[string]string) draft {
	issued := s.now.Add(time.Duration(n)*time.Minute - time.Hour).Truncate(time.Second)
	return draft{
		release: bundle.Release{
			Schema: bundle.ReleaseSchema, Platform: s.stream.Platform, Environment: s.stream.Environment, ClusterType: s.stream.ClusterType,
			Sequence: n, IssuedAt: issued, ExpiresAt: issued.Add(90 * 24 * time.Hour), BaseCommit: "c0ffee",
		},
		files: files, adapter: "directory", signer: s.key, repo: s.repo,
	}
}

// publish pushes the draft as latest and returns its manifest's descriptor.
func (s *site) publish(d draft) ocispec.Descriptor {
	s.t.Helper()
	desc, err := push(context.Background(), d)
	require.NoError(s.t, err)
	return desc
}

func push(ctx context.Context, d draft) (ocispec.Descriptor, error) {
	packed, err := bundle.Pack(d.tree())
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	d.release.Content = packed.Content
	if d.seal != nil {
		d.seal(&d.release)
	}
	document, err := d.release.Marshal()
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	config, tree := bundle.NewBlob(bundle.MediaTypeRelease, document), bundle.NewBlob(bundle.MediaTypeTree, packed.Gzip)
	m := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: bundle.MediaTypeBundle,
		Config: config.Descriptor, Layers: []ocispec.Descriptor{tree.Descriptor},
	}
	m.Config.Data = document
	if d.change != nil {
		d.change(&m)
	}
	data, err := json.Marshal(m)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	manifest := bundle.NewBlob(m.MediaType, data)
	if err := pushBlobs(ctx, d.repo, config, tree, manifest); err != nil {
		return ocispec.Descriptor{}, err
	}
	if d.signer != nil {
		if err := sign(ctx, d.repo, manifest.Descriptor, d.signer); err != nil {
			return ocispec.Descriptor{}, err
		}
	}
	return manifest.Descriptor, d.repo.Tag(ctx, manifest.Descriptor, bundle.LatestTag)
}

func sign(ctx context.Context, repo oci.Target, manifest ocispec.Descriptor, key crypto.Signer) error {
	signer, err := signature.LoadSigner(key, crypto.SHA256)
	if err != nil {
		return err
	}
	signed, err := bundle.SignManifest(manifest.Digest, "registry.example/edge", signer)
	if err != nil {
		return err
	}
	if err := pushBlobs(ctx, repo, append(signed.Blobs, signed.Manifest)...); err != nil {
		return err
	}
	return repo.Tag(ctx, signed.Manifest.Descriptor, bundle.SignatureTag(manifest.Digest))
}

func pushBlobs(ctx context.Context, repo oci.Target, blobs ...bundle.Blob) error {
	for _, b := range blobs {
		if ok, err := repo.Exists(ctx, b.Descriptor); ok || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		if err := repo.Push(ctx, b.Descriptor, bytes.NewReader(b.Data)); err != nil {
			return err
		}
	}
	return nil
}

// tree returns the draft's files and the list of its assignments.
func (d draft) tree() []bundle.File {
	byName := map[string][]bundle.File{}
	var files []bundle.File
	for path, content := range d.files {
		name, below, _ := strings.Cut(path, "/")
		byName[name] = append(byName[name], bundle.File{Path: below, Data: []byte(content)})
		files = append(files, bundle.File{Path: path, Data: []byte(content)})
	}
	var list []bundle.Assignment
	for name, fs := range byName {
		sort.Slice(fs, func(i, j int) bool { return fs[i].Path < fs[j].Path })
		workload, target, _ := strings.Cut(name, "-")
		list = append(list, bundle.Assignment{Name: name, Workload: workload, Target: target, Adapter: d.adapter, Content: bundle.ContentDigest(fs)})
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	if d.list != nil {
		d.list(list)
	}
	data, err := bundle.MarshalAssignments(list)
	if err != nil {
		panic(err)
	}
	return append(files, bundle.File{Path: bundle.AssignmentsPath, Data: data})
}
