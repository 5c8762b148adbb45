package agent

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/agent/relay"
	"github.com/wherry-dev/wherry/agent/serve"
	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/queue"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/store"
)

// island is a site of several agents, of which the first takes the reports of the others, and the hub that only a medium
// reaches.
type island struct {
	*testing.T
	hub    *hub.Hub
	box    *site
	others []*site
	client Client // of the box
	stop   func() // ends the box
	later  atomic.Int64
}

// now is the clock of the site. It is set forward before an agent begins anew, whose incarnation is the second in which it does.
func (i *island) now() time.Time { return time.Now().Add(time.Duration(i.later.Load())) }

// reinstall takes the disk of an agent.
func (i *island) reinstall(s *site) {
	i.Helper()
	i.later.Add(int64(time.Minute))
	require.NoError(i, os.RemoveAll(s.dir))
	require.NoError(i, os.RemoveAll(s.host))
}

func newIsland(t *testing.T) *island {
	i := &island{T: t, hub: openHub(t), box: newSite(t)}
	i.box.uid, i.box.opts.Now, i.box.opts.Interval, i.box.now = "first-box", i.now, time.Hour, time.Now()
	i.box.opts.Reports.AcceptOthers, i.box.opts.Hub.Key = true, i.hub.PublicKey()
	for _, other := range []struct{ uid, clusterType string }{{"drone-2", "drone"}, {"till-1", "till"}} {
		s := newSite(t)
		s.uid, s.stream.ClusterType, s.now, s.opts.Now = other.uid, other.clusterType, time.Now(), i.now
		s.repo = s.repository(s.stream)
		s.opts.Hub.Key = i.hub.PublicKey()
		i.others = append(i.others, s)
	}
	t.Cleanup(func() { i.stop() })
	return i
}

// start has the box run, and the others know its CA.
func (i *island) start() {
	i.Helper()
	require.NoError(i, os.MkdirAll(i.box.dir, 0o700))
	e, err := serve.Open(serve.Options{Address: "127.0.0.1:0", URL: "https://first-box:5001", StateDir: i.box.dir})
	require.NoError(i, err)
	i.box.opts.Serve = e
	state, err := OpenState(i.box.dir, i.now)
	require.NoError(i, err)
	ctx, cancel := context.WithCancel(i.Context())
	ended := make(chan error, 1)
	a := i.box.agentOn(state)
	go func() { ended <- a.Run(ctx) }()
	i.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(i, <-ended)
		require.NoError(i, state.Close())
	})
	i.client = NewClient(i.box.dir)
	var st Status
	require.Eventually(i, func() bool {
		st, err = i.client.Status(i.Context())
		return err == nil && st.NextTry != nil && st.State == bundle.Compliant
	}, time.Minute, time.Millisecond)

	ca := filepath.Join(i.TempDir(), "first-box-ca.pem")
	require.NoError(i, os.WriteFile(ca, e.Served().CA, 0o600))
	client, err := oci.NewHTTPClient(oci.Network{HostCAFiles: map[string]string{st.Endpoint.Address: ca}})
	require.NoError(i, err)
	i.Cleanup(client.CloseIdleConnections)
	for _, s := range i.others {
		s.opts.Hub.URL, s.opts.HTTPClient = "https://"+st.Endpoint.Address, client
	}
}

// carry brings the reports of the box to the hub, and returns the answer. It says what the hub stored.
func (i *island) carry() (hub.ImportResult, [][]byte) {
	i.Helper()
	var file bytes.Buffer
	require.NoError(i, i.client.Reports(i.Context(), &file))
	path := filepath.Join(i.TempDir(), "reports.tar")
	require.NoError(i, os.WriteFile(path, file.Bytes(), 0o600))
	result, err := i.hub.ImportEach(i.Context(), path, func(take func([]byte) error) error { return airgap.EachReport(path, take) }, store.ViaMedia)
	require.NoError(i, err)
	require.Empty(i, result.Rejected)
	acks, err := i.hub.Acks(i.Context())
	require.NoError(i, err)
	require.NoError(i, i.hub.MarkExported(i.Context(), acks))
	return result, acks.Envelopes
}

func (i *island) queues() (lengths []int) {
	i.Helper()
	st, err := i.client.Status(i.Context())
	require.NoError(i, err)
	lengths = append(lengths, st.Queue.Length)
	for _, s := range i.others {
		s.agent(func(a *Agent) { lengths = append(lengths, queueOf(i, a.state).Length) })
	}
	return lengths
}

func (i *island) held() relay.Status {
	i.Helper()
	st, err := i.client.Status(i.Context())
	require.NoError(i, err)
	require.NotNil(i, st.Relay)
	held := *st.Relay
	held.Bytes, held.AckBytes = 0, 0
	return held
}

// register has the hub know the agent of s by its present key.
func (i *island) register(s *site, st Status) {
	i.Helper()
	keys, err := bundle.ParsePublicKeys([]byte(st.ReportKey))
	require.NoError(i, err)
	_, err = i.hub.ReplaceCluster(i.Context(), store.Cluster{
		Identity: store.Identity{UID: s.uid, Name: s.uid, Platform: "default", Type: s.stream.ClusterType, Environment: "dev"},
		Key:      keys[0].(ed25519.PublicKey),
	})
	require.NoError(i, err)
}

