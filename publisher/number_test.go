package publisher

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/catalog"
	"github.com/wherry-dev/wherry/publisher/releases"
)

func TestReleasesAreNumbered(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		for i, text := range []string{"one", "two", "three"} {
			p := w.later(text)
			require.EqualValues(t, i+1, row(t, p, "drone").Number)
			require.EqualValues(t, i+1, w.verified("drone", "latest").Release.Number)
		}
		_, p := w.mustPublish()
		require.Equal(t, releases.OutcomeUnchanged, row(t, p, "drone").Result)
		require.EqualValues(t, 3, row(t, p, "drone").Number)

		w.now = w.now.Add(80 * 24 * time.Hour)
		_, p = w.mustPublish()
		require.NotEmpty(t, row(t, p, "drone").Renewed)
		require.EqualValues(t, 4, row(t, p, "drone").Number, "a renewed release is another one")

		list, err := catalog.ListReleases(t.Context(), w.reference("bundles/dev/drone"), published.MaxListed, w.now, w.opts.OCI)
		require.NoError(t, err)
		var numbers []int64
		for _, l := range list {
			numbers = append(numbers, l.Number)
			require.Equal(t, l.Number == 4, len(l.Tags) > 0, "agents follow the newest")
			require.Equal(t, l.Number < 4, l.ExpiresSoon)
		}
		require.Equal(t, []int64{4, 3, 2, 1}, numbers)
		i, err := catalog.Inspect(t.Context(), w.reference("bundles/dev/drone:3"), w.opts.OCI)
		require.NoError(t, err)
		require.Equal(t, list[1].Digest, i.Digest)
	})
}

// Two releases of one number, as where a registry's history is lost, are two releases all the same.
func TestNumbersBeginAgainWhereHistoryIsLost(t *testing.T) {
	t.Parallel()
	w, _ := restored(t)
	p := w.later("four")
	require.EqualValues(t, 2, row(t, p, "drone").Number, "the registry knows of one release before it")
}

func TestANumberDecidesNothing(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		q := newQuorum(w, 2)
		p, err := q.publish(q.anna)
		require.NoError(t, err)
		require.EqualValues(t, 1, row(t, p, "drone").Number)
		q.now = q.now.Add(time.Hour)
		q.result.ClusterTypes[0].Assignments[0] = assignment("drone", "web-live", "v2")
		p, err = q.publish(q.anna)
		require.NoError(t, err)
		require.EqualValues(t, 2, row(t, p, "drone").Number, "the one that waits has its number, and may be signed yet")
		e := q.sign(q.bob)
		require.True(t, e.Complete())
		require.EqualValues(t, 2, q.released("drone").Release.Number)

		q.now = q.now.Add(time.Hour)
		q.result.ClusterTypes[0].Assignments[0] = assignment("drone", "web-live", "v3")
		_, err = q.publish(q.anna)
		require.NoError(t, err)
		e, err = q.open()
		require.NoError(t, err)
		drone := e.ClusterTypes[0]
		require.EqualValues(t, 3, drone.Number)
		require.EqualValues(t, 2, drone.PreviousNumber)
		require.Equal(t, q.released("drone").Descriptor.Digest, drone.PreviousDigest)
		require.Equal(t, bundle.ReleaseName(2, drone.PreviousDigest), q.released("drone").Name())
	})
}
