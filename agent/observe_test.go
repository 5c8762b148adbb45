package agent

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// running is an engine whose programs are at work for so many looks.
type running struct {
	reconcilers.Reconciler
	looks atomic.Int64
	fails bool
}

func (r *running) Apply(context.Context, reconcilers.Assignment) reconcilers.Result {
	return reconcilers.Result{State: bundle.Progressing, Reason: "Running"}
}

func (r *running) Observe(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	if r.fails {
		return reconcilers.Result{State: bundle.Failed, Reason: "Broken"}
	}
	defer r.looks.Add(-1) // the last work ends when it was looked at, and before anybody asks for it
	if r.Working() {
		return r.Apply(ctx, a)
	}
	return reconcilers.Result{State: bundle.Compliant}
}

func (r *running) Working() bool { return r.looks.Load() > 0 }

func TestAFailureThatIsSeenIsLogged(t *testing.T) {
	s := newSite(t)
	engine := &running{}
	s.opts.Engines.Reconcilers["directory"] = engine
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	s.agent(func(a *Agent) { a.sync(context.Background(), 0) })
	engine.fails = true
	require.NotContains(t, s.log.String(), "ERROR")
	s.agent(func(a *Agent) { a.sync(context.Background(), 0) })
	require.Equal(t, 1, strings.Count(s.log.String(), `level=ERROR msg="assignment failed" assignment=a-x adapter=directory reason=Broken`), s.log.String())
}

func TestAProcessThatEndsWithItsPassWaitsForWhatItRuns(t *testing.T) {
	s := newSite(t)
	engine := &running{}
	s.opts.Engines.Reconcilers["directory"] = engine
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))

	engine.looks.Store(3)
	s.agent(func(a *Agent) {
		require.Equal(t, bundle.Progressing, a.sync(context.Background(), 0).Status.State, "an agent that goes on sees to it later")
	})
	engine.looks.Store(3)
	require.Equal(t, bundle.Compliant, s.once().Status.State)

	engine.looks.Store(1 << 40)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.agent(func(a *Agent) { require.Equal(t, Interrupted, a.Once(ctx, 0).Verdict) })
}