// requireAt compares the releases that run with what the hub knows.
func (i *island) requireAt(want map[string]int64) {
	i.Helper()
	got := map[string]int64{}
	for _, c := range shownClusters(i, i.hub) {
		if c.Observed != nil {
			got[c.Name] = c.Observed.Sequence
		}
	}
	require.Equal(i, want, got)
}

// offer publishes release n.
func (s *site) offer(n int64) {
	s.t.Helper()
	s.publish(s.draft(n, map[string]string{"a-x/f": fmt.Sprint(n)}))
}

// Three clusters of two types are one file each way, and a box that loses its disk in the middle loses nothing that the others
// have.
func TestOneFileEachWayForASiteOfManyClusters(t *testing.T) {
	i := newIsland(t)
	i.box.offer(1)
	i.start()
	st, err := i.client.Status(t.Context())
	require.NoError(t, err)
	i.register(i.box, st)
	for _, s := range i.others {
		s.offer(1)
		r := s.once()
		require.Equal(t, bundle.Compliant, r.Status.State, r.Error)
		i.register(s, r.Status)
		require.NotContains(t, s.log.String(), "stay in the queue")
	}
	require.Equal(t, relay.Status{Clusters: 2, Reports: 2}, i.held())
	require.Equal(t, []int{1, 1, 1}, i.queues(), "the box's word deletes nothing")

	result, lost := i.carry() // the answer is lost on the way
	require.Equal(t, 3, result.Accepted)
	require.Len(t, lost, 3)
	i.requireAt(map[string]int64{"first-box": 1, "drone-2": 1, "till-1": 1})
	result, acks := i.carry()
	require.Equal(t, []int{0, 3}, []int{result.Accepted, result.Duplicates})
	for n := range 2 { // twice, and the lost one appears
		done, err := i.client.Acknowledge(t.Context(), [][][]byte{acks, lost}[n])
		require.NoError(t, err)
		require.Equal(t, outbox.Acknowledged{Deleted: 1 - n, DeletedOfOthers: 2 - 2*n, Waiting: 2 + 2*n}, done)
	}
	require.Equal(t, []int{0, 1, 1}, i.queues())
	for _, s := range i.others {
		s.once()
	}
	require.Equal(t, []int{0, 0, 0}, i.queues())

	// The next reports are handed over, and the box loses its disk.
	for _, s := range i.others {
		s.offer(2)
		require.Equal(t, 1, s.once().Status.Queue.Length)
	}
	require.Equal(t, relay.Status{Clusters: 2, Reports: 2, Acks: 4}, i.held())
	i.stop()
	i.reinstall(i.box)
	i.start()
	require.Equal(t, relay.Status{}, i.held())
	st, err = i.client.Status(t.Context())
	require.NoError(t, err)
	i.register(i.box, st)
	for _, s := range i.others {
		s.once()
	}
	result, acks = i.carry()
	require.Equal(t, []int{3, 0}, []int{result.Accepted, result.Duplicates})
	i.requireAt(map[string]int64{"first-box": 1, "drone-2": 2, "till-1": 2})
	_, err = i.client.Acknowledge(t.Context(), acks)
	require.NoError(t, err)
	for _, s := range i.others {
		s.once()
	}
	require.Equal(t, []int{0, 0, 0}, i.queues())
	require.Equal(t, relay.Status{Acks: 2}, i.held())

	// A cluster that is installed anew has another key and other reports: what was acknowledged before says nothing of them.
	till := i.others[1]
	i.reinstall(till)
	r := till.once()
	require.Equal(t, 1, r.Status.Queue.Length)
	i.register(till, r.Status)
	_, err = i.client.Acknowledge(t.Context(), acks)
	require.NoError(t, err)
	till.once()
	require.Equal(t, []int{0, 0, 1}, i.queues())
	result, acks = i.carry()
	require.Equal(t, 1, result.Accepted)
	_, err = i.client.Acknowledge(t.Context(), acks)
	require.NoError(t, err)
	till.once()
	require.Equal(t, []int{0, 0, 0}, i.queues())
	require.Zero(t, i.held().Reports)
}

func TestAcknowledgementsForOthersAreOfUseToARelayAlone(t *testing.T) {
	for _, relays := range []bool{false, true} {
		s, h := twoReports(t)
		s.opts.Reports.AcceptOthers = relays
		s.agent(func(a *Agent) {
			other := h.ack(h.key, "plant-8", waiting(t, a))
			got, err := a.Acknowledge([][]byte{other})
			if !relays {
				require.ErrorIs(t, err, queue.ErrForeignAck)
				return
			}
			require.NoError(t, err)
			require.Equal(t, outbox.Acknowledged{Left: 2, Waiting: 1}, got)
			_, err = a.Acknowledge([][]byte{other, h.ack(ed25519.NewKeyFromSeed(make([]byte, 32)), "plant-9", nil)})
			require.ErrorIs(t, err, bundle.ErrUntrusted, "one forgery spoils all")
		})
	}
	s, _ := twoReports(t)
	s.opts.Hub.Key, s.opts.Reports.AcceptOthers, s.opts.Log = nil, true, slog.New(slog.DiscardHandler)
	s.agent(func(a *Agent) {
		_, err := a.Acknowledge(nil)
		require.ErrorIs(t, err, outbox.ErrNoHubKey)
	})
}
