package agent

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// other is the stream that the agents of these tests are bound to.
var other = bundle.Stream{Platform: "default", Environment: "prod", ClusterType: "drone"}

// draftOther returns release n of the other stream.
func (s *site) draftOther(n int64, files map[string]string) draft {
	d := agenttest.New(other, n, s.now.Add(time.Duration(n)*time.Minute-time.Hour), files, s.key)
	return draft{d, s.repository(other)}
}

func (s *site) rebind(to Rebinding) (r Rebound) {
	s.t.Helper()
	s.agent(func(a *Agent) {
		var err error
		r, err = a.state.Rebind(to, s.now)
		require.NoError(s.t, err)
	})
	return r
}

func TestAnAgentIsBoundToAnotherStreamAndBack(t *testing.T) {
	s, engine := newSlowSite(t)
	calls := &recording{Reconciler: engine}
	s.opts.Engines.Reconcilers["slow"] = calls
	slow := map[string]func(*bundle.Assignment){"a-x": like("slow", 0), "b-x": like("slow", 0, "a-x"), "c-x": like("slow", 0)}
	s.publishAs(2, map[string]string{"a-x/f": "1", "b-x/f": "1", "c-x/f": "1"}, slow)
	s.requireTaken()
	first := s.status().Release.Running.Digest

	here, there := Feed{Stream: s.stream}, Feed{Stream: other}
	r := s.rebind(Rebinding{Environment: "prod"})
	require.Equal(t, Rebound{here, there, &Binding{here, there, s.now}}, r)
	require.Equal(t, "prod/drone", r.After.String())
	s.publishAs(3, map[string]string{"a-x/f": "2"}, slow) // nobody's concern any more
	require.NoError(t, os.Remove(filepath.Join(engine.root, "c-x/f")))
	calls.take()
	for range 2 {
		res := s.once()
		require.Equal(t, Unreachable, res.Verdict)
		require.Equal(t, bundle.Pending, res.Status.State)
		require.Equal(t, ReasonRebinding, res.Status.Reason)
		require.Contains(t, res.Status.Message, "what is here of dev/drone stays until the first release of prod/drone begins to run (NotFound: ")
		require.Equal(t, "prod", res.Status.Cluster.Environment)
		require.Equal(t, here, res.Status.Binding.Configured)
		require.Equal(t, first, res.Status.Release.Running.Digest)
		require.Nil(t, res.Status.Release.Desired)
	}
	seen := calls.take()
	slices.Sort(seen)
	require.Equal(t, []string{"apply c-x", "observe a-x", "observe a-x", "observe b-x", "observe b-x", "observe c-x", "observe c-x"}, seen)

	d := s.draftOther(1, map[string]string{"c-x/f": "1", "d-x/f": "1"})
	d.ChangeList = func(list []bundle.Assignment) {
		for i := range list {
			list[i].Adapter = "slow"
		}
	}
	s.publish(d)
	s.requireTaken()
	require.Equal(t, []string{"apply d-x", "remove b-x", "remove a-x", "observe c-x"}, calls.take(), "c-x is the same in both")
	st := s.status()
	require.Empty(t, st.Reason)
	require.Equal(t, st.Release.Desired, st.Release.Running)

	// Back: releases older than the accepted one of this stream stay out.
	s.publishAs(1, map[string]string{"old-x/f": "1"}, nil)
	require.Equal(t, Rebound{there, here, nil}, s.rebind(Rebinding{Undo: true}))
	require.Equal(t, Rebound{Before: here, After: here}, s.rebind(Rebinding{Undo: true}))
	require.Equal(t, there, s.rebind(Rebinding{Environment: "prod"}).After)
	require.Equal(t, &Binding{here, there, s.now}, s.status().Binding, "as what the configuration says is known still")
	s.rebind(Rebinding{Undo: true})
	s.requireRefused(bundle.OlderRelease, "")
	require.Nil(t, s.status().Binding)
	s.publishAs(4, map[string]string{"a-x/f": "4"}, slow)
	s.requireTaken()
	require.Len(t, s.status().Items, 1)
}

