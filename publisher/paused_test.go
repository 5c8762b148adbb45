package publisher

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/scheduler"
)

func TestAPausedPublicationRenewsWhatIsThereAndNothingElse(t *testing.T) {
	t.Parallel()
	for _, rings := range [][]string{nil, ringsOfTest} {
		w := newWorld(t, "inmemory")
		w.result.Rings = rings
		w.to("")
		first, record := w.verified("drone", "latest"), w.environmentRecord()
		w.opts.Paused = true
		outcomes, p := w.to("")
		require.Equal(t, everywhere(releases.OutcomeUnchanged), outcomes)
		require.Empty(t, p.Refused)

		w.says("v2")
		w.result.BaseCommit = "decade"
		w.result.ClusterTypes = append(w.result.ClusterTypes, scheduler.ClusterTypeResult{Name: "tiny", Assignments: []scheduler.Assignment{assignment("tiny", "web-live", "v1")}})
		outcomes, p = w.to("")
		require.Equal(t, []string{"drone", "tiny"}, p.Refused)
		require.Equal(t, releases.OutcomeUnchanged, outcomes["drone"])
		require.Equal(t, releases.OutcomeSkipped, outcomes["tiny"])
		require.Equal(t, releases.OutcomeUnchanged, outcomes["record"])
		require.Equal(t, first.Descriptor, w.verified("drone", "latest").Descriptor)

		w.now = w.now.Add(80 * 24 * time.Hour)
		_, p = w.to("")
		require.Equal(t, []string{"drone", "tiny"}, p.Refused)
		renewed := w.verified("drone", "latest")
		require.Equal(t, first.Release.Content, renewed.Release.Content)
		require.Equal(t, first.Release.BaseCommit, renewed.Release.BaseCommit)
		require.True(t, renewed.Release.ExpiresAt.After(first.Release.ExpiresAt))
		require.Empty(t, renewed.Release.Rings)
		next := w.environmentRecord()
		require.Equal(t, record.BaseCommit, next.BaseCommit, "the record is not of a commit that is not there")
		require.Equal(t, renewed.Descriptor.Digest, next.ClusterTypes["drone"])
		require.Equal(t, record.RingOrder, next.RingOrder)
		require.NoError(t, w.complete())

		w.opts.Paused = false
		_, p = w.to("")
		require.Empty(t, p.Refused)
		require.Equal(t, "decade", w.environmentRecord().BaseCommit)
	}
}

// What waits for signatures during a pause, such as an undo, is left alone.
func TestAPausedPublicationLeavesWhatWaitsAlone(t *testing.T) {
	t.Parallel()
	q := newQuorum(newWorld(t, "inmemory"), 2)
	q.outcomes(q.anna, q.bob)
	q.says("v2")
	q.now = q.now.Add(time.Minute)
	q.outcomes(q.anna)
	q.now = q.now.Add(80 * 24 * time.Hour)
	q.opts.Paused = true
	q.says("v3")
	before := q.state()
	p, err := q.publish(q.anna)
	require.NoError(t, err)
	require.Equal(t, []string{"drone"}, p.Refused)
	require.Len(t, p.Warnings, 1)
	require.Equal(t, before, q.state())
}
