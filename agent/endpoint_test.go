package agent

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/agent/serve"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/delta"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/sweeptest"
)

// serves gives the site's agent an endpoint with a CA of its own.
func (s *site) serves() *serve.Endpoint {
	s.t.Helper()
	require.NoError(s.t, os.MkdirAll(s.dir, 0o700))
	e, err := serve.Open(serve.Options{Address: "127.0.0.1:0", URL: "https://first-box:5001", StateDir: s.dir})
	require.NoError(s.t, err)
	s.opts.Serve = e
	return e
}

// served is a registry with what the agent's endpoint serves.
func (s *site) served() string {
	s.t.Helper()
	server := httptest.NewServer(serve.NewHandler(filepath.Join(s.dir, state.StoreDir), s.stream.Platform, nil, nil))
	s.t.Cleanup(server.Close)
	return "oci://" + strings.TrimPrefix(server.URL, "http://") + "/" + s.stream.Platform
}

// follower is a site whose agent takes its releases from another location, and trusts what this one trusts.
func (s *site) follower(location string, client *http.Client) *site {
	s.t.Helper()
	f := newSite(s.t)
	f.key, f.now, f.stream, f.epoch = s.key, s.now, s.stream, s.epoch
	loc, err := oci.Parse(location)
	require.NoError(s.t, err)
	f.repo, err = loc.Repository(s.stream.Repository(), oci.Options{HTTPClient: client})
	require.NoError(s.t, err)
	f.trust, err = loc.Repository(bundle.TrustRepository, oci.Options{HTTPClient: client})
	require.NoError(s.t, err)
	f.opts.TrustSource = f.trust
	return f
}

// names are those in the index of the agent's store.
func (s *site) names() map[string]digest.Digest {
	s.t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, state.StoreDir, ocispec.ImageIndexFile))
	require.NoError(s.t, err)
	var index ocispec.Index
	require.NoError(s.t, json.Unmarshal(data, &index))
	all := map[string]digest.Digest{}
	for _, d := range index.Manifests {
		all[d.Annotations[ocispec.AnnotationRefName]] = d.Digest
	}
	return all
}

func (s *site) blobFile(d digest.Digest) string {
	return filepath.Join(s.dir, state.StoreDir, "blobs/sha256", d.Encoded())
}

// A second agent takes everything from the first one, by deltas or not, and verifies it with its own roots.
func TestASecondAgentFollowsTheFirst(t *testing.T) {
	s := newSite(t)
	s.epoch = 1
	root := agenttest.NewKey()
	first := agenttest.NewTrust(s.stream.Platform, s.now, root, s.key)
	require.NoError(t, s.install(first))
	s.serves()
	s.opts.Content.Deltas = delta.Command(deltaCommand(t))
	before, after := trees()
	one := s.draft(1, before)
	s.publish(one)
	require.Equal(t, bundle.Compliant, s.once().Status.State)

	f := s.follower(s.served(), nil)
	require.NoError(t, f.install(first))
	r := f.once()
	require.Equal(t, bundle.Compliant, r.Status.State, r.Error)
	requireFile(t, f.host, "w3-x/f", before["w3-x/f"])

	// A new document of who may sign, and a release by its key that the first agent takes as a delta.
	next := first.Next(s.now.Add(time.Minute))
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	next.Document.Release = agenttest.Role(1, key)
	require.NoError(t, next.Publish(context.Background(), s.trust))
	s.key = key
	s.offerDelta(2, one, after)
	require.EqualValues(t, 2, s.once().Status.Release.Running.Sequence)
	s.requireStored(r1(s, 2), false)

	r = f.once()
	require.Equal(t, bundle.Compliant, r.Status.State, r.Error)
	require.EqualValues(t, 2, r.Status.Release.Running.Sequence)
	require.EqualValues(t, 2, r.Status.Trust.Version)
	requireFile(t, f.host, "w3-x/f", after["w3-x/f"])
	require.Equal(t, Idle, f.once().Verdict)
	require.Equal(t, []string{
		"bundles/dev/drone/latest", "bundles/dev/drone/s1-1", "bundles/dev/drone/s1-2",
		"bundles/dev/drone/sha256-X.sig", "bundles/dev/drone/sha256-X.sig", "trust/v1", "trust/v2",
	}, sortedNames(s.names()))
	require.Equal(t, r.Status.Release.Running.Digest, s.names()["bundles/dev/drone/latest"])
}

