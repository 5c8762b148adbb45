package desired

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/airgap/registry"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/published/watch"
	"github.com/wherry-dev/wherry/rollout/decisions"
)

var epoch = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func TestARecordIsLearnedWithItsReleases(t *testing.T) {
	w := newWorld(t)
	drone := w.release("drone", 1, map[string]string{"a-x/f": "1"}, w.key)
	w.record(1, map[string]digest.Digest{"drone": drone}, w.key)

	w.look()

	r, err := w.store.Release(t.Context(), drone)
	require.NoError(t, err)
	require.Equal(t, "c0ffee", r.BaseCommit)
	require.Equal(t, []string{keyID(t, w.key)}, r.KeyIDs)
	require.Equal(t, epoch, r.SeenAt)
	require.Len(t, r.Assignments, 1)
	require.Equal(t, "a-x", r.Assignments[0].Name)
	require.Equal(t, []string{"s0-1"}, w.records())
	require.Empty(t, w.warnings())

	before := w.store.writes
	w.look()
	require.Equal(t, before, w.store.writes, "nothing changes without a new record")
}

func TestOnlyVerifiedContentIsStored(t *testing.T) {
	for _, tc := range []struct {
		name    string
		publish func(w *world)
		want    bundle.Reason
	}{
		{"a record that nobody has signed", func(w *world) { w.record(1, nil) }, bundle.Unsigned},
		{"a record by another key", func(w *world) { w.record(1, nil, newKey(w.t)) }, bundle.UntrustedKey},
		{"a record of another environment", func(w *world) { w.putRecord("dev", w.newRecord("prod", 1, nil), w.key) }, bundle.WrongEnvironment},
		{"a record of an epoch, where keys are pinned", func(w *world) {
			r := w.newRecord("dev", 1, nil)
			r.Epoch = 1
			w.putRecord("dev", r, w.key)
		}, bundle.OldEpoch},
		{"a bundle in place of a record", func(w *world) {
			d := w.draft("drone", 1, map[string]string{"a-x/f": "1"}, w.key)
			d.Tag = bundle.LatestTag
			_, err := d.Publish(w.t.Context(), w.repo("environments/dev"))
			require.NoError(w.t, err)
		}, bundle.BadContent},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			tc.publish(w)
			w.look()
			w.look()
			require.Empty(t, w.records())
			require.Zero(t, w.store.writes)
			require.Equal(t, []string{"environment record refused " + string(tc.want)}, w.warnings(), "said once")
		})
	}
}

func TestAReleaseThatIsNotTrustedIsLeftOutAndJudgedAgain(t *testing.T) {
	w := newWorld(t)
	good, bad := w.release("drone", 1, map[string]string{"a-x/f": "1"}, w.key), w.release("large", 1, map[string]string{"a-x/f": "2"}, newKey(t))
	w.record(1, map[string]digest.Digest{"drone": good, "large": bad, "gone": digest.FromString("gone")}, w.key)
	w.look()
	w.look()
	require.Equal(t, []string{"s0-1"}, w.records(), "its signature covers the digests of its releases, whoever has signed those")
	require.Equal(t, []digest.Digest{good}, w.releases())
	require.Equal(t, []string{"releases that a record names are not learned Missing"}, w.warnings(), "said once")

	require.NoError(t, agenttest.Sign(t.Context(), w.repo("bundles/dev/large"), ocispec.Descriptor{Digest: bad}, w.key))
	w.look()
	require.NotContains(t, w.releases(), bad, "not judged with each look")
	w.now = w.now.Add(againAfter)
	w.look()
	require.Contains(t, w.releases(), bad)
}

