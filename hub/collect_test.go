package hub

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// depot is where agents leave reports.
type depot struct {
	t testing.TB
	oci.Store
}

func newDepot(t testing.TB) depot {
	store, err := oci.Location{Dir: t.TempDir() + "/layout"}.Open(oci.Options{})
	require.NoError(t, err)
	return depot{t, store}
}

func (d depot) of(a *agent) oci.Target {
	repo, err := d.Repository(bundle.ReportRepository(a.UID))
	require.NoError(d.t, err)
	return repo
}

func (d depot) put(a *agent, tag string, blobs []bundle.Blob) {
	repo := d.of(a)
	for _, b := range blobs {
		ok, err := repo.Exists(d.t.Context(), b.Descriptor)
		require.NoError(d.t, err)
		if !ok {
			require.NoError(d.t, repo.Push(d.t.Context(), b.Descriptor, bytes.NewReader(b.Data)))
		}
	}
	require.NoError(d.t, repo.Tag(d.t.Context(), blobs[len(blobs)-1].Descriptor, tag))
}

// leave pushes reports as one artifact.
func (d depot) leave(a *agent, reports ...bundle.Report) {
	var envelopes [][]byte
	for _, r := range reports {
		envelopes = append(envelopes, a.seal(d.t, r))
	}
	blobs, err := bundle.StoredReports(envelopes)
	require.NoError(d.t, err)
	last := reports[len(reports)-1].Agent
	d.put(a, bundle.ReportTag(last.Incarnation, last.Seq), blobs)
}

// acked returns the ids that the hub acknowledges there.
func (d depot) acked(h *Hub, a *agent) []digest.Digest {
	repo := d.of(a)
	m, err := repo.Resolve(d.t.Context(), bundle.AckTag)
	require.NoError(d.t, err)
	envelopes, err := bundle.FetchAcks(d.t.Context(), repo, m)
	require.NoError(d.t, err)
	require.Len(d.t, envelopes, 1)
	body, _, err := bundle.OpenEnvelope(bundle.PayloadTypeAck, envelopes[0], h.PublicKey())
	require.NoError(d.t, err)
	ack, err := bundle.ParseAck(body)
	require.NoError(d.t, err)
	require.Equal(d.t, a.UID, ack.Cluster)
	return ack.Reports
}

func from(r bundle.Report, oldest int64) bundle.Report {
	r.Agent.Oldest = bundle.ReportTag(r.Agent.Incarnation, oldest)
	return r
}

func TestWhatIsCollectedIsAcknowledgedFromTheOldestThatTheAgentKeeps(t *testing.T) {
	h, _ := newHub(t)
	d, a, silent := newDepot(t), newAgent(t, "plant-7"), newAgent(t, "silent")
	a.register(t, h)
	silent.register(t, h)
	one, two, three := from(a.report(1, 1), 1), from(a.report(1, 2), 1), from(a.report(1, 3), 1)
	d.leave(a, one, two)
	d.leave(a, three)
	got, err := h.Collect(t.Context(), "oci://registry.example/edge", d)
	require.NoError(t, err)
	require.Equal(t, []ImportedCluster{{UID: a.UID, Name: "plant-7", Accepted: 3}}, got.Clusters)
	require.Equal(t, []digest.Digest{idOf(t, one), idOf(t, two), idOf(t, three)}, d.acked(h, a))

	got, err = h.Collect(t.Context(), "oci://registry.example/edge", d)
	require.NoError(t, err)
	require.Empty(t, got.Clusters, "it is not fetched again")

	four := from(a.report(1, 4), 3) // it has taken the acknowledgement of one and two
	d.leave(a, four)
	_, err = h.Collect(t.Context(), "oci://registry.example/edge", d)
	require.NoError(t, err)
	require.Equal(t, []digest.Digest{idOf(t, three), idOf(t, four)}, d.acked(h, a))

	five := from(a.report(2, 1), 1) // with an empty state file: the agent keeps none of the others
	d.leave(a, five)
	_, err = h.Collect(t.Context(), "oci://registry.example/edge", d)
	require.NoError(t, err)
	require.Equal(t, []digest.Digest{idOf(t, five)}, d.acked(h, a))
}

