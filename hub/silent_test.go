package hub

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/store"
)

func TestSilentClustersAreListedTheLongestSilentFirst(t *testing.T) {
	h, c := newHub(t)
	old, never, recent := newAgent(t, "old"), newAgent(t, "never"), newAgent(t, "recent")
	for _, a := range []*agent{old, never, recent} {
		a.register(t, h)
	}
	post(t, h, old.UID, old.seal(t, old.report(1, 1)))
	c.Add(2 * time.Hour)
	post(t, h, recent.UID, recent.seal(t, recent.report(1, 1)))
	silentFor := func(limit time.Duration) (names []string) {
		t.Helper()
		all, err := h.Silent(t.Context(), limit)
		require.NoError(t, err)
		for _, s := range all {
			names = append(names, s.Name)
		}
		return names
	}
	require.Equal(t, []string{"never"}, silentFor(0))
	require.Equal(t, []string{"never", "old"}, silentFor(2*time.Hour))
	require.Empty(t, silentFor(3*time.Hour))
	c.Add(24 * time.Hour)
	require.Equal(t, []string{"never", "old", "recent"}, silentFor(0))
	all, err := h.Silent(t.Context(), 0)
	require.NoError(t, err)
	require.EqualValues(t, 26*3600, all[0].SilentSeconds)
	require.Zero(t, all[0].LastSeen)
	require.EqualValues(t, 24*3600, all[2].SilentSeconds)
}

// What is imported piece by piece ends as if it had come at once, in every order and however often.
func TestAnImportInPiecesIsOneImport(t *testing.T) {
	h, _ := newHub(t)
	a, b, stranger := newAgent(t, "plant-7"), newAgent(t, "plant-8"), newAgent(t, "plant-9")
	a.register(t, h)
	b.register(t, h)
	envelopes := [][]byte{b.seal(t, b.report(1, 1)), a.seal(t, a.report(1, 2)), stranger.seal(t, stranger.report(1, 1)), a.seal(t, a.report(1, 1))}
	whole, _ := newHub(t)
	a.register(t, whole)
	b.register(t, whole)
	want, err := whole.Import(t.Context(), envelopes, store.ViaMedia)
	require.NoError(t, err)

	got := ImportResult{Rejected: []hubapi.Rejection{}, Clusters: []ImportedCluster{}}
	for i := range envelopes {
		one, err := h.Import(t.Context(), envelopes[i:i+1], store.ViaMedia)
		require.NoError(t, err)
		got.join(one, i)
	}
	slices.SortFunc(got.Clusters, func(a, b ImportedCluster) int { return strings.Compare(a.Name, b.Name) })
	require.Equal(t, want, got)

	slices.Reverse(envelopes)
	again, err := h.ImportEach(t.Context(), "reports.tar", func(take func([]byte) error) error {
		for _, e := range append(envelopes, envelopes...) {
			if err := take(e); err != nil {
				return err
			}
		}
		return nil
	}, store.ViaMedia)
	require.NoError(t, err)
	require.Equal(t, []int{0, 6, 2}, []int{again.Accepted, again.Duplicates, len(again.Rejected)})
	acks, err := h.Acks(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{3, 2}, []int{acks.Reports, acks.Clusters})
}
