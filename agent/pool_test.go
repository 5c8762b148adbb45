package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/engines"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// stuck is an engine whose calls end only on request.
type stuck struct {
	recording
	free          chan struct{}
	running, most atomic.Int32
}

func (s *stuck) Apply(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	n := s.running.Add(1)
	defer s.running.Add(-1)
	for most := s.most.Load(); n > most && !s.most.CompareAndSwap(most, n); most = s.most.Load() {
	}
	select {
	case <-s.free:
	case <-ctx.Done():
	}
	return s.recording.Apply(ctx, a)
}

func TestAnEngineThatHangsHoldsUpNoOther(t *testing.T) {
	s := newSite(t)
	engine := &stuck{recording: recording{Reconciler: newSlow(t)}, free: make(chan struct{})}
	s.opts.Engines.Reconcilers["stuck"] = engine
	files, change := map[string]string{"z-x/f": "1"}, map[string]func(*bundle.Assignment){}
	for i := range engines.SaveEvery + engines.Workers {
		name := fmt.Sprintf("a%02d-x", i)
		files[name+"/f"], change[name] = "1", like("stuck", 0)
	}
	s.publishAs(1, files, change)
	var r Result
	var ended sync.WaitGroup
	ended.Go(func() { r = s.once() })
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(s.host, "z-x/f"))
		return err == nil && engine.running.Load() == engines.Workers
	}, time.Minute, time.Millisecond)

	close(engine.free)
	ended.Wait()

	require.Equal(t, bundle.Compliant, r.Status.State)
	require.EqualValues(t, engines.Workers, engine.most.Load())
}

func TestDriftMayBeOnlyReported(t *testing.T) {
	s, engine := newSlowSite(t)
	report := map[string]func(*bundle.Assignment){"a-x": func(a *bundle.Assignment) { a.Adapter, a.Drift = "slow", "report" }}
	engine.say("a-x", bundle.Failed)
	s.publishAs(1, map[string]string{"a-x/f": "1"}, report)
	s.once()
	engine.say("a-x", "")
	require.Equal(t, bundle.Compliant, s.once().Status.State, "what was never as it should be is given again")
	require.NoError(t, os.WriteFile(filepath.Join(engine.root, "a-x/f"), []byte("changed"), 0o600))

	for range 2 {
		r := s.once()
		require.Equal(t, bundle.Drifted, r.Status.State)
		require.Equal(t, "Differs", item(t, r, "a-x").Reason)
		requireFile(t, engine.root, "a-x/f", "changed")
	}
	engine.say("a-x", bundle.Failed)
	require.Equal(t, bundle.Failed, s.once().Status.State)
	engine.say("a-x", "")
	require.Equal(t, bundle.Drifted, s.once().Status.State, "nor is it put right on the way out of a failure")
	s.agent(func(a *Agent) { require.True(t, a.settled(), "nobody looks again before it is time") })

	s.publishAs(2, map[string]string{"a-x/f": "2"}, report)
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	requireFile(t, engine.root, "a-x/f", "2")

	require.NoError(t, os.WriteFile(filepath.Join(engine.root, "a-x/f"), []byte("changed"), 0o600))
	require.Equal(t, bundle.Drifted, s.once().Status.State)
	s.publishAs(3, map[string]string{"a-x/f": "2"}, map[string]func(*bundle.Assignment){"a-x": like("slow", 0)})
	require.Equal(t, bundle.Compliant, s.once().Status.State, "the annotation is gone")
	requireFile(t, engine.root, "a-x/f", "2")
}

// claiming is an engine that marks its objects, and takes its time to remove the marks.
type claiming struct {
	reconcilers.Reconciler
	released []string
	state    bundle.State
}

func (c *claiming) Release(_ context.Context, a reconcilers.Assignment) reconcilers.Result {
	c.released = append(c.released, a.Name)
	return reconcilers.Result{State: c.state}
}

func (c *claiming) SettleTime() time.Duration { return time.Minute }

func TestWhatWasAppliedMayOutliveItsAssignment(t *testing.T) {
	s := newSite(t)
	engine := &claiming{Reconciler: newSlow(t), state: bundle.Progressing}
	s.opts.Engines.Reconcilers["claiming"] = engine
	s.opts.Engines.Settle = new(time.Duration)
	orphan := func(adapter string) func(*bundle.Assignment) {
		return func(a *bundle.Assignment) { a.Adapter, a.OnRemove = adapter, "orphan" }
	}
	s.publishAs(1, map[string]string{"a-x/f": "1", "b-x/f": "1"}, map[string]func(*bundle.Assignment){"a-x": orphan("directory"), "b-x": orphan("claiming")})
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	s.agent(func(a *Agent) {
		require.NoError(t, a.state.Ledger("directory").Save("a-x", []byte("kept by an adapter")))
	})
	s.publish(s.draft(2, nil))

	r := s.once()
	require.Len(t, r.Status.Items, 1)
	require.Equal(t, "Removing", item(t, r, "b-x").Reason)
	requireFile(t, s.host, "a-x/f", "1")
	require.Contains(t, s.log.String(), `msg="assignment removed" assignment=a-x adapter=directory reason=Orphaned`)

	engine.state = bundle.Removed
	require.Empty(t, s.once().Status.Items)
	require.Equal(t, []string{"b-x", "b-x"}, engine.released)
	require.Contains(t, s.log.String(), `assignment=b-x adapter=claiming reason=Orphaned`)
	s.agent(func(a *Agent) {
		entry, err := a.state.Ledger("directory").Load("a-x")
		require.NoError(t, err)
		require.Empty(t, entry)
	})
}

func TestAnAdapterSaysHowLongWellHasToLast(t *testing.T) {
	s := newSite(t)
	s.opts.Engines.Reconcilers["claiming"] = &claiming{Reconciler: newSlow(t)}
	s.publishAs(1, map[string]string{"a-x/f": "1", "b-x/f": "1"}, map[string]func(*bundle.Assignment){"a-x": like("claiming", 0)})
	r := s.once()
	require.Equal(t, "Settling", item(t, r, "a-x").Reason)
	require.Equal(t, bundle.Compliant, item(t, r, "b-x").State)
	s.now = s.now.Add(time.Minute)
	require.Equal(t, bundle.Compliant, s.once().Status.State)

	long := time.Hour
	s.opts.Engines.Settle = &long
	s.publishAs(2, map[string]string{"a-x/f": "2", "b-x/f": "2"}, map[string]func(*bundle.Assignment){"a-x": like("claiming", 0)})
	s.now = s.now.Add(30 * time.Minute)
	for _, i := range s.once().Status.Items {
		require.Equal(t, "Settling", i.Reason)
	}
	s.opts.Engines.Settle = new(time.Duration)
	require.Equal(t, bundle.Compliant, s.once().Status.State)
}
