package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/e2e/load/hubload"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/sqlite"
)

// hubKills is how often hubs are killed; "make soak" has 200.
var hubKills = flag.Int("hub-kills", 8, "how often hubs, and their databases, are killed")

// A hub is killed while agents send, again and again. Each report that it has acknowledged is stored once, at each of its
// ends, and its agents go on.
func TestAKilledHubHasStoredWhatItAcknowledged(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "hub")
	h, err := hub.Open(dir, hub.Options{})
	require.NoError(t, err)
	require.NoError(t, h.Close())
	open := func() (store.Store, error) {
		return sqlite.Open(filepath.Join(dir, hub.DatabaseFile), sqlite.Options{})
	}
	k := newKilling(t, open)
	k.start = func(int) (*hubload.Hub, error) { return hubload.Serve("wherry", dir, hubload.Lifted...) }
	k.run(1, *hubKills, func(*rand.Rand) { k.kill(0) })
	k.verify("--data", dir)
}

// killing is hubs that are killed under load, and the agents that send to them.
type killing struct {
	testing.TB
	fleet hubload.Fleet
	open  func() (store.Store, error)
	start func(int) (*hubload.Hub, error)
	// acked counts the acknowledged reports of all agents.
	acked  atomic.Int64
	agents []*killedAgent

	mu   sync.Mutex
	hubs []*hubload.Hub
}

// killedAgents is the number of agents that send at once.
const killedAgents = 8

// killedAgent sends the reports of one cluster one after another, and knows what was acknowledged: a report is from the moment at
// which its agent has verified the signature.
type killedAgent struct {
	*hubload.Cluster
	acked   atomic.Int64 // all reports up to this number
	checked int64
}

func newKilling(t testing.TB, open func() (store.Store, error)) *killing {
	k := &killing{TB: t, fleet: benchFleet("kill", 5, 100), open: open}
	s, err := open()
	require.NoError(t, err)
	require.NoError(t, k.fleet.Register(t.Context(), s, 0, killedAgents))
	require.NoError(t, s.Close())
	for i := range killedAgents {
		k.agents = append(k.agents, &killedAgent{Cluster: k.fleet.Cluster(i)})
	}
	return k
}

// run starts hubs, has the agents send, and calls strike so often, each time after some reports have been acknowledged.
func (k *killing) run(hubs, times int, strike func(*rand.Rand)) {
	for i := range hubs {
		h, err := k.start(i)
		require.NoError(k, err)
		k.hubs = append(k.hubs, h)
	}
	k.Cleanup(func() {
		for _, h := range k.hubs {
			h.Kill()
		}
	})
	ctx, stop := context.WithTimeout(k.Context(), time.Minute+time.Duration(times)*10*time.Second)
	defer stop()
	enough := make(chan struct{})
	var sending sync.WaitGroup
	for i, a := range k.agents {
		sending.Go(func() {
			if err := k.send(ctx, a, i, enough); err != nil {
				k.Errorf("%s: %v", a.Name, err)
			}
		})
	}
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	for n := 0; n < times && !k.Failed(); n++ {
		if !k.wait(ctx, k.acked.Load()+int64(1+random.IntN(40))) {
			k.Errorf("no reports are acknowledged after %d kills: %s", n, k.hub(0).Log())
			break
		}
		strike(random)
	}
	k.wait(ctx, k.acked.Load()+killedAgents)
	close(enough)
	sending.Wait()
	if k.Failed() {
		return
	}
	for _, h := range k.hubs {
		require.NoError(k, h.Stop(), h.Log())
	}
	k.check(true)
	k.Logf("%d kills, %d reports acknowledged", times, k.acked.Load())
}

// wait returns once so many reports are acknowledged in all, and false if they never are.
func (k *killing) wait(ctx context.Context, reports int64) bool {
	for k.acked.Load() < reports {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Millisecond): // an acknowledgement is not worth a channel for all agents
		}
	}
	return true
}

