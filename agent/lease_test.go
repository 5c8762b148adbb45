package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/agent/lease"
	"github.com/wherry-dev/wherry/bundle"
)

// other returns a second site for the same releases, with a machine of its own.
func (s *site) other() *site {
	s.t.Helper()
	o := *s
	o.dir = filepath.Join(s.t.TempDir(), "state")
	o.log.Reset()
	o.opts.Now = func() time.Time { return o.now }
	return &o
}

// pass makes one pass of an agent that goes on.
func (s *site) pass(a *Agent) Result {
	return a.result(a.makePass(s.t.Context(), scope{from: s.repo, all: true, force: true}))
}

func TestASecondAgentWaitsUntilTheFirstIsSilent(t *testing.T) {
	s, c := newSite(t), newFakeCluster()
	o := s.other()
	s.bring(1, map[string]string{"a-x/f": "1"})
	s.on(c, func(first *Agent) {
		require.Equal(t, bundle.Compliant, s.pass(first).Status.State)
		o.on(c, func(second *Agent) {
			delete(c.objects, "a-x/f")
			for range 10 { // of a first agent whose clock is of another year
				s.now, o.now = s.now.Add(time.Minute), o.now.Add(time.Minute)
				require.NoError(t, first.lease.Attend(t.Context()))
				r := o.pass(second)
				require.Equal(t, bundle.Pending, r.Status.State)
				require.Equal(t, freeze.ReasonAnotherAgent, r.Status.Reason)
				require.Contains(t, r.Status.Message, "Lease there/memory is held by the agent plant-7_")
				require.Empty(t, c.objects, "it changes nothing")
			}
			for range 3 {
				require.Equal(t, freeze.ReasonAnotherAgent, o.pass(second).Status.Reason)
				o.now = o.now.Add(time.Minute)
			}
			require.Equal(t, bundle.Compliant, o.pass(second).Status.State, "the first is gone")
			require.Equal(t, map[string]string{"a-x/f": "1"}, c.objects)

			// The first was only cut off. It notices before it does anything.
			delete(c.objects, "a-x/f")
			s.now = s.now.Add(5 * time.Minute)
			require.Equal(t, freeze.ReasonAnotherAgent, s.pass(first).Status.Reason)
			require.Empty(t, c.objects)
		})
	})
}

func TestALeaseIsGivenBackAtTheEnd(t *testing.T) {
	s, c := newSite(t), newFakeCluster()
	s.bring(1, map[string]string{"a-x/f": "1"})
	s.onceOn(c)
	require.Empty(t, c.claim.Holder)
	require.Equal(t, bundle.Compliant, s.other().onceOn(c).Status.State, "at once")
}

func TestAnAgentThatWasKilledGoesOnAtOnce(t *testing.T) {
	s, c := newSite(t), newFakeCluster()
	s.bring(1, map[string]string{"a-x/f": "1"})
	for range 3 {
		s.on(c, func(a *Agent) { // and no more
			require.Equal(t, bundle.Compliant, s.pass(a).Status.State)
		})
	}
	require.NotEmpty(t, c.claim.Holder)
	require.Equal(t, bundle.Compliant, s.onceOn(c).Status.State)
}

// Passes that a timer starts are processes of their own, none of which lives for as long as a Lease.
func TestSinglePassesWaitForASilentAgentTogether(t *testing.T) {
	s, c := newSite(t), newFakeCluster()
	s.bring(1, map[string]string{"a-x/f": "1"})
	s.on(c, func(a *Agent) { s.pass(a) })
	o := s.other()
	for range 3 {
		require.Equal(t, freeze.ReasonAnotherAgent, o.onceOn(c).Status.Reason)
		o.now = o.now.Add(time.Minute)
	}
	require.Equal(t, bundle.Compliant, o.onceOn(c).Status.State)
}

func TestACopyOfTheStateIsNoticed(t *testing.T) {
	s, c := newSite(t), newFakeCluster()
	s.bring(1, map[string]string{"a-x/f": "1"})
	s.onceOn(c)
	s.on(c, func(first *Agent) {
		s.pass(first)
		o := s.other()
		require.NoError(t, os.CopyFS(o.dir, os.DirFS(s.dir)))
		o.on(c, func(second *Agent) {
			require.Equal(t, bundle.Compliant, o.pass(second).Status.State, "it seems to be the same one after a crash")
			s.now = s.now.Add(time.Minute)
			require.NoError(t, first.lease.Attend(t.Context()))
			r := s.pass(first)
			require.Equal(t, freeze.ReasonAnotherAgent, r.Status.Reason)
			require.Contains(t, r.Status.Message, "a copy of this state folder")
			for range 5 {
				s.now, o.now = s.now.Add(time.Minute), o.now.Add(time.Minute)
				require.NoError(t, second.lease.Attend(t.Context()))
				require.Equal(t, freeze.ReasonAnotherAgent, s.pass(first).Status.Reason, "they do not take turns")
			}
		})
	})
}

// While the cluster does not answer, its engines are left alone, and those of the host are not.
func TestAClusterThatDoesNotAnswer(t *testing.T) {
	s, c := newSite(t), newFakeCluster()
	s.publishAs(1, map[string]string{"a-x/f": "1", "h-x/f": "1"}, map[string]func(*bundle.Assignment){"a-x": like(onCluster, 0)})
	s.on(c, func(a *Agent) {
		s.pass(a)
		c.err = errAway
		s.now = s.now.Add(lease.Time)
		s.publishAs(2, map[string]string{"a-x/f": "2", "h-x/f": "2"}, map[string]func(*bundle.Assignment){"a-x": like(onCluster, 0)})
		applies := c.requests["apply"]
		r := s.pass(a)
		require.Equal(t, freeze.ReasonAPIServerUnreachable, r.Status.Reason)
		requireFile(t, s.host, "h-x/f", "2")
		require.Equal(t, applies, c.requests["apply"])

		c.err = nil
		s.now = s.now.Add(lease.Retry)
		require.Equal(t, bundle.Compliant, s.pass(a).Status.State)
		require.Equal(t, map[string]string{"a-x/f": "2"}, c.objects)
	})
}
