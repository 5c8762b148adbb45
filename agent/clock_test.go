package agent

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

func TestAStateFromBeforeTrustDocumentsKeepsItsFloor(t *testing.T) {
	s := newSite(t)
	later := s.now.Add(48 * time.Hour)
	s.agent(func(a *Agent) {
		require.NoError(t, a.state.db.Update(func(tx *bbolt.Tx) error { return state.Save(tx, state.Meta, "floor", later) }))
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
	s.requireRefused(bundle.Expired, "and here it is "+s.now.Format(time.DateOnly))
	require.True(t, s.status().Release.Running.Expired)
	require.NoError(t, os.Remove(filepath.Join(s.host, "shop-main/config.yaml")))
	require.Equal(t, bundle.Compliant, s.once().Status.Items[0].State, "what runs is kept as it is")
	requireFile(t, s.host, "shop-main/config.yaml", "a: 1")

	s.now = now
	s.agent(func(a *Agent) { // by itself, and not in ten years
		require.Equal(t, Done, a.makePass(t.Context(), scope{from: s.repo, documents: s.trust}).Verdict)
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
		require.NoError(t, a.state.db.View(func(tx *bbolt.Tx) error {
			report, err := a.compose(tx, s.now)
			require.True(t, report.Observed.Expired)
			require.Equal(t, d.Release.IssuedAt, report.Observed.IssuedAt)
			return err
		}))
	})
}

// The clock begins in 1970, jumps ahead by ten years, and steps back while reports wait and a release is refused.
// Reports keep the order in which they were made, the hub shows the last one, and nothing waits for a time that has
// been taken back.
func TestReportsKeepTheirOrderWhateverTheClockSays(t *testing.T) {
	s, h := newSite(t), openHub(t)
	server := httptest.NewServer(h.Handler())
	defer server.Close()
	s.opts.Hub.Key = h.PublicKey()
	right := s.now
	var last Status
	for n, now := range []time.Time{time.Unix(0, 0), right, right.AddDate(10, 0, 0), right.Add(-time.Hour), time.Unix(5, 0), right} {
		s.now = right // the publisher's clock is right
		d := s.draft(int64(n+1), map[string]string{"a-x/f": fmt.Sprint(n)})
		s.publish(d)
		s.now = now
		s.agent(func(a *Agent) { // by itself: nobody forces it to judge again
			out := a.makePass(t.Context(), scope{from: s.repo, documents: s.trust, all: true})
			if now.After(d.Release.ExpiresAt) {
				require.Equal(t, Refused, out.Verdict)
			} else {
				require.Equal(t, Done, out.Verdict, "at %s: %v", now, out.Err)
			}
			var err error
			last, err = a.Status()
			require.NoError(t, err)
			require.Equal(t, n+1, last.Queue.Length, "at %s there is something to tell", now)
		})
	}
	register(t, h, last)

	s.opts.Hub.URL = server.URL
	s.once()
	s.agent(func(a *Agent) {
		st, err := a.Status()
		require.NoError(t, err)
		require.Zero(t, st.Queue.Length, "all of them are taken")
	})
	requireSeen(t, h, 6)
}