func TestAReplayedRecordIsNotTheNewest(t *testing.T) {
	w := newWorld(t)
	one := w.release("drone", 1, map[string]string{"a-x/f": "1"}, w.key)
	older := w.record(1, map[string]digest.Digest{"drone": one}, w.key)
	two := w.release("drone", 2, map[string]string{"a-x/f": "2"}, w.key)
	newest := w.record(2, map[string]digest.Digest{"drone": two}, w.key)
	w.look()

	require.NoError(t, w.repo("environments/dev").Tag(t.Context(), older, bundle.LatestTag))
	w.look()

	require.Equal(t, newest.Digest, w.follower.known.newestRecord(bundle.Stream{Platform: "shop", Environment: "dev"}).Digest)
	require.Equal(t, []string{"s0-1", "s0-2"}, w.records())

	w.restart()
	w.look()
	require.Equal(t, newest.Digest, w.follower.known.newestRecord(bundle.Stream{Platform: "shop", Environment: "dev"}).Digest)
}

func TestWhatWasPublishedBeforeIsLearnedToo(t *testing.T) {
	w := newWorld(t)
	var all []digest.Digest
	for n := range int64(4) {
		d := w.release("drone", n+1, map[string]string{"a-x/f": fmt.Sprint(n / 2)}, w.key) // each tree twice
		w.record(n+1, map[string]digest.Digest{"drone": d}, w.key)
		all = append(all, d)
	}
	forged := w.release("drone", 5, map[string]string{"a-x/f": "5"}, newKey(t))

	w.look()
	require.Equal(t, []string{"s0-1", "s0-2", "s0-3", "s0-4"}, w.records())
	require.ElementsMatch(t, all, w.releases())
	require.NotContains(t, w.releases(), forged)
	r, err := w.store.Release(t.Context(), all[0])
	require.NoError(t, err)
	require.Equal(t, "a-x", r.Assignments[0].Name)
	require.Equal(t, 2, w.layers(), "each tree is read once")

	for n := range int64(3) { // a hub that was away misses nothing that came between
		d := w.release("drone", n+6, map[string]string{"a-x/f": fmt.Sprint(n + 6)}, w.key)
		w.record(n+6, map[string]digest.Digest{"drone": d}, w.key)
	}
	w.look()
	require.Len(t, w.releases(), 7)
	require.Len(t, w.records(), 7)
}

func TestAnOldEpochsKeyIsRefused(t *testing.T) {
	w := newWorld(t)
	root, stolen, fresh := newKey(t), newKey(t), newKey(t)
	first := w.trustDocument(nil, root, stolen, 1)
	w.trust = Trust{Chains: []bundle.TrustChain{first}}
	w.restart()
	w.epoch = 1
	one := w.release("drone", 1, map[string]string{"a-x/f": "1"}, stolen)
	w.record(1, map[string]digest.Digest{"drone": one}, stolen)
	w.look()
	require.Equal(t, []string{"s1-1"}, w.records())

	w.trustDocument(first, root, fresh, 2)
	forged := w.release("drone", 2, map[string]string{"a-x/f": "666"}, stolen)
	w.record(2, map[string]digest.Digest{"drone": forged}, stolen)
	w.look()
	w.look()
	require.Equal(t, []string{"environment record refused OldEpoch"}, w.warnings(), "said once")
	require.Equal(t, []string{"s1-1"}, w.records())

	w.epoch = 2
	w.record(1, nil, stolen)
	w.look()
	require.Equal(t, []string{"s1-1"}, w.records(), "nor is one that claims the new epoch")
	two := w.release("drone", 1, map[string]string{"a-x/f": "2"}, fresh)
	w.record(1, map[string]digest.Digest{"drone": two}, fresh)
	w.look()
	require.Equal(t, []string{"s1-1", "s2-1"}, w.records())
	require.NotContains(t, w.releases(), forged)

	// The registry now hides the second document, and the hub has forgotten it.
	require.NoError(t, w.repo(bundle.TrustRepository).Untag(t.Context(), bundle.TrustTag(2)))
	w.restart()
	w.epoch = 1
	w.record(9, map[string]digest.Digest{"drone": forged}, stolen)
	w.look()
	require.Equal(t, []string{"s1-1", "s2-1"}, w.records())
}

