package agent

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// live makes an agent run all passes that Run would run in that time, and returns its log and the number of
// passes.
func (s *site) live(a *Agent, p *plan, d time.Duration) (lines []string, passes int) {
	s.t.Helper()
	s.log.Reset()
	for until := s.now.Add(d); s.now.Before(until); passes++ {
		scope := p.scope(s.now)
		out := a.makePass(context.Background(), scope)
		p.passed(scope, out, s.now)
		next := p.next(s.now)
		require.True(s.t, next.After(s.now))
		s.now = next
	}
	return strings.FieldsFunc(s.log.String(), func(r rune) bool { return r == '\n' }), passes
}

// fickle is an engine that calls all new content broken, while it is so. It stays content with the content that it had
// before: an agent may observe that once more before it takes the next release.
type fickle struct {
	reconcilers.Reconciler
	broken atomic.Bool
	calls  atomic.Int64
	had    atomic.Value // digest.Digest
}

func (f *fickle) Apply(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	return f.judge(a, f.Reconciler.Apply(ctx, a))
}

func (f *fickle) Observe(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	return f.judge(a, f.Reconciler.Observe(ctx, a))
}

func (f *fickle) judge(a reconcilers.Assignment, r reconcilers.Result) reconcilers.Result {
	f.calls.Add(1)
	switch {
	case !f.broken.Load():
		f.had.Store(a.Content)
	case f.had.Load() != a.Content:
		return reconcilers.Result{State: bundle.Failed, Reason: "Broken", Message: "it does not start"}
	}
	return r
}

func TestTheLogSpeaksOnChangeOnly(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	s := newSite(t)
	s.opts.Interval = 20 * time.Minute
	engine := &fickle{Reconciler: s.opts.Engines.Reconcilers["directory"]}
	s.opts.Engines.Reconcilers["directory"] = engine
	s.publish(s.draft(1, shop))
	s.agent(func(a *Agent) {
		p := &plan{agent: a}
		lines, _ := s.live(a, p, time.Hour)
		require.Len(t, lines, 3, "accepted, begins to run, changed: %q", lines)

		lines, passes := s.live(a, p, day)
		require.Greater(t, passes, 65)
		require.Empty(t, lines, "a day on which nothing happens")

		s.registry.away.Store(true)
		lines, _ = s.live(a, p, day)
		require.Len(t, lines, 1, "a day without a registry: %q", lines)
		require.Contains(t, lines[0], `level=WARN msg="no newer release can be taken" reason=Unreachable`)
		s.registry.away.Store(false)
		lines, _ = s.live(a, p, day)
		require.Len(t, lines, 1, "it is back: %q", lines)
		require.Contains(t, lines[0], `msg="releases can be taken again"`)

		unsigned := s.draft(2, shop)
		unsigned.Signer = nil
		s.publish(unsigned)
		lines, _ = s.live(a, p, day)
		require.Len(t, lines, 1, "a day of a release that is refused: %q", lines)
		require.Contains(t, lines[0], `level=WARN msg="release refused"`)

		engine.broken.Store(true)
		held := s.draft(3, map[string]string{"shop-main/config.yaml": "a: 3"})
		held.ChangeList = func(list []bundle.Assignment) { list[0].OnFailure = "hold" }
		s.publish(held)
		before := engine.calls.Load()
		lines, _ = s.live(a, p, day)
		require.Greater(t, engine.calls.Load()-before, int64(50), "it is tried again and again")
		require.Len(t, failures(lines), 1, "a day of failing: %q", lines)
		engine.broken.Store(false)
		s.live(a, p, day)
		lines, _ = s.live(a, p, day)
		require.Empty(t, lines, "all is well again")
	})
}

func failures(lines []string) (found []string) {
	for _, l := range lines {
		if strings.Contains(l, "assignment failed") {
			found = append(found, l)
		}
	}
	return found
}
