package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

func TestABarredPassBringsWhatIsNewerAndChangesNothing(t *testing.T) {
	s := newSite(t)
	first := s.publish(s.draft(1, map[string]string{"a-x/f": "1", "b-x/f": "1"}))
	s.once()
	s.agent(func(a *Agent) {
		require.NoError(t, a.state.db.Update(func(tx *bbolt.Tx) error {
			return state.Save(tx, state.Meta, keyPaused, Pause{At: s.now, Reason: "harvest"})
		}))
	})
	next := s.publish(s.draft(2, map[string]string{"a-x/f": "2"}))
	require.NoError(t, os.Remove(filepath.Join(s.host, "a-x/f")))

	for range 2 {
		s.now = s.now.Add(time.Minute)
		r := s.once()
		require.Equal(t, bundle.Drifted, r.Status.State, "which is worse than to be suspended")
		require.Equal(t, ReasonPaused, r.Status.Reason)
		require.Equal(t, "since 2026-03-01T13:00:00Z: harvest", r.Status.Message)
		require.Equal(t, &FreezeStatus{State: bundle.Suspended, Reason: ReasonPaused, Message: "harvest", Since: epoch.Add(time.Hour), Holding: true}, r.Status.Freeze)
		require.Equal(t, first.Digest, r.Status.Release.Running.Digest)
		require.Equal(t, next.Digest, r.Status.Release.Desired.Digest)
		require.NoFileExists(t, filepath.Join(s.host, "a-x/f"), "drift stays")
		requireFile(t, s.host, "b-x/f", "1")
		require.Equal(t, 2, r.Status.Queue.Length, "which is reported once")
	}

	s.registry.blobs.Store(0)
	s.agent(func(a *Agent) {
		require.NoError(t, a.state.db.Update(func(tx *bbolt.Tx) error { return state.Drop(tx, state.Meta, keyPaused) }))
	})
	r := s.once()
	require.Equal(t, bundle.Compliant, r.Status.State)
	require.Empty(t, r.Status.Reason)
	requireFile(t, s.host, "a-x/f", "2")
	require.NoFileExists(t, filepath.Join(s.host, "b-x/f"))
	require.Zero(t, s.registry.blobs.Load(), "all was here")
}

func TestABarBeforeTheFirstReleaseIsTold(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	s.agent(func(a *Agent) {
		require.NoError(t, a.state.db.Update(func(tx *bbolt.Tx) error { return state.Save(tx, state.Meta, keyPaused, Pause{At: s.now}) }))
	})
	r := s.once()
	require.Equal(t, bundle.Pending, r.Status.State)
	require.Equal(t, ReasonPaused, r.Status.Reason)
	require.Nil(t, r.Status.Release.Running)
	require.NoDirExists(t, filepath.Join(s.host, "a-x"))
}
