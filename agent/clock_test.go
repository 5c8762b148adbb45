package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/bundle"
)

func TestAStateFromBeforeTrustDocumentsKeepsItsFloor(t *testing.T) {
	s := newSite(t)
	later := s.now.Add(48 * time.Hour)
	s.agent(func(a *Agent) {
		require.NoError(t, a.state.update(func(tx *bbolt.Tx) error { return save(tx, bucketMeta, "floor", later) }))
	})
	d := s.draft(1, shop)
	d.Release.ExpiresAt = later
	s.publish(d)
	s.requireRefused(bundle.Expired, "")
}

func TestAClockThatIsBehindIsOverruledAndReported(t *testing.T) {
	s, _ := underTrust(t)
	s.now = time.Unix(0, 0)
	old := s.draft(1, shop)
	old.Release.IssuedAt, old.Release.ExpiresAt = epoch.AddDate(-1, 0, 0), epoch
	s.publish(old)
	s.requireRefused(bundle.Expired, "release expired at")

	good := s.draft(2, shop)
	good.Release.IssuedAt, good.Release.ExpiresAt = epoch.Add(time.Hour), epoch.AddDate(0, 1, 0)
	s.publish(good)
	s.requireTaken()
	st := s.status()
	require.Equal(t, "ClockBehind", st.Reason)
	require.Equal(t, good.Release.IssuedAt.Unix(), st.ClockBehindSeconds)
	require.Contains(t, st.Message, "2026-03-01T13:00:00Z")

	s.now = good.Release.IssuedAt.Add(-time.Second)
	require.Empty(t, s.status().Reason, "a publisher's clock may be a second ahead")
}

func TestAClockThatWasAheadHealsWhenItComesBack(t *testing.T) {
	s, _ := underTrust(t)
	s.publish(s.draft(1, shop))
	s.requireTaken()
	d := s.draft(2, map[string]string{"shop-main/config.yaml": "a: 2"})
	s.publish(d)
	now := s.now
	s.now = s.now.AddDate(10, 0, 0)
	s.requireRefused(bundle.Expired, "release expired at")
	require.True(t, s.status().Release.Running.Expired)
	require.NoError(t, os.Remove(filepath.Join(s.host, "shop-main/config.yaml")))
	require.Equal(t, bundle.Compliant, s.once().Status.Items[0].State, "what runs is kept as it is")
	requireFile(t, s.host, "shop-main/config.yaml", "a: 1")

	s.now = now
	s.agent(func(a *Agent) { // by itself, and not in ten years
		require.Equal(t, Done, a.makePass(t.Context(), scope{offer: s.repo, documents: s.trust}).Verdict)
	})
	requireFile(t, s.host, "shop-main/config.yaml", "a: 2")
	require.Zero(t, s.status().ClockBehindSeconds, "no clock was remembered")
}

func TestAnExpiredReleaseIsShownWithItsAgeAndKept(t *testing.T) {
	s := newSite(t)
	d := s.draft(1, shop)
	s.publish(d)
	s.requireTaken()
	s.now = d.Release.ExpiresAt.AddDate(0, 0, 3)
	require.NoError(t, os.RemoveAll(s.host))
	r := s.once()
	require.Equal(t, Idle, r.Verdict, r.Error)
	require.Equal(t, bundle.Compliant, r.Status.State)
	requireFile(t, s.host, "shop-main/config.yaml", "a: 1")
	require.True(t, r.Status.Release.Running.Expired)
	require.EqualValues(t, 93*24*3600, r.Status.Release.Running.AgeSeconds)
	s.agent(func(a *Agent) {
		require.NoError(t, a.state.view(func(tx *bbolt.Tx) error {
			report, err := a.compose(tx, s.now)
			require.True(t, report.Observed.Expired)
			require.Equal(t, d.Release.IssuedAt, report.Observed.IssuedAt)
			return err
		}))
	})
}