// sortedNames are the names with X for digests.
func sortedNames(names map[string]digest.Digest) (all []string) {
	for name := range names {
		if before, rest, ok := strings.Cut(name, "sha256-"); ok {
			name = before + "sha256-X" + rest[64:]
		}
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func TestAFollowerOverTLSWhileTheFirstAgentRuns(t *testing.T) {
	s := newSite(t)
	s.opts.Now, s.opts.Interval, s.now = nil, time.Hour, time.Now()
	e := s.serves()
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	c := s.running()
	var st Status
	require.Eventually(t, func() bool {
		var err error
		st, err = c.Status(context.Background())
		return err == nil && st.State == bundle.Compliant && st.Step == ""
	}, time.Minute, time.Millisecond)
	require.Equal(t, "https://first-box:5001", st.Endpoint.URL)
	require.Len(t, st.Endpoint.CA, 64)
	require.Empty(t, st.Endpoint.Waiting)

	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(e.Served().CA))
	address := st.Endpoint.Address
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}}
	t.Cleanup(client.CloseIdleConnections)
	f := s.follower("oci://first-box:5001/default", client)
	f.opts.Now = nil
	r := f.once()
	require.Equal(t, bundle.Compliant, r.Status.State, r.Error)
	require.NotZero(t, e.Counters.Bytes.Load())

	other := s.follower("oci://first-box:5001/office", client)
	other.opts.Now = nil
	require.Equal(t, ReasonNotFound, other.once().Status.Reason)
}

// With the compressor of another version the layer is fetched, once.
func TestALayerThatCannotBeMadeIsFetchedOnce(t *testing.T) {
	s := newSite(t)
	s.serves()
	s.opts.Content.Deltas = delta.Command(deltaCommand(t))
	before, after := trees()
	one := s.draft(1, before)
	s.publish(one)
	s.once()
	s.offerDeltaPackedOtherwise(2, one, after)
	wire := s.listen()
	r := s.once()
	require.EqualValues(t, 2, r.Status.Release.Running.Sequence, r.Error)
	require.Equal(t, []string{"GET latest", "GET signature", "GET blob", "GET blob"}, wire.take())
	s.requireStored(r1(s, 2), false)
	require.Contains(t, s.names(), "bundles/dev/drone/latest")
	s.once()
	require.Equal(t, []string{"GET latest"}, wire.take())
}

// A site that is cut off runs the release that it has, and serves it once it is whole.
func TestAReleaseThatIsNotWholeIsSaidAndNotServed(t *testing.T) {
	s := newSite(t)
	s.opts.Content.Deltas = delta.Command(deltaCommand(t))
	before, after := trees()
	one := s.draft(1, before)
	s.publish(one)
	s.once()
	s.offerDeltaPackedOtherwise(2, one, after)
	s.once()
	s.requireStored(r1(s, 2), true)

	s.serves()
	s.registry.away.Store(true)
	served := s.served()
	s.agent(func(a *Agent) {
		server, err := a.openEndpoint()
		require.NoError(t, err)
		defer server.Close()
		a.makePass(context.Background(), scope{})
		st, err := a.Status()
		require.NoError(t, err)
		require.Contains(t, st.Endpoint.Waiting, "release is not whole")
		require.Equal(t, bundle.Compliant, st.State)
	})
	require.NotContains(t, s.names(), "bundles/dev/drone/latest")
	f := s.follower(served, nil)
	require.Equal(t, ReasonNotFound, f.once().Status.Reason)

	s.registry.away.Store(false)
	require.Equal(t, Idle, s.once().Verdict)
	r := f.once()
	require.EqualValues(t, 2, r.Status.Release.Running.Sequence, r.Error)
}

