package agent

import (
	"context"
	"net/http"
	"path/filepath"
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

func TestARegistryThatAsksForRestIsNotAskedBefore(t *testing.T) {
	s := newSite(t)
	s.opts.MaxBackoff = 3 * time.Hour
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	for value, want := range map[string]time.Duration{"3600": time.Hour, "999999999": 3 * time.Hour} {
		answer := func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Retry-After", value)
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}
		s.registry.hook.Store(&answer)
		s.agent(func(a *Agent) {
			p, before := plan{agent: a}, s.registry.requests.Load()
			out := a.makePass(t.Context(), p.scope(epoch))
			require.Equal(t, Unreachable, out.Verdict)
			require.Equal(t, int64(1), s.registry.requests.Load()-before, "it is not asked again at once")
			p.passed(scope{from: a.source}, out, epoch)
			require.GreaterOrEqual(t, p.contact.Sub(epoch), want)
			require.Less(t, p.contact.Sub(epoch), want*12/10)
		})
	}
}

func TestASyncThatIsAnsweredEndsTheBackoff(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	s.agent(func(a *Agent) {
		p := plan{agent: a}
		now := epoch
		for range 4 {
			p.passed(p.scope(now), outcome{Verdict: Unreachable}, now)
			now = p.contact
		}
		now = now.Add(-time.Second) // nothing is due
		require.Nil(t, p.scope(now).from)

		s.registry.away.Store(true)
		require.Equal(t, Unreachable, a.sync(t.Context(), 0).Verdict)
		require.Nil(t, p.scope(now).from)
		require.Equal(t, 4, p.failures, "nobody has answered")

		s.registry.away.Store(false)
		require.Equal(t, Done, a.sync(t.Context(), 0).Verdict)
		require.Nil(t, p.scope(now).from, "the registry was asked a moment ago")
		require.InDelta(t, DefaultInterval.Seconds(), p.contact.Sub(now).Seconds(), 30)
		require.Equal(t, p.contact, *a.nextTry.Load())
		now = p.contact
		p.passed(p.scope(now), outcome{Verdict: Unreachable}, now)
		require.LessOrEqual(t, p.contact.Sub(now), 2*DefaultInterval, "it begins anew")
	})
}

func TestAnAbandonedSyncIsNotBegunAfterThePassThatRuns(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	s.agent(func(a *Agent) {
		gone, leave := context.WithCancel(t.Context())
		a.busy.Lock()
		ended := make(chan Result)
		go func() { ended <- a.syncFor(t.Context(), gone, 0) }()
		leave()
		a.busy.Unlock()
		require.Equal(t, Interrupted, (<-ended).Verdict)
		require.NoFileExists(t, filepath.Join(s.host, "a-x/f"))
	})
}

func TestThePlanLooksSoonAtWhatIsNotCompliant(t *testing.T) {
	s := newSite(t)
	s.opts.Engines.Reconcilers = nil // so that the assignment fails
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
