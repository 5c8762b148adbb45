package agent

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/bundle"
)

// pause pauses an agent that does not run.
func (s *site) pause(reason string, lasting time.Duration) (p freeze.Pause) {
	s.t.Helper()
	s.agent(func(a *Agent) {
		var err error
		p, err = a.state.Pause(reason, lasting, s.now)
		require.NoError(s.t, err)
	})
	return p
}

func (s *site) resume() (r Resumed) {
	s.t.Helper()
	s.agent(func(a *Agent) {
		var err error
		r, err = a.state.Resume(false, s.now)
		require.NoError(s.t, err)
	})
	return r
}

func TestAPauseThatHoldsNothingIsToldAndReported(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, shop))
	s.requireTaken()

	p := s.pause(" line 7\nproduces\x1b[31m ", time.Hour)
	require.Equal(t, freeze.Pause{At: s.now, Until: s.now.Add(time.Hour), Reason: "line 7 produces?[31m"}, p)
	require.Equal(t, bundle.Suspended, s.status().State, "before a pass has seen it")
	r := s.once()
	require.Equal(t, Idle, r.Verdict)
	require.Equal(t, bundle.Suspended, r.Status.State)
	require.Equal(t, "since 2026-03-01T13:00:00Z, until 2026-03-01T14:00:00Z: line 7 produces?[31m", r.Status.Message)
	require.False(t, r.Status.Freeze.Holding)
	require.Equal(t, 2, r.Status.Queue.Length)
	require.Equal(t, 1, strings.Count(s.log.String(), "the cluster must not be changed now"))

	s.now = s.now.Add(30 * time.Minute)
	again := s.pause("and line 8", 0)
	require.Equal(t, freeze.Pause{At: p.At, Reason: "and line 8"}, again, "which began when it began")
	require.Equal(t, &again, s.resume().Pause)
	require.Nil(t, s.resume().Pause)
	require.Equal(t, bundle.Compliant, s.status().State)
	require.Nil(t, s.status().Freeze)
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	require.Equal(t, 1, strings.Count(s.log.String(), "the cluster may be changed again"))
}

func TestAPauseForATimeEndsByItself(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, shop))
	s.requireTaken()
	s.pause("", time.Hour)
	s.publish(s.draft(2, map[string]string{"shop-main/config.yaml": "a: 2"}))
	s.agent(func(a *Agent) {
		plan := plan{agent: a}
		scope := plan.scope(s.now)
		plan.passed(scope, a.makePass(t.Context(), scope), s.now)
		require.LessOrEqual(t, plan.look, s.now.Add(freezeLook), "since something waits")
		requireFile(t, s.host, "shop-main/config.yaml", "a: 1")

		s.now = s.now.Add(time.Hour)
		require.Equal(t, Done, a.makePass(t.Context(), plan.scope(s.now)).Verdict)
	})
	requireFile(t, s.host, "shop-main/config.yaml", "a: 2")
	require.Nil(t, s.status().Freeze)

	s.pause("", time.Minute)
	s.agent(func(a *Agent) {
		plan := plan{agent: a}
		scope := plan.scope(s.now)
		plan.passed(scope, a.makePass(t.Context(), scope), s.now)
		require.WithinRange(t, plan.look, s.now.Add(time.Minute), s.now.Add(time.Minute+freezeRush), "to say that it has ended")
	})
}

func TestARunningAgentIsPausedAndResumed(t *testing.T) {
	s := newSite(t)
	s.opts.Now, s.opts.Interval = nil, time.Hour
	s.now = time.Now()
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	c, ctx := s.running(), context.Background()
	require.Eventually(t, s.has("a-x/f", "1"), time.Minute, 5*time.Millisecond)

	p, err := c.Pause(ctx, "harvest", time.Hour)
	require.NoError(t, err)
	require.Equal(t, p.At.Add(time.Hour), p.Until)
	s.publish(s.draft(2, map[string]string{"a-x/f": "2"}))
	r, err := c.Sync(ctx, 0)
	require.NoError(t, err)
	require.Equal(t, bundle.Suspended, r.Status.State)
	require.True(t, r.Status.Freeze.Holding)
	requireFile(t, s.host, "a-x/f", "1")

	resumed, err := c.Resume(ctx, false)
	require.NoError(t, err)
	require.Equal(t, "harvest", resumed.Pause.Reason)
	require.Eventually(t, s.has("a-x/f", "2"), time.Minute, 5*time.Millisecond, "with nobody asking for a pass")
}
