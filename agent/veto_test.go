package agent

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/engines"
	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/bundle"
)

func TestAVetoIsAskedForWhereSomethingIsToBeChanged(t *testing.T) {
	s := newSite(t)
	dir := t.TempDir()
	busy, asked := filepath.Join(dir, "busy"), filepath.Join(dir, "asked")
	s.opts.Veto.Command = []string{"sh", "-c", `echo >>"$1"; test ! -e "$0" || { cat "$0"; exit 1; }`, busy, asked}
	times := func() int {
		data, err := os.ReadFile(asked)
		require.NoError(t, err)
		return len(data)
	}
	s.publish(s.draft(1, shop))
	s.requireTaken()
	require.Equal(t, 1, times())
	s.once()
	require.Equal(t, 1, times(), "nothing was to be changed")

	require.NoError(t, os.WriteFile(busy, []byte("press 4 runs"), 0o600))
	s.once()
	require.Nil(t, s.status().Freeze)
	next := s.publish(s.draft(2, map[string]string{"shop-main/config.yaml": "a: 2"}))
	begun := s.now
	for i := range 2 {
		r := s.once()
		require.Equal(t, 2+i, times())
		require.Equal(t, bundle.Pending, r.Status.State)
		require.Equal(t, &FreezeStatus{State: bundle.Pending, Reason: freeze.ReasonVetoed, Message: "press 4 runs", Since: begun, Holding: true}, r.Status.Freeze)
		requireFile(t, s.host, "shop-main/config.yaml", "a: 1")
		s.now = s.now.Add(time.Minute)
	}
	require.Equal(t, 1, strings.Count(s.log.String(), "the cluster must not be changed now"))

	require.NoError(t, os.Remove(busy))
	r := s.once()
	require.Equal(t, bundle.Compliant, r.Status.State)
	require.Equal(t, next.Digest, r.Status.Release.Running.Digest)
	require.Equal(t, 4, times())
}

func TestWhatComesUpInTheMiddleOfAnUpdateHoldsTheRest(t *testing.T) {
	s := newSite(t)
	engine := &stuck{recording: recording{Reconciler: newSlow(t)}, free: make(chan struct{})}
	s.opts.Engines.Reconcilers["stuck"] = engine
	s.opts.Veto.File = filepath.Join(t.TempDir(), "busy")
	files, change := map[string]string{"z-x/f": "1"}, map[string]func(*bundle.Assignment){}
	s.publishAs(1, files, nil)
	s.requireTaken()
	delete(files, "z-x/f") // is to be removed, once the rest is there
	for i := range engines.Workers + 2 {
		name := "a" + strconv.Itoa(i) + "-x"
		files[name+"/f"], change[name] = "1", like("stuck", 0)
	}
	s.publishAs(2, files, change)
	s.agent(func(a *Agent) {
		a.freezeRest = func(time.Duration) time.Duration { return 0 }
		var r Result
		var ended sync.WaitGroup
		ended.Go(func() { r = a.Once(context.Background(), 0) })
		require.Eventually(t, func() bool { return engine.running.Load() == engines.Workers }, time.Minute, time.Millisecond)
		require.NoError(t, os.WriteFile(s.opts.Veto.File, nil, 0o600))
		close(engine.free)
		ended.Wait()
		require.Equal(t, bundle.Pending, r.Status.State)
		require.Equal(t, freeze.ReasonVetoed, r.Status.Reason)
		states := map[bundle.State]int{}
		for _, i := range r.Status.Items {
			states[i.State]++
		}
		require.Equal(t, map[bundle.State]int{bundle.Compliant: engines.Workers, bundle.Pending: 3}, states)
		require.Equal(t, "Removing", item(t, r, "z-x").Reason)
		all, err := a.state.allRecords()
		require.NoError(t, err)
		for _, rec := range all {
			require.Equal(t, rec.Item.State == bundle.Compliant || rec.Removing, rec.Applied != "", "%s", rec.Spec.Name)
		}
	})
	require.Len(t, engine.calls, engines.Workers)

	require.NoError(t, os.Remove(s.opts.Veto.File))
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	require.Len(t, s.status().Items, engines.Workers+2)
}
