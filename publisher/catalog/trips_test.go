package catalog

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/airgap/export"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/impact"
	"github.com/wherry-dev/wherry/publisher/registrytest"
)

// world is a registry with releases below edge, and with the images that they need.
type world struct {
	t    *testing.T
	host string
	from oci.Location
	now  time.Time
}

func newWorld(t *testing.T) *world {
	server := httptest.NewServer(registrytest.New(t, "memory", ""))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	return &world{t: t, host: host, from: oci.Location{Host: host, Prefix: "edge"}, now: time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)}
}

// image pushes an image of layers of that many bytes.
func (w *world) image(tag string, layers ...int) bundle.Artifact {
	repo, err := oci.Location{Host: w.host}.Repository("web", oci.Options{})
	require.NoError(w.t, err)
	push := func(mediaType string, data []byte) ocispec.Descriptor {
		b := bundle.NewBlob(mediaType, data)
		if there, err := repo.Exists(w.t.Context(), b.Descriptor); err != nil || !there {
			require.NoError(w.t, repo.Push(w.t.Context(), b.Descriptor, bytes.NewReader(data)))
		}
		return b.Descriptor
	}
	m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: push(ocispec.MediaTypeImageConfig, []byte("{}"))}
	for _, size := range layers {
		m.Layers = append(m.Layers, push(ocispec.MediaTypeImageLayer, bytes.Repeat([]byte{byte(size)}, size)))
	}
	data, err := json.Marshal(m)
	require.NoError(w.t, err)
	d := push(m.MediaType, data)
	require.NoError(w.t, repo.Tag(w.t.Context(), d, tag))
	return bundle.Artifact{Type: bundle.ArtifactImage, Name: w.host + "/web", Reference: w.host + "/web:" + tag, Digest: d.Digest.String(), UsedBy: []string{"web-main"}}
}

