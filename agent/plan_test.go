package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/retry"
)

func TestBackoffDoublesUpToItsLimit(t *testing.T) {
	for n, want := range []time.Duration{5, 10, 20, 40, 60, 60} {
		require.Equal(t, want*time.Minute, retry.Backoff(5*time.Minute, time.Hour, n))
	}
	require.Equal(t, time.Hour, retry.Backoff(5*time.Minute, time.Hour, 1_000_000))
}

func TestThePlanAsksLessOftenWhileNobodyAnswers(t *testing.T) {
	s := newSite(t)
	s.agent(func(a *Agent) {
		p := plan{agent: a}
		now := epoch
		require.NotNil(t, p.scope(now).from, "everything is due at first")
		require.True(t, p.scope(now).all)
		for _, most := range []time.Duration{10 * time.Minute, 20 * time.Minute, 40 * time.Minute} {
			p.passed(scope{from: a.source}, outcome{Verdict: Unreachable}, now)
			wait := p.contact.Sub(now)
			require.GreaterOrEqual(t, wait, most/10)
			require.Less(t, wait, most)
			now = p.contact
		}
		p.passed(scope{from: a.source}, outcome{Verdict: Idle}, now)
		require.InDelta(t, DefaultInterval.Seconds(), p.contact.Sub(now).Seconds(), 30)
		require.Nil(t, p.scope(now).from)
	})
}

func TestThePlanLooksSoonAtWhatIsNotCompliant(t *testing.T) {
	s := newSite(t)
	s.opts.Reconcilers = nil // so that the assignment fails
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	s.once()
	s.agent(func(a *Agent) {
		p := plan{agent: a}
		p.passed(scope{from: a.source, all: true}, outcome{Verdict: Idle}, epoch)
		require.Equal(t, firstLook, p.next(epoch).Sub(epoch))
		p.passed(scope{}, outcome{Verdict: Idle}, epoch)
		require.Equal(t, 2*firstLook, p.next(epoch).Sub(epoch))
		p.passed(scope{}, outcome{Verdict: Idle, moved: true}, epoch)
		require.Equal(t, firstLook, p.next(epoch).Sub(epoch))
	})
}