func TestAnExpiredTrustDocumentAdmitsNothing(t *testing.T) {
	w := newWorld(t)
	root, key := newKey(t), newKey(t)
	w.trust = Trust{Chains: []bundle.TrustChain{w.trustDocument(nil, root, key, 1)}}
	w.restart()
	w.epoch = 1
	w.record(1, nil, key)
	w.now = epoch.Add(400 * 24 * time.Hour)
	w.look()
	require.Empty(t, w.records())
	require.Equal(t, []string{"environment record refused Expired"}, w.warnings())
}

func TestAPlatformWithoutTrustIsRefused(t *testing.T) {
	w := newWorld(t)
	chain := w.trustDocument(nil, newKey(t), w.key, 1)
	chain[0].Document.Platform = "other"
	w.trust = Trust{Chains: []bundle.TrustChain{chain}}
	w.restart()
	w.record(1, nil, w.key)
	w.look()
	require.Empty(t, w.records())
	require.Equal(t, []string{"environment record refused WrongPlatform"}, w.warnings())
}

func TestFollowersOfOneStoreDoNotHarmEachOther(t *testing.T) {
	w := newWorld(t)
	other := w.newFollower()
	d := w.release("drone", 1, map[string]string{"a-x/f": "1"}, w.key)
	w.record(1, map[string]digest.Digest{"drone": d}, w.key)
	w.look()
	require.NoError(t, lookWith(t, other, w.location()))
	require.Equal(t, []string{"s0-1"}, w.records())
	require.Equal(t, 1, strings.Count(w.log.String(), "environment record learned"), "the second has added nothing")
}

func TestAPlaceThatIsGoneIsSaidOnceAndAskedAgain(t *testing.T) {
	w := newWorld(t)
	d := w.release("drone", 1, map[string]string{"a-x/f": "1"}, w.key)
	w.record(1, map[string]digest.Digest{"drone": d}, w.key)
	index := filepath.Join(w.dir, "index.json")
	content, err := os.ReadFile(index)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(index, []byte("{"), 0o600))
	synctest.Test(t, func(t *testing.T) {
		w.follower = w.newFollower() // with channels of the bubble
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.follower.Run(ctx) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []string{"what is published cannot be followed for now"}, w.warnings())
		require.NoError(t, os.WriteFile(index, content, 0o600))
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"s0-1"}, w.records())
		require.Contains(t, w.log.String(), "what is published is followed again")
		cancel()
		require.NoError(t, <-ended)
	})
}

func TestALocationWithNothingIsSaidOnce(t *testing.T) {
	w := newWorld(t)
	w.look()
	w.look()
	nothing := "nothing is published at this location for the environments of the clusters; is it the right one?"
	require.Equal(t, []string{nothing}, w.warnings())
	d := w.release("drone", 1, map[string]string{"a-x/f": "1"}, w.key)
	w.record(1, map[string]digest.Digest{"drone": d}, w.key)
	w.look()
	w.look()
	require.Equal(t, []string{"s0-1"}, w.records())
	require.Equal(t, []string{nothing}, w.warnings())
}

