package agent

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/admission"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// openHub returns a hub that does not know the site's agent yet.
func openHub(t *testing.T) *hub.Hub {
	h, err := hub.Open(t.TempDir(), hub.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	return h
}

// register registers the site's agent by the key that its status shows.
func register(t *testing.T, h *hub.Hub, st Status) {
	keys, err := bundle.ParsePublicKeys([]byte(st.ReportKey))
	require.NoError(t, err)
	_, err = h.AddCluster(context.Background(), store.Cluster{
		Identity: store.Identity{UID: st.Cluster.UID, Name: st.Cluster.Name, Platform: st.Platform, Type: st.Cluster.Type, Environment: st.Cluster.Environment},
		Key:      keys[0].(ed25519.PublicKey),
	})
	require.NoError(t, err)
}

func requireSeen(t *testing.T, h *hub.Hub, sequence int64) {
	t.Helper()
	shown := shownClusters(t, h)
	require.Len(t, shown, 1)
	require.Equal(t, bundle.Compliant, shown[0].State)
	require.Equal(t, sequence, shown[0].Observed.Sequence)
}

// shownClusters returns what a hub shows of its clusters.
func shownClusters(t testing.TB, h *hub.Hub) []fleet.Cluster {
	t.Helper()
	answers, err := h.Answers(context.Background(), store.AccessScope{})
	require.NoError(t, err)
	list, err := answers.Clusters(context.Background(), fleet.Query{})
	require.NoError(t, err)
	return list.Clusters
}

func TestAHubTakesReportsOnceItKnowsTheAgent(t *testing.T) {
	s, h := newSite(t), openHub(t)
	server := httptest.NewServer(h.Handler())
	defer server.Close()
	s.opts.Hub.URL, s.opts.Hub.Key = server.URL, h.PublicKey()
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	s.once()
	s.publish(s.draft(2, map[string]string{"a-x/f": "2"}))
	r := s.once()
	require.Equal(t, 2, r.Status.Queue.Length)
	require.Contains(t, s.log.String(), "403")

	register(t, h, r.Status)
	s.once()

	s.agent(func(a *Agent) {
		st, err := a.Status()
		require.NoError(t, err)
		require.Zero(t, st.Queue.Length)
	})
	requireSeen(t, h, 2)
}

func TestAnAgentComesBackWhenTheHubSaysAndLosesNothing(t *testing.T) {
	s := newSite(t)
	h, err := hub.Open(t.TempDir(), hub.Options{Now: func() time.Time { return s.now }, Admission: admission.Options{ReportsPerMinute: 1}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	server := httptest.NewServer(h.Handler())
	defer server.Close()
	s.opts.Hub.Key = h.PublicKey()
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	register(t, h, s.once().Status)
	s.publish(s.draft(2, map[string]string{"a-x/f": "2"}))
	require.Equal(t, 2, s.once().Status.Queue.Length)
	s.opts.Hub.URL = server.URL
	s.agent(func(a *Agent) { s.send(a.hubSink()) })

	s.publish(s.draft(3, map[string]string{"a-x/f": "3"}))
	s.opts.Hub.URL = ""
	s.once()
	s.opts.Hub.URL = server.URL
	s.agent(func(a *Agent) {
		ctx, cancel := context.WithCancel(t.Context())
		var waits []time.Duration
		sender := a.hubSink()
		sender.Sleep = func(_ context.Context, d time.Duration) error {
			if d == 0 {
				return nil
			}
			if waits = append(waits, d); len(waits) == 1 {
				require.Equal(t, 1, queueOf(t, a.state).Length, "what was not stored is kept")
				st, err := a.Status()
				require.NoError(t, err)
				require.Contains(t, st.Queue.Unsent[server.URL], "1 reports a minute")
				s.now = s.now.Add(d)
				return nil
			}
			cancel()
			return ctx.Err()
		}
		sender.Run(ctx)
		require.GreaterOrEqual(t, waits[0], time.Minute+time.Second, "two reports at one a minute, and a moment")
		require.Less(t, waits[0], 2*(time.Minute+time.Second))
		require.Zero(t, queueOf(t, a.state).Length)
	})
	requireSeen(t, h, 3)
}

func TestReportsAndAcknowledgementsTravelByFile(t *testing.T) {
	s, h := newSite(t), openHub(t)
	s.now, s.opts.Now = time.Now(), nil // what came by media is as old as its clock says
	s.opts.Hub.Key = h.PublicKey()
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	register(t, h, s.once().Status)
	ctx := context.Background()
	var out bytes.Buffer
	s.agent(func(a *Agent) {
		envelopes, err := a.state.outbox.Reports()
		require.NoError(t, err)
		require.NoError(t, airgap.WriteReports(&out, envelopes))
	})
	path := filepath.Join(t.TempDir(), "reports.tar")
	require.NoError(t, os.WriteFile(path, out.Bytes(), 0o600))
	envelopes, err := airgap.ReadReports(path)
	require.NoError(t, err)
	_, err = h.Import(ctx, envelopes, store.ViaMedia)
	require.NoError(t, err)
	requireSeen(t, h, 1)
	acks, err := h.Acks(ctx)
	require.NoError(t, err)

	s.agent(func(a *Agent) {
		got, err := a.Acknowledge(acks.Envelopes)
		require.NoError(t, err)
		require.Equal(t, outbox.Acknowledged{Deleted: 1}, got)
	})
}