// A release that came on a medium is kept whole, for the day on which the site begins to serve.
func TestWhatCameOnAMediumCanBeServedLater(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	path := s.export(s.stream)
	s.registry.away.Store(true)
	require.Equal(t, Done, s.imported(path).Verdict)
	s.serves()
	s.agent(func(a *Agent) {
		a.source, a.opts.TrustSource = nil, nil
		a.makePass(context.Background(), scope{})
	})
	r := s.follower(s.served(), nil).once()
	require.Equal(t, bundle.Compliant, r.Status.State, r.Error)
}

func TestADamagedLayerIsFetchedAgain(t *testing.T) {
	s := newSite(t)
	s.opts.Now, s.opts.Interval, s.now = nil, time.Hour, time.Now()
	e := s.serves()
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	s.once()
	layer := r1(s, 1).Tree.Digest
	data, err := os.ReadFile(s.blobFile(layer))
	require.NoError(t, err)
	data[len(data)/2] ^= 1
	require.NoError(t, os.WriteFile(s.blobFile(layer), data, 0o600))
	c := s.running()
	st, err := c.Status(context.Background())
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(e.Served().CA))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
	get := func() int {
		resp, err := client.Get("https://" + st.Endpoint.Address + "/v2/default/bundles/dev/drone/blobs/" + layer.String())
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	require.Equal(t, 404, get())
	_, err = c.Sync(context.Background(), 0)
	require.NoError(t, err)
	require.Equal(t, 200, get())
}

// A release for a ring moves the ring's tag, and latest stays with the release for all.
func TestTheTagsOfRingsAreThoseOfTheRegistry(t *testing.T) {
	s := newSite(t)
	s.serves()
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	s.once()
	d := s.draft(2, map[string]string{"a-x/f": "2"})
	d.Release.Rings = []string{"canary"}
	d.Tag = bundle.MovingTag("canary")
	canary := s.publish(d)
	s.agent(func(a *Agent) {
		a.cluster.Ring = "canary"
		a = New(a.state, s.repo, a.pinned, a.cluster, s.opts)
		require.Equal(t, canary.Digest, a.Once(context.Background(), 0).Status.Release.Running.Digest)
	})
	names := s.names()
	require.Equal(t, canary.Digest, names["bundles/dev/drone/ring-canary"])
	require.NotEqual(t, canary.Digest, names["bundles/dev/drone/latest"])
}

// Wherever a process ends while it completes a release, the next one goes on. A sample is each third place.
func TestAReleaseIsCompletedWhereverItIsCut(t *testing.T) {
	before, after := trees()
	for n := 0; ; n += sweeptest.Every(3) {
		s := newSite(t)
		s.serves()
		s.opts.Content.Deltas = delta.Command(deltaCommand(t))
		one := s.draft(1, before)
		s.publish(one)
		s.once()
		s.offerDelta(2, one, after)
		if !s.cutWhileCompleting(n) {
			require.Greater(t, n, 5)
			return
		}
		require.Contains(t, []Verdict{Done, Idle}, s.once().Verdict)
		s.requireStored(r1(s, 2), false)
		require.Equal(t, r1(s, 2).Digest(), s.names()["bundles/dev/drone/latest"], "cut at moment %d", n)
		r := s.follower(s.served(), nil).once()
		require.Equal(t, bundle.Compliant, r.Status.State, r.Error)
	}
}

// cutWhileCompleting makes a pass that ends at the moment n after it has staged a release, and reports whether there was
// one.
func (s *site) cutWhileCompleting(n int) (cut bool) {
	defer func() { cut = recover() != nil }()
	s.agent(func(a *Agent) {
		begun := false
		a.state.db.Moment = func(name string) {
			begun = begun || name == "stage: renamed"
			if begun && !cut {
				if n--; n < 0 {
					cut = true
					panic(name)
				}
			}
		}
		a.Once(context.Background(), 0)
		a.state.db.Moment = nil
	})
	return false
}

// offerDeltaPackedOtherwise is offerDelta by a publisher with another compressor.
func (s *site) offerDeltaPackedOtherwise(n int64, from draft, files map[string]string) {
	s.t.Helper()
	d := s.draft(n, files)
	packed, err := d.Pack()
	require.NoError(s.t, err)
	d.Layer = bytes.Clone(packed.Gzip)
	d.Layer[9] ^= 1 // the byte of the header that names the system, which readers ignore
	s.offerDeltaOf(d, from)
}