func TestDecisionsAreMirroredAsTheyAre(t *testing.T) {
	w := newWorld(t)
	w.record(1, map[string]digest.Digest{"drone": w.release("drone", 1, map[string]string{"a-x/f": "1"}, w.key)}, w.key)
	repo := w.repo(bundle.EnvironmentRepository("dev"))
	decide := func(platform, environment string, at time.Time) (envelope []byte, tag string) {
		d := bundle.Decision{Schema: bundle.DecisionSchema, Action: bundle.Pause, Platform: platform, Environment: environment, IssuedAt: at}
		signer, err := signature.LoadSigner(newKey(t), crypto.SHA256) // whose key it is does not matter here
		require.NoError(t, err)
		envelope, err = bundle.SealDecision(d, signer)
		require.NoError(t, err)
		_, id, err := bundle.ReadDecision(envelope)
		require.NoError(t, err)
		return envelope, d.Tag(id)
	}
	put := func(envelope []byte, tag string) {
		blobs, err := bundle.DecisionManifest(envelope)
		require.NoError(t, err)
		w.pushBlobs(repo, blobs...)
		require.NoError(t, repo.Tag(t.Context(), blobs[len(blobs)-1].Descriptor, tag))
	}
	good, tag := decide("shop", "dev", epoch)
	put(good, tag)
	put(good, "gate-other")
	put([]byte("no decision"), "gate-broken")
	put(decide("tea", "dev", epoch))
	put(decide("shop", "prod", epoch))

	w.look()
	require.Len(t, w.store.decided, 1, "of the platform, in its own place")
	require.Equal(t, good, w.store.decided[0].Envelope)
	require.False(t, w.store.decided[0].Own)
	signer, err := signature.LoadSigner(newKey(t), crypto.SHA256)
	require.NoError(t, err)
	// Of two that follow each other between two looks, the tag of the earlier one is moved, and another keeps it.
	for _, at := range []time.Duration{time.Second, 2 * time.Second} {
		d := bundle.Decision{Schema: bundle.DecisionSchema, Action: bundle.Pause, Platform: "shop", Environment: "dev", IssuedAt: epoch.Add(at)}
		_, err := decisions.Write(t.Context(), w.location(), oci.Options{}, d, signer, d.IssuedAt)
		require.NoError(t, err)
	}
	w.look()
	require.Len(t, w.store.decided, 1, "nobody looks at each moment")
	w.now = w.now.Add(decisionsEvery)
	w.look()
	require.Len(t, w.store.decided, 3)
}

func TestWakeLooksSoon(t *testing.T) {
	w := newWorld(t)
	w.opts.Interval = time.Hour
	w.record(1, nil, w.key)
	synctest.Test(t, func(t *testing.T) {
		w.follower = w.newFollower() // with channels of the bubble
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.follower.Run(ctx) }()
		synctest.Wait()
		w.record(2, nil, w.key)
		w.follower.Wake()
		settle()
		require.Equal(t, []string{"s0-1", "s0-2"}, w.records())
		cancel()
		require.NoError(t, <-ended)
	})
}

func TestAReleaseThatAClusterRunsIsLookedForOnce(t *testing.T) {
	w := newWorld(t)
	w.opts.Interval = time.Hour
	w.record(1, nil, w.key)
	synctest.Test(t, func(t *testing.T) {
		w.follower = w.newFollower() // with channels of the bubble
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.follower.Run(ctx) }()
		synctest.Wait()
		d := w.release("drone", 1, map[string]string{"a-x/f": "1"}, w.key)
		w.record(2, map[string]digest.Digest{"drone": d}, w.key)
		w.follower.Notice(d)
		settle()
		require.Equal(t, []digest.Digest{d}, w.releases())
		w.record(3, map[string]digest.Digest{"drone": d}, w.key)
		w.follower.Notice(d)
		w.follower.Notice("")
		w.follower.Notice(digest.FromString("foreign"))
		settle()
		require.Equal(t, []string{"s0-1", "s0-2", "s0-3"}, w.records())
		w.record(4, nil, w.key)
		w.follower.Notice(digest.FromString("foreign"))
		settle()
		require.Equal(t, []string{"s0-1", "s0-2", "s0-3"}, w.records(), "a foreign release is no reason to ask again and again")
		cancel()
		require.NoError(t, <-ended)
	})
}

// settle passes the time after which a follower that was woken has looked.
func settle() {
	time.Sleep(watch.DefaultSettle)
	synctest.Wait()
}

