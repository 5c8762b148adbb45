package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"
	_ "time/tzdata" // so that no machine's own database is needed

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/agent/window"
	"github.com/wherry-dev/wherry/bundle"
)

func TestABarredPassBringsWhatIsNewerAndChangesNothing(t *testing.T) {
	s := newSite(t)
	first := s.publish(s.draft(1, map[string]string{"a-x/f": "1", "b-x/f": "1"}))
	s.once()
	s.agent(func(a *Agent) {
		require.NoError(t, a.state.db.Update(func(tx *bbolt.Tx) error {
			return state.Save(tx, state.Meta, freeze.KeyPause, freeze.Pause{At: s.now, Reason: "harvest"})
		}))
	})
	next := s.publish(s.draft(2, map[string]string{"a-x/f": "2"}))
	require.NoError(t, os.Remove(filepath.Join(s.host, "a-x/f")))

	for range 2 {
		s.now = s.now.Add(time.Minute)
		r := s.once()
		require.Equal(t, bundle.Drifted, r.Status.State, "which is worse than to be suspended")
		require.Equal(t, freeze.ReasonPaused, r.Status.Reason)
		require.Equal(t, "since 2026-03-01T13:00:00Z: harvest", r.Status.Message)
		require.Equal(t, &FreezeStatus{State: bundle.Suspended, Reason: freeze.ReasonPaused, Message: "harvest", Since: epoch.Add(time.Hour), Holding: true}, r.Status.Freeze)
		require.Equal(t, first.Digest, r.Status.Release.Running.Digest)
		require.Equal(t, next.Digest, r.Status.Release.Desired.Digest)
		require.NoFileExists(t, filepath.Join(s.host, "a-x/f"), "drift stays")
		requireFile(t, s.host, "b-x/f", "1")
		require.Equal(t, 2, r.Status.Queue.Length, "which is reported once")
	}

	s.registry.blobs.Store(0)
	s.agent(func(a *Agent) {
		require.NoError(t, a.state.db.Update(func(tx *bbolt.Tx) error { return state.Drop(tx, state.Meta, freeze.KeyPause) }))
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
		require.NoError(t, a.state.db.Update(func(tx *bbolt.Tx) error { return state.Save(tx, state.Meta, freeze.KeyPause, freeze.Pause{At: s.now}) }))
	})
	r := s.once()
	require.Equal(t, bundle.Pending, r.Status.State)
	require.Equal(t, freeze.ReasonPaused, r.Status.Reason)
	require.Nil(t, r.Status.Release.Running)
	require.NoDirExists(t, filepath.Join(s.host, "a-x"))
}

func TestNothingIsChangedOutsideMaintenance(t *testing.T) {
	s := newSite(t) // a Sunday, 13:00 UTC
	w, err := window.ParseMaintenance("0 2 * * SAT 4h Europe/Berlin")
	require.NoError(t, err)
	every, err := window.ParseMaintenance("0 12 1 3 * 2h")
	require.NoError(t, err)
	s.opts.Maintenance = []window.Maintenance{w, every}
	s.publish(s.draft(1, shop))
	s.requireTaken()

	s.now = time.Date(2026, 3, 3, 12, 0, 0, 0, time.UTC)
	r := s.once()
	require.Equal(t, bundle.Compliant, r.Status.State, "nothing waits")
	require.Nil(t, r.Status.Freeze)
	require.Equal(t, 2, r.Status.Queue.Length, "the heartbeat")
	require.NotContains(t, s.log.String(), "must not be changed")

	s.publish(s.draft(2, map[string]string{"shop-main/config.yaml": "a: 2"}))
	opens := time.Date(2026, 3, 7, 1, 0, 0, 0, time.UTC)
	s.agent(func(a *Agent) {
		plan := plan{agent: a}
		scope := plan.scope(s.now)
		plan.passed(scope, a.makePass(t.Context(), scope), s.now)
		st, err := a.Status()
		require.NoError(t, err)
		require.Equal(t, &FreezeStatus{
			State: bundle.Pending, Reason: freeze.ReasonOutsideMaintenance, Message: "maintenance is at 0 2 * * SAT 4h Europe/Berlin, and at 0 12 1 3 * 2h",
			Since: s.now, Until: &opens, Holding: true,
		}, st.Freeze)
		require.Equal(t, bundle.Pending, st.State)
		requireFile(t, s.host, "shop-main/config.yaml", "a: 1")

		s.now = opens.Add(-time.Second)
		plan.passed(scope, a.makePass(t.Context(), scope), s.now)
		require.WithinRange(t, plan.look, opens, opens.Add(freezeRush))
		s.now = opens
		a.makePass(t.Context(), plan.scope(s.now))
	})
	requireFile(t, s.host, "shop-main/config.yaml", "a: 2")
	require.Equal(t, bundle.Compliant, s.status().State)
}