// release publishes release n of a cluster type that is valid for some days, at the moving tag of a ring.
func (w *world) release(ct, ring string, n int64, days int, artifacts ...bundle.Artifact) digest.Digest {
	stream := bundle.Stream{Platform: "plant", Environment: "prod", ClusterType: ct}
	list, sum, err := bundle.MarshalArtifacts(bundle.MergeArtifacts(artifacts))
	require.NoError(w.t, err)
	files := map[string]string{"web-main/a.yaml": fmt.Sprint(ct, n)}
	if len(artifacts) > 0 {
		files[bundle.ArtifactsPath] = string(list)
	}
	d := agenttest.New(stream, n, w.now.Add(-time.Hour), files, ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	d.ChangeRelease = func(r *bundle.Release) {
		r.Artifacts, r.Number, r.ExpiresAt = sum, n, w.now.AddDate(0, 0, days).Add(time.Minute)
	}
	repo, err := w.from.Repository(stream.Repository(), oci.Options{})
	require.NoError(w.t, err)
	desc, err := d.Publish(w.t.Context(), repo)
	require.NoError(w.t, err)
	require.NoError(w.t, repo.Tag(w.t.Context(), desc, bundle.MovingTag(ring)))
	require.NoError(w.t, repo.Tag(w.t.Context(), desc, d.Release.Tag()))
	return desc.Digest
}

func (w *world) look(clusters ...impact.Cluster) *Trips {
	w.t.Helper()
	t, err := ReadTrips(w.t.Context(), w.request(clusters...))
	require.NoError(w.t, err)
	return t
}

func (w *world) request(clusters ...impact.Cluster) TripRequest {
	return TripRequest{From: w.from, Environment: "prod", Fleet: impact.Fleet{From: impact.FromHub, Clusters: clusters}, Label: impact.SiteLabel, Link: 8000, Now: w.now}
}

// exported is the length of the package that an export would write.
func (w *world) exported(base map[string][]digest.Digest, types ...string) int64 {
	w.t.Helper()
	p, err := export.Choose(w.t.Context(), export.Request{From: w.from, Environment: "prod", ClusterTypes: types, Since: export.Releases("x", "prod", base)})
	require.NoError(w.t, err)
	return p.Bytes
}

func (w *world) cluster(name, ct, site string, release digest.Digest, state bundle.State, heard time.Duration) impact.Cluster {
	c := impact.Cluster{Name: name, UID: name, ClusterType: ct, Release: release, State: state}
	if site != "" {
		c.Labels = map[string]string{"site": site}
	}
	if heard != 0 {
		c.LastSeen = w.now.Add(-heard)
	}
	return c
}

func TestAMediumCarriesWhatTheSiteLacks(t *testing.T) {
	w := newWorld(t)
	first := w.release("shop", "", 1, 40, w.image("1", 70_000))
	second := w.release("shop", "", 2, 40, w.image("2", 70_000, 20_000))
	newest := w.release("shop", "", 4, 40, w.image("4", 70_000, 20_000, 50_000))
	mast := w.release("mast", "", 9, 20, w.image("9", 30_000))
	got := w.look(
		w.cluster("a", "shop", "quay", second, bundle.Compliant, time.Hour),
		w.cluster("b", "shop", "quay", first, bundle.Compliant, 50*time.Hour),
		w.cluster("c", "mast", "quay", mast, bundle.Compliant, time.Hour),
		w.cluster("d", "shop", "hill", newest, bundle.Failed, time.Hour), // no medium mends that
		w.cluster("e", "shop", "dock", second, bundle.Failed, time.Hour),
		w.cluster("f", "mast", "", "", "", 0),
	)
	require.Empty(t, got.Warnings)
	require.Equal(t, 3, got.Behind)
	require.False(t, got.About)
	byName, order := map[string]TripSite{}, []string{}
	for _, s := range got.Sites {
		byName[s.Name], order = s, append(order, s.Name)
	}
	require.Equal(t, []string{"(cluster type mast)", "quay", "dock", "hill"}, order, "unknown first, then those furthest behind, then the others")

	quay := byName["quay"]
	require.Equal(t, []string{"mast", "shop"}, quay.ClusterTypes)
	require.EqualValues(t, 3, *quay.Releases)
	require.Equal(t, w.exported(map[string][]digest.Digest{"shop": {first, second}}, "shop"), quay.Bytes, "mast is not behind, and what both have is left out")
	require.Equal(t, (quay.Bytes+999)/1000, quay.Seconds)
	require.Equal(t, 20, *quay.DaysLeft)
	require.Equal(t, w.now.Add(-50*time.Hour), quay.LastHeard)

	require.Equal(t, w.exported(nil, "shop"), byName["dock"].Bytes, "a cluster that has failed is not known to have anything")
	require.EqualValues(t, 2, *byName["dock"].Releases)
	require.Greater(t, byName["dock"].Bytes, quay.Bytes+60_000)
	require.Zero(t, byName["hill"].Bytes)
	require.False(t, byName["hill"].Behind)
	require.Nil(t, byName["(cluster type mast)"].Releases)
	require.True(t, byName["(cluster type mast)"].LastHeard.IsZero())
	require.Equal(t, quay.Bytes+byName["dock"].Bytes+byName["(cluster type mast)"].Bytes, got.Bytes)
}

func TestWhatIsGoneOrMissing(t *testing.T) {
	w := newWorld(t)
	_, err := ReadTrips(t.Context(), w.request(w.cluster("a", "shop", "quay", "", "", 0)))
	require.ErrorIs(t, err, errdef.ErrNotFound)

	canary := w.release("shop", "canary", 5, 10)
	w.release("shop", "", 3, 10) // after the other, which has the tag latest as well
	w.now = w.now.AddDate(0, 0, 12)
	gone := digest.FromString("a release that was deleted")
	ringed := w.cluster("b", "shop", "quay", canary, bundle.Compliant, time.Hour)
	ringed.Ring = "canary"
	got := w.look(w.cluster("a", "shop", "quay", gone, bundle.Compliant, time.Hour), ringed, w.cluster("c", "boat", "hill", "", "", 0))
	require.Len(t, got.Sites, 2)
	quay := got.Sites[0]
	require.Nil(t, quay.Releases)
	require.Equal(t, -2, *quay.DaysLeft)
	require.Len(t, quay.Streams, 2)
	require.True(t, quay.Streams[0].Behind)
	require.False(t, quay.Streams[1].Behind)
	require.False(t, got.Sites[1].Behind, "nothing can be carried")
	require.Contains(t, strings.Join(got.Warnings, "\n"), "cluster type boat has no release at ")
	require.Contains(t, strings.Join(got.Warnings, "\n"), "which clusters of shop run, is not at ")
}

func TestSizesAreEstimatesWhereARegistryIsAway(t *testing.T) {
	w := newWorld(t)
	away := func(tag string, size int64) bundle.Artifact {
		return bundle.Artifact{
			Type: bundle.ArtifactImage, Name: "127.0.0.1:1/web", Reference: "127.0.0.1:1/web:" + tag, Digest: digest.FromString(tag).String(), Size: size, UsedBy: []string{"web-main"},
		}
	}
	first := w.release("shop", "", 1, 40, away("old", 500_000))
	w.release("shop", "", 2, 40, away("old", 500_000), away("new", 3_000_000), away("unknown", 0))
	got := w.look(w.cluster("a", "shop", "quay", first, bundle.Compliant, time.Hour))
	require.True(t, got.Sites[0].About)
	require.InDelta(t, 3_000_000, got.Sites[0].Bytes, 40_000, "the bundle is part of it, and what the site has is not")
	require.Len(t, got.Warnings, 2)
	require.Contains(t, got.Warnings[0], "sizes of shop are estimates: artifact 127.0.0.1:1/web:")
	require.Equal(t, "nobody knows the size of 1 artifact of shop: it is not counted", got.Warnings[1])
}