func TestARegistryIsAskedOnceForEachEnvironment(t *testing.T) {
	reg, err := registry.Open(t.TempDir(), registry.Options{})
	require.NoError(t, err)
	var mu sync.Mutex
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Method+" "+r.URL.Path)
		mu.Unlock()
		reg.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(func() { server.Close(); require.NoError(t, reg.Close()) })
	requests := func(do func()) []string {
		mu.Lock()
		asked = nil
		mu.Unlock()
		do()
		mu.Lock()
		defer mu.Unlock()
		return asked
	}

	w := newWorld(t)
	w.host = server.Listener.Addr().String()
	w.opts.OCI.HTTPClient = server.Client() // which does not try again
	w.restart()
	d := w.release("drone", 1, map[string]string{"a-x/f": "1"}, w.key)
	w.record(1, map[string]digest.Digest{"drone": d}, w.key)
	w.look()
	require.Equal(t, []string{"s0-1"}, w.records())

	poll := []string{"GET /v2/edge/environments/dev/manifests/latest"}
	require.Equal(t, poll, requests(w.look), "nothing has changed")
	w.record(2, map[string]digest.Digest{"drone": d}, newKey(t))
	w.look()
	require.Equal(t, poll, requests(w.look), "a refused record is not read again and again")
	w.restart()
	w.record(3, map[string]digest.Digest{"drone": d}, w.key)
	before := requests(w.look)
	require.Equal(t, poll[0], before[0])
	for _, r := range before {
		require.NotContains(t, r, "/blobs/", "a known release is not read again")
	}
	server.Close()
	require.ErrorIs(t, w.follower.look(t.Context(), w.at), oci.ErrUnreachable)
	require.Equal(t, []string{"s0-1", "s0-3"}, w.records())
}

// world is a location, a follower and what it has stored.
type world struct {
	t        *testing.T
	dir      string
	host     string // of a registry in place of dir
	key      *ecdsa.PrivateKey
	trust    Trust
	epoch    int64
	now      time.Time
	opts     Options
	log      *bytes.Buffer
	store    *memory
	follower *Follower
	at       *location
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: filepath.Join(t.TempDir(), "layout"), key: newKey(t), now: epoch, log: new(bytes.Buffer), store: newMemory()}
	w.trust = Trust{Keys: bundle.Keys{w.key.Public()}}
	w.opts = Options{
		Locations: []oci.Location{w.location()}, Now: func() time.Time { return w.now },
		Environments: func(context.Context) ([]string, error) { return []string{"dev", "No Name"}, nil },
		Log:          slog.New(slog.NewTextHandler(w.log, nil)),
	}
	w.restart()
	return w
}

func (w *world) location() oci.Location {
	if w.host != "" {
		return oci.Location{Host: w.host, Prefix: "edge"}
	}
	return oci.Location{Dir: w.dir}
}

// newFollower returns a follower that has forgotten everything.
func (w *world) newFollower() *Follower { return New(w.store, w.trust, w.opts) }

// restart replaces the follower by a new one.
func (w *world) restart() {
	w.follower = w.newFollower()
	at, err := w.follower.open(w.location())
	require.NoError(w.t, err)
	w.at = at
}

func (w *world) look() {
	w.t.Helper()
	require.NoError(w.t, w.follower.look(w.t.Context(), w.at))
}

func lookWith(t *testing.T, f *Follower, l oci.Location) error {
	at, err := f.open(l)
	require.NoError(t, err)
	return f.look(t.Context(), at)
}

func (w *world) repo(name string) oci.Target {
	repo, err := w.location().Repository(name, oci.Options{})
	require.NoError(w.t, err)
	return repo
}

func (w *world) draft(clusterType string, n int64, files map[string]string, key crypto.Signer) agenttest.Draft {
	d := agenttest.New(bundle.Stream{Platform: "shop", Environment: "dev", ClusterType: clusterType}, n, epoch.Add(time.Duration(n)*time.Minute), files, key)
	d.Release.Epoch = w.epoch
	d.Tag = d.Release.Tag()
	return d
}

