package hub

import (
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/storetest"
)

func TestImportOfSeveralClusters(t *testing.T) {
	h, c := newHub(t)
	a, b, stranger := newAgent(t, "plant-7"), newAgent(t, "plant-8"), newAgent(t, "plant-9")
	a.register(t, h)
	b.register(t, h)
	c.Add(24 * time.Hour) // on the road
	r1, r2 := a.report(1, 1), a.report(1, 2)

	result, err := h.Import(t.Context(), [][]byte{
		b.seal(t, b.report(1, 1)), a.seal(t, r2), stranger.seal(t, stranger.report(1, 1)), a.seal(t, r1), a.seal(t, r1), []byte("hello"),
	}, store.ViaMedia)

	require.NoError(t, err)
	require.Equal(t, 3, result.Accepted)
	require.Equal(t, 1, result.Duplicates)
	require.True(t, result.Untrusted())
	require.Equal(t, []ImportedCluster{{UID: a.UID, Name: "plant-7", Accepted: 2, Duplicates: 1}, {UID: b.UID, Name: "plant-8", Accepted: 1}}, result.Clusters)
	require.Len(t, result.Rejected, 2)
	require.Equal(t, []any{2, hubapi.CodeUnknownCluster, stranger.UID}, []any{result.Rejected[0].Index, result.Rejected[0].Reason, result.Rejected[0].Cluster})
	require.Equal(t, []any{5, hubapi.CodeBadReport}, []any{result.Rejected[1].Index, result.Rejected[1].Reason})
	require.Len(t, clustersOf(t, h, fleet.Query{State: []bundle.State{store.Stale}}), 2, "an import proves life only as of when its reports were written")
}

func TestAcknowledgementsByMedia(t *testing.T) {
	h, _ := newHub(t)
	a, b := newAgent(t, "plant-7"), newAgent(t, "plant-8")
	a.register(t, h)
	b.register(t, h)
	r1, r2, rb := a.report(1, 1), a.report(1, 2), b.report(1, 1)
	_, err := h.Import(t.Context(), [][]byte{a.seal(t, r2), a.seal(t, r1), b.seal(t, rb)}, store.ViaMedia)
	require.NoError(t, err)
	post(t, h, a.UID, a.seal(t, a.report(1, 3)))

	acks, err := h.Acks(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, acks.Reports, "what came by HTTP was acknowledged there")
	require.Len(t, acks.Envelopes, 2)
	require.Equal(t, bundle.Ack{Schema: 1, Cluster: a.UID, IssuedAt: storetest.Epoch, Reports: []digest.Digest{idOf(t, r1), idOf(t, r2)}}, acked(t, h, acks.Envelopes[0]))
	require.Equal(t, bundle.Ack{Schema: 1, Cluster: b.UID, IssuedAt: storetest.Epoch, Reports: []digest.Digest{idOf(t, rb)}}, acked(t, h, acks.Envelopes[1]))

	only, err := h.Acks(t.Context(), b.UID)
	require.NoError(t, err)
	require.NoError(t, h.MarkExported(t.Context(), only))
	acks, err = h.Acks(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, acks.Reports)

	_, err = h.Import(t.Context(), [][]byte{b.seal(t, rb)}, store.ViaMedia)
	require.NoError(t, err)
	acks, err = h.Acks(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, acks.Reports, "the medium with the acknowledgement was lost: it is owed again")
}