// kill ends a hub as a crash does, looks into the database, and begins the hub again.
func (k *killing) kill(i int) {
	k.hub(i).Kill()
	k.check(false)
	h, err := k.start(i)
	if err != nil {
		k.Errorf("start again: %v", err)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hubs[i] = h
}

func (k *killing) hub(i int) *hubload.Hub {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.hubs[i%len(k.hubs)]
}

// send sends the agent's reports, and each request until it is acknowledged, to one hub after another.
func (k *killing) send(ctx context.Context, a *killedAgent, first int, enough <-chan struct{}) error {
	random := rand.New(rand.NewPCG(uint64(first), 1))
	for at := first; ; {
		select {
		case <-enough:
			return nil
		default:
		}
		var signed []hubload.Signed
		last := a.acked.Load() + int64(1+random.IntN(7))
		for seq := a.acked.Load() + 1; seq <= last; seq++ {
			signed = append(signed, a.Sign(seq))
		}
		body := a.Request(signed)
		for {
			done, err := k.post(ctx, a, k.hub(at), body, signed)
			if err != nil {
				return err
			}
			if done {
				break
			}
			at++
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Duration(1+random.IntN(20)) * time.Millisecond): // as agents that come back
			}
		}
		a.acked.Store(last)
		k.acked.Add(int64(len(signed)))
	}
}

// post sends a request once. A hub that is away, or says that it cannot now, is asked again; every other answer is an error.
func (k *killing) post(ctx context.Context, a *killedAgent, h *hubload.Hub, body []byte, signed []hubload.Signed) (done bool, err error) {
	keys, err := bundle.ParsePublicKeys(h.Key)
	if err != nil {
		return false, err
	}
	sender := hubload.NewSender(h.URL, keys[0], 1)
	defer sender.Client.CloseIdleConnections()
	acked, receipt, err := sender.Post(ctx, a.Cluster, body)
	var refused *hubload.Refused
	switch {
	case errors.As(err, &refused) && refused.Status != 503 && refused.Status != 429:
		return false, err
	case err != nil:
		return false, nil
	case len(acked) != len(signed) || len(receipt.Rejected) > 0:
		return false, fmt.Errorf("%d of %d reports acknowledged: %v", len(acked), len(signed), receipt.Rejected)
	}
	for i, s := range signed {
		if id := a.ID(s.Seq); acked[i] != id {
			return false, fmt.Errorf("acknowledgement names %s in place of %s", acked[i], id)
		}
	}
	return true, nil
}

// check reads the database. Each report that was acknowledged before is stored, none is stored twice, and none that no agent
// has made.
func (k *killing) check(all bool) {
	acked := make([]int64, len(k.agents))
	for i, a := range k.agents {
		acked[i] = a.acked.Load()
		if all {
			a.checked = 0
		}
	}
	s, err := k.open()
	if err != nil {
		k.Errorf("open the database of a hub that was killed: %v", err)
		return
	}
	for i, a := range k.agents {
		stored, err := s.From(k.Context(), a.UID, store.Order{Incarnation: 1, Seq: a.checked + 1}, 1<<20)
		if err != nil {
			k.Errorf("read: %v", err)
			continue
		}
		var want []digest.Digest
		for seq := a.checked + 1; seq <= max(acked[i], a.checked+int64(len(stored))); seq++ {
			want = append(want, a.ID(seq)) // in order, without a gap, and each once
		}
		if fmt.Sprint(stored) != fmt.Sprint(want) {
			k.Errorf("%s: %d reports are acknowledged after %d, and stored are %d others than these", a.Name, acked[i], a.checked, len(stored))
		}
		a.checked = acked[i]
	}
	if err := s.Close(); err != nil {
		k.Errorf("close: %v", err)
	}
}

// verify has the command of that name read everything.
func (k *killing) verify(args ...string) {
	out, err := exec.Command("wherry", append([]string{"hub", "verify"}, args...)...).CombinedOutput()
	require.NoError(k, err, "%s", out)
	require.Contains(k, string(out), fmt.Sprintf("%d good, 0 previous, 0 revoked, 0 bad; 0 differences", k.acked.Load()))
}