func (w *world) release(clusterType string, n int64, files map[string]string, key crypto.Signer) digest.Digest {
	w.t.Helper()
	desc, err := w.draft(clusterType, n, files, key).Publish(w.t.Context(), w.repo("bundles/dev/"+clusterType))
	require.NoError(w.t, err)
	return desc.Digest
}

func (w *world) newRecord(environment string, n int64, types map[string]digest.Digest) bundle.EnvironmentRecord {
	return bundle.EnvironmentRecord{
		Schema: bundle.EnvironmentSchema, Platform: "shop", Environment: environment, Epoch: w.epoch, Sequence: n,
		IssuedAt: epoch.Add(time.Duration(n) * time.Minute), BaseCommit: "c0ffee", ClusterTypes: types,
	}
}

func (w *world) record(n int64, types map[string]digest.Digest, keys ...crypto.Signer) ocispec.Descriptor {
	return w.putRecord("dev", w.newRecord("dev", n, types), keys...)
}

func (w *world) putRecord(environment string, r bundle.EnvironmentRecord, keys ...crypto.Signer) ocispec.Descriptor {
	w.t.Helper()
	repo := w.repo(bundle.EnvironmentRepository(environment))
	document, err := r.Marshal()
	require.NoError(w.t, err)
	manifest := w.push(repo, bundle.MediaTypeEnvironment, document)
	if len(keys) > 0 {
		require.NoError(w.t, agenttest.Sign(w.t.Context(), repo, manifest, keys...))
	}
	for _, tag := range []string{r.Tag(), bundle.LatestTag} {
		require.NoError(w.t, repo.Tag(w.t.Context(), manifest, tag))
	}
	return manifest
}

// push pushes a manifest whose config is document.
func (w *world) push(repo oci.Target, mediaType string, document []byte) ocispec.Descriptor {
	config := bundle.NewBlob(mediaType, document)
	empty := bundle.Blob{Descriptor: ocispec.DescriptorEmptyJSON, Data: ocispec.DescriptorEmptyJSON.Data}
	m := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: mediaType,
		Config: config.Descriptor, Layers: []ocispec.Descriptor{empty.Descriptor},
	}
	m.Config.Data = document
	data, err := json.Marshal(m)
	require.NoError(w.t, err)
	manifest := bundle.NewBlob(m.MediaType, data)
	w.pushBlobs(repo, config, empty, manifest)
	return manifest.Descriptor
}

func (w *world) pushBlobs(repo oci.Target, blobs ...bundle.Blob) {
	for _, b := range blobs {
		there, err := repo.Exists(w.t.Context(), b.Descriptor)
		require.NoError(w.t, err)
		if !there {
			require.NoError(w.t, repo.Push(w.t.Context(), b.Descriptor, bytes.NewReader(b.Data)))
		}
	}
}

// trustDocument publishes the next version after chain, in which one key may sign releases.
func (w *world) trustDocument(chain bundle.TrustChain, root, release *ecdsa.PrivateKey, epochNumber int64) bundle.TrustChain {
	role := func(k *ecdsa.PrivateKey) bundle.Role {
		key, err := bundle.NewTrustKey("", k.Public())
		require.NoError(w.t, err)
		return bundle.Role{Threshold: 1, Keys: []bundle.TrustKey{key}}
	}
	envelope, err := bundle.SealTrust(bundle.TrustDocument{
		Schema: bundle.TrustSchema, Platform: "shop", Version: int64(len(chain)) + 1, Epoch: epochNumber,
		IssuedAt: epoch, ExpiresAt: epoch.Add(365 * 24 * time.Hour), Root: role(root), Release: role(release),
	})
	require.NoError(w.t, err)
	signer, err := signature.LoadSigner(root, crypto.SHA256)
	require.NoError(w.t, err)
	envelope, err = bundle.SignTrust(envelope, signer)
	require.NoError(w.t, err)
	blobs, err := bundle.TrustManifest(envelope)
	require.NoError(w.t, err)
	repo := w.repo(bundle.TrustRepository)
	w.pushBlobs(repo, blobs...)
	require.NoError(w.t, repo.Tag(w.t.Context(), blobs[len(blobs)-1].Descriptor, bundle.TrustTag(int64(len(chain))+1)))
	chain, err = chain.Append(envelope)
	require.NoError(w.t, err)
	return chain
}