func TestNothingOfARegistryIsBelieved(t *testing.T) {
	h, _ := newHub(t)
	d, a, stranger := newDepot(t), newAgent(t, "plant-7"), newAgent(t, "stranger")
	a.register(t, h)
	stranger.UID = a.UID
	d.leave(stranger, stranger.report(1, 9)) // in its place, signed by a key that is not registered
	other := newAgent(t, "plant-8")
	other.register(t, h)
	foreign := *other
	foreign.UID = a.UID
	r := other.report(1, 8)
	d.leave(&foreign, r) // of plant-8, in the place of plant-7
	lines := strings.Repeat("{}\n", bundle.MaxStoredReports+1)
	layer := bundle.NewBlob("application/x-ndjson", []byte(lines))
	blobs, err := bundle.StoredReports(nil)
	require.NoError(t, err)
	manifest := strings.Replace(string(blobs[2].Data), blobs[1].Descriptor.Digest.String(), layer.Descriptor.Digest.String(), 1)
	manifest = strings.Replace(manifest, `"size":0`, fmt.Sprintf(`"size":%d`, len(lines)), 1)
	d.put(a, "r1-7", []bundle.Blob{blobs[0], layer, bundle.NewBlob(ocispec.MediaTypeImageManifest, []byte(manifest))})
	acks, err := bundle.StoredAcks([][]byte{[]byte(`{}`)})
	require.NoError(t, err)
	d.put(a, "r1-6", acks)
	d.put(a, "latest", acks)
	good := from(a.report(1, 5), 5)
	d.leave(a, good)

	got, err := h.Collect(t.Context(), "oci://registry.example/edge", d)
	require.NoError(t, err)
	var codes []hubapi.Code
	for _, r := range got.Rejected {
		codes = append(codes, r.Reason)
	}
	require.Equal(t, []hubapi.Code{hubapi.CodeUnknownKey, hubapi.CodeUnknownKey, hubapi.CodeBadReport, hubapi.CodeBadReport}, codes)
	require.Contains(t, got.Rejected[2].Message, "more than 500 envelopes")
	require.Equal(t, 1, got.Accepted)
	require.Equal(t, []digest.Digest{idOf(t, good)}, d.acked(h, a))
}

func TestTwoThatCollectAtOnceLoseNothing(t *testing.T) {
	h, _ := newHub(t)
	d := newDepot(t)
	var agents []*agent
	for i := range 4 {
		a := newAgent(t, fmt.Sprint("plant-", i))
		a.register(t, h)
		agents = append(agents, a)
		for seq := range int64(3) {
			d.leave(a, from(a.report(1, seq+1), 1))
		}
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			_, err := h.Collect(t.Context(), "oci://registry.example/edge", d)
			require.NoError(t, err)
		})
	}
	both.Wait()
	for _, a := range agents {
		require.Len(t, d.acked(h, a), 3)
	}
}

func TestOneImportTakesABoundedNumberOfArtifacts(t *testing.T) {
	h, _ := newHub(t)
	d, a := newDepot(t), newAgent(t, "plant-7")
	a.register(t, h)
	repo := d.of(a)
	d.leave(a, from(a.report(1, 1), 1))
	m, err := repo.Resolve(t.Context(), "r1-1")
	require.NoError(t, err)
	got, err := h.Collect(t.Context(), "oci://registry.example/edge", crowded{d, m})
	require.NoError(t, err)
	require.Equal(t, []ImportedCluster{{UID: a.UID, Name: "plant-7", Accepted: 1, Duplicates: maxArtifacts - 1, Left: 3}}, got.Clusters)
}

// crowded has many tags more, all of which name one manifest, whatever they claim.
type crowded struct {
	depot
	manifest ocispec.Descriptor
}

func (c crowded) Repository(name string) (oci.Target, error) {
	repo, err := c.depot.Repository(name)
	return crowdedRepository{repo, c.manifest}, err
}

type crowdedRepository struct {
	oci.Target
	manifest ocispec.Descriptor
}

func (r crowdedRepository) Tags(context.Context) (tags []string, err error) {
	for i := range int64(maxArtifacts + 3) {
		tags = append(tags, bundle.ReportTag(1, i+10))
	}
	return tags, nil
}

func (r crowdedRepository) Resolve(ctx context.Context, ref string) (ocispec.Descriptor, error) {
	if strings.HasPrefix(ref, "r") {
		return r.manifest, nil
	}
	return r.Target.Resolve(ctx, ref)
}