func TestWhatWasAcceptedAndRefusedBeforeCountsNoMore(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, shop))
	s.requireTaken()
	s.pause("", 0)
	s.publish(s.draft(2, map[string]string{"shop-main/config.yaml": "a: 2"}))
	s.once() // accepted and staged
	bad := s.draft(3, shop)
	bad.Signer = nil
	s.publish(bad)
	require.Equal(t, bundle.Rejected, s.once().Status.State)

	s.rebind(Rebinding{Environment: "prod"})
	s.resume()
	r := s.once()
	require.Equal(t, bundle.Pending, r.Status.State)
	require.Nil(t, r.Status.Release.Refused)
	requireFile(t, s.host, "shop-main/config.yaml", "a: 1")

	// A release that is accepted waits as any other.
	s.pause("", 0)
	s.publish(s.draftOther(1, map[string]string{"shop-main/config.yaml": "a: prod"}))
	r = s.once()
	require.Equal(t, freeze.ReasonPaused, r.Status.Reason)
	requireFile(t, s.host, "shop-main/config.yaml", "a: 1")
	s.resume()
	s.requireTaken()
	requireFile(t, s.host, "shop-main/config.yaml", "a: prod")
}

func TestTheConfigurationHasTheLastWord(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, shop))
	s.agent(func(a *Agent) {
		_, err := a.state.Rebind(Rebinding{Environment: "prod"}, s.now)
		require.ErrorIs(t, err, state.ErrNoState)
	})
	s.requireTaken()
	s.rebind(Rebinding{Environment: "prod"})
	require.Equal(t, "prod", s.once().Status.Cluster.Environment)
	require.Contains(t, s.log.String(), `level=INFO msg="other releases are followed from now on" before=dev/drone now=prod/drone by=rebind`)
	ring := "canary"
	require.Equal(t, "prod/drone in ring canary", s.rebind(Rebinding{Ring: &ring}).After.String())

	configured, repo := s.stream, s.repo
	s.stream.ClusterType = "boat"
	s.repo = s.repository(s.stream)
	r := s.once()
	require.Equal(t, "boat", r.Status.Cluster.Type)
	require.Nil(t, r.Status.Binding)
	require.Equal(t, ReasonRebinding, r.Status.Reason)
	require.Contains(t, s.log.String(), `level=WARN msg="other releases are followed from now on" before=prod/drone now=dev/boat by=configuration`)
	s.stream, s.repo = configured, repo
	require.Equal(t, bundle.Compliant, s.once().Status.State, "as what is here is of it")
}

func TestAnotherPlatformIsNotFollowedUnderATrustDocument(t *testing.T) {
	s, _ := underTrust(t)
	s.publish(s.draft(1, shop))
	s.requireTaken()
	s.agent(func(a *Agent) {
		_, err := a.state.Rebind(Rebinding{Platform: "tea"}, s.now)
		require.EqualError(t, err, `WrongPlatform: the trust document is for platform "default": another platform is another state folder`)
	})
	require.Nil(t, s.status().Binding)
}

func TestARunningAgentIsBoundToAnotherStream(t *testing.T) {
	s := newSite(t)
	s.opts.Now, s.opts.Interval = nil, time.Hour
	s.now = time.Now()
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	s.publish(s.draftOther(1, map[string]string{"b-x/f": "1"}))
	c, ctx := s.running(), context.Background()
	require.Eventually(t, s.has("a-x/f", "1"), time.Minute, 5*time.Millisecond)

	r, err := c.Rebind(ctx, Rebinding{Environment: "prod"})
	require.NoError(t, err)
	require.Equal(t, other, r.After.Stream)
	require.Eventually(t, s.has("b-x/f", "1"), time.Minute, 5*time.Millisecond)
	require.Eventually(t, func() bool {
		st, err := c.Status(ctx)
		return err == nil && st.State == bundle.Compliant && st.Cluster.Environment == "prod" && len(st.Items) == 1
	}, time.Minute, 5*time.Millisecond)
	require.NoDirExists(t, filepath.Join(s.host, "a-x"))
}