// records returns the tags of the stored records, oldest first.
func (w *world) records() (tags []string) {
	err := w.store.Records(w.t.Context(), func(r store.PublishedRecord) error {
		tags = append(tags, r.Tag())
		return nil
	})
	require.NoError(w.t, err)
	return tags
}

func (w *world) releases() (all []digest.Digest) {
	err := w.store.Releases(w.t.Context(), func(r store.PublishedRelease) error {
		all = append(all, r.Digest)
		return nil
	})
	require.NoError(w.t, err)
	return all
}

// layers counts the different lists of assignments that are stored as such, and not taken from another release.
func (w *world) layers() int {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	lists := map[*bundle.Assignment]bool{}
	for _, r := range w.store.releases {
		lists[&r.Assignments[0]] = true
	}
	return len(lists)
}

// warnings returns the messages of the log above Info, with their reason.
func (w *world) warnings() (all []string) {
	for line := range strings.Lines(w.log.String()) {
		if strings.Contains(line, "level=INFO") {
			continue
		}
		_, message, _ := strings.Cut(line, `msg="`)
		message, rest, _ := strings.Cut(message, `"`)
		if _, reason, ok := strings.Cut(rest, " reason="); ok {
			reason, _, _ = strings.Cut(reason, " ")
			message += " " + reason
		}
		all = append(all, message)
	}
	return all
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

func keyID(t *testing.T, k *ecdsa.PrivateKey) string {
	id, err := bundle.KeyID(k.Public())
	require.NoError(t, err)
	return id
}

// memory is a Store in memory.
type memory struct {
	mu       sync.Mutex
	releases map[digest.Digest]store.PublishedRelease
	records  map[digest.Digest]store.PublishedRecord
	decided  []store.StoredDecision
	writes   int
}

func newMemory() *memory {
	return &memory{releases: map[digest.Digest]store.PublishedRelease{}, records: map[digest.Digest]store.PublishedRecord{}}
}

func (m *memory) AddDecision(_ context.Context, d store.StoredDecision) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.ContainsFunc(m.decided, func(have store.StoredDecision) bool { return have.Digest == d.Digest }) {
		return false, nil
	}
	m.decided = append(m.decided, d)
	return true, nil
}

func (m *memory) Decisions(context.Context, string) ([]store.StoredDecision, error) {
	return m.decided, nil
}

func (m *memory) AddReleases(_ context.Context, all []store.PublishedRelease) (added int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range all {
		if _, there := m.releases[r.Digest]; !there {
			m.releases[r.Digest] = r
			added++
		}
	}
	m.writes += added
	return added, nil
}

func (m *memory) AddRecord(_ context.Context, r store.PublishedRecord) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, there := m.records[r.Digest]; there {
		return false, nil
	}
	m.records[r.Digest] = r
	m.writes++
	return true, nil
}

func (m *memory) Release(_ context.Context, d digest.Digest) (store.PublishedRelease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.releases[d]
	if !ok {
		return r, fmt.Errorf("%s: %w", d, store.ErrUnknownRelease)
	}
	return r, nil
}

func (m *memory) Releases(_ context.Context, each func(store.PublishedRelease) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, r := range m.releases {
		r.Assignments, r.Artifacts = nil, nil
		errs = append(errs, each(r))
	}
	return errors.Join(errs...)
}

func (m *memory) Records(_ context.Context, each func(store.PublishedRecord) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []store.PublishedRecord
	for _, r := range m.records {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b store.PublishedRecord) int { return orderOf(a).Compare(orderOf(b)) })
	for _, r := range all {
		if err := each(r); err != nil {
			return err
		}
	}
	return nil
}
