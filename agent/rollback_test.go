package agent

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// release publishes release n, in which a-x has that content, and has it run.
func (s *site) release(n int64, content string) bundle.ReportRelease {
	s.t.Helper()
	s.publish(s.draft(n, files(map[string]string{"a-x": content})))
	s.once()
	return *s.lastReport().Desired
}

func TestAPersonGoesBackUntilANewerReleaseComes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first, second := s.release(1, "1"), s.release(2, "2")
	require.NoError(t, s.rollBack("1"))
	s.registry.away.Store(true)

	r := s.once()

	require.Equal(t, Unreachable, r.Verdict, "no link is needed")
	require.Equal(t, bundle.Suspended, r.Status.State)
	require.Equal(t, "HeldByOperator", r.Status.Reason)
	require.Regexp(t, `^release 1 \([0-9a-f]{8}\) runs, as ann decided at 2026-03-01T13:00:00Z: it hums$`, r.Status.Message)
	require.Equal(t, first.Digest, r.Status.Release.Running.Digest)
	require.Equal(t, second.Digest, r.Status.Release.Desired.Digest)
	require.Equal(t, first.Digest, r.Status.Release.Held.To.Digest)
	requireFile(t, s.host, "a-x/f", "1")
	s.registry.away.Store(false)
	require.Equal(t, first.Digest, s.once().Status.Release.Running.Digest, "what the tag still names does not end it")

	renewal := s.release(3, "2")
	r = s.once()
	require.Equal(t, first.Digest, r.Status.Release.Running.Digest, "nor does a renewal of what was left")
	require.Equal(t, renewal.Digest, r.Status.Release.Desired.Digest)
	s.agent(func(a *Agent) {
		highest, _, err := a.state.judgedSoFar(s.stream, 0)
		require.NoError(t, err)
		require.EqualValues(t, 3, highest.Sequence, "the order never falls")
	})
	s.publish(s.draft(2, files(map[string]string{"a-x": "older"})))
	require.Equal(t, bundle.OlderRelease, s.once().Status.Release.Refused.Reason)

	next := s.release(4, "4")
	r = s.once()
	require.Equal(t, next.Digest, r.Status.Release.Running.Digest)
	require.Equal(t, bundle.Compliant, r.Status.State)
	require.Empty(t, r.Status.Reason)
	require.Nil(t, r.Status.Release.Held)
	require.Contains(t, s.log.String(), "rollback ends: a newer release has come")
}

func TestAPersonEndsARollback(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.release(1, "1")
	second := s.release(2, "2")
	require.NoError(t, s.rollBack("1"))
	s.once()
	s.agent(func(a *Agent) {
		ended, err := a.state.Resume(false, s.now)
		require.NoError(t, err)
		require.EqualValues(t, 1, ended.Held.To.Sequence)
		again, err := a.state.Resume(true, s.now)
		require.NoError(t, err)
		require.Equal(t, Resumed{}, again)
	})
	s.registry.blobs.Store(0)

	r := s.once()

	require.Equal(t, second.Digest, r.Status.Release.Running.Digest)
	require.Equal(t, bundle.Compliant, r.Status.State)
	require.Zero(t, s.registry.blobs.Load(), "what was left was kept")
}

// Who ends a pause for the harvest does not mean the rollback of last week.
func TestTheEndOfAPauseIsNotThatOfARollback(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first, second := s.release(1, "1"), s.release(2, "2")
	s.pause("harvest", 0)
	require.NoError(t, s.rollBack("1"))
	r := s.once()
	require.Equal(t, second.Digest, r.Status.Release.Running.Digest)
	require.Equal(t, freeze.ReasonPaused, r.Status.Reason)
	require.True(t, r.Status.Freeze.Holding)

	ended := s.resume()
	require.NotNil(t, ended.Pause)
	require.Nil(t, ended.Held)
	require.EqualValues(t, 1, ended.StillHeld.To.Sequence)
	require.Equal(t, first.Digest, s.once().Status.Release.Running.Digest)
	require.EqualValues(t, 1, s.resume().Held.To.Sequence)
	require.Equal(t, second.Digest, s.once().Status.Release.Running.Digest)
}

func TestAReleaseWhoseFilesAreGoneIsFetchedAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.release(1, "1")
	s.release(2, "2")
	third := s.release(3, "3")
	known := s.releases()
	require.Len(t, known, 3)
	require.Equal(t, []bool{true, true, false}, []bool{known[0].Here, known[1].Here, known[2].Here})
	require.True(t, known[0].Running && known[0].Newest && known[0].Good)
	require.NoError(t, s.rollBack(first.Digest.String()))
	s.registry.away.Store(true)

	r := s.once()

	require.Equal(t, Unreachable, r.Verdict)
	require.Equal(t, third.Digest, r.Status.Release.Running.Digest)
	require.Equal(t, "HeldByOperator", r.Status.Reason)
	require.Regexp(t, `release 3 \([0-9a-f]{8}\) still runs \(Unreachable: `, r.Status.Message)
	require.Regexp(t, `\); release 1 \([0-9a-f]{8}\) is to run, as ann decided at 2026-03-01T13:00:00Z: it hums`, r.Status.Message)
	known = s.releases()
	require.Equal(t, []bool{false, false, true}, []bool{known[0].Held, known[1].Held, known[2].Held})

	s.registry.away.Store(false)
	s.spoilBlobs(true)
	r = s.once()
	require.Equal(t, third.Digest, r.Status.Release.Running.Digest, "other bytes than those that were accepted are not taken")
	s.spoilBlobs(false)
	r = s.once()
	require.Equal(t, first.Digest, r.Status.Release.Running.Digest)
	requireFile(t, s.host, "a-x/f", "1")
	require.True(t, s.releases()[2].Here)
}

// A registry that lacks the release of a rollback is not unreachable, nor is its offer refused: the agent finds a repaired
// release at the next poll.
func TestAnEarlierReleaseThatCannotBeHadSaysNothingOfTheOffer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.release(1, "1")
	s.release(2, "2")
	s.release(3, "3")
	require.NoError(t, s.rollBack("1"))
	gone := func(w http.ResponseWriter, r *http.Request) bool {
		lacks := strings.HasSuffix(r.URL.Path, first.Digest.String())
		if lacks {
			w.WriteHeader(http.StatusNotFound)
		}
		return lacks
	}
	spoilt := func(path string, body []byte) []byte {
		if strings.Contains(path, "/blobs/") && len(body) > 0 {
			body[0] ^= 1
		}
		return body
	}
	s.agent(func(a *Agent) {
		for _, tc := range []struct {
			said     string
			meet     func()
			failures int
		}{
			{"NotFound: ", func() { s.registry.hook.Store(&gone) }, 0},
			{"mismatched digest", func() { s.registry.hook.Store(nil); s.registry.spoil.Store(&spoilt) }, 0},
			{"Unreachable: ", func() { s.registry.away.Store(true) }, 1},
		} {
			tc.meet()
			p := plan{agent: a}
			out := a.makePass(t.Context(), p.scope(s.now))
			p.passed(scope{from: a.source}, out, s.now)
			st, err := a.Status()
			require.NoError(t, err)
			require.Equal(t, []any{Unreachable, tc.failures, bundle.Suspended, "HeldByOperator"}, []any{out.Verdict, p.failures, st.State, st.Reason})
			require.Contains(t, st.Message, tc.said)
			require.Nil(t, st.Release.Refused)
		}
	})
}

// spoilBlobs has the registry serve other bytes.
func (s *site) spoilBlobs(on bool) {
	spoil := func(path string, body []byte) []byte {
		if len(body) > 0 {
			body[len(body)/2] ^= 1
		}
		return body
	}
	if !on {
		s.registry.spoil.Store(nil)
		return
	}
	s.registry.spoil.Store(&spoil)
}

func (s *site) releases() (list []KnownRelease) {
	s.agent(func(a *Agent) {
		var err error
		list, err = a.state.Releases(s.now)
		require.NoError(s.t, err)
	})
	return list
}

func TestOnlyWhatWasAcceptedHereMayBeGoneBackTo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	require.ErrorIs(t, s.rollBack("1"), ErrNotAccepted, "nothing was")
	s.moody(map[string]reconcilers.Result{"a-x=2": unhealthy})
	s.release(1, "1")
	bad := s.release(2, "2")
	s.attempts(3)
	require.ErrorIs(t, s.rollBack("2"), ErrNewest)
	s.release(3, "3")
	for to, want := range map[string]error{
		"3": ErrNewest, "2": ErrNotAllowed, bad.Digest.String(): ErrNotAllowed, "4": ErrNotAccepted, "": ErrNotAccepted, "-1": ErrNotAccepted,
		bad.Digest.String()[:len("sha256:")+6]: ErrNotAllowed, bad.Digest.String()[:len("sha256:")+5]: ErrNotAccepted,
		bad.Digest.Encoded()[:6]: ErrNotAllowed, bundle.ReleaseName(2, bad.Digest): ErrNotAllowed,
		"0-2": ErrNotAllowed, "s0-2": ErrNotAllowed, "1-2": ErrNotAccepted, "0-": ErrNotAccepted,
	} {
		require.ErrorIs(t, s.rollBack(to), want, to)
	}
	require.Contains(t, s.rollBack("2").Error(), "it was given up: AssignmentsFailed: ")
	r := s.once()
	require.Nil(t, r.Status.Release.Held)
	require.EqualValues(t, 3, r.Status.Release.Running.Sequence)
	require.Equal(t, ReasonAssignmentsFailed, s.releases()[1].GivenUp)
	require.Regexp(t, `^release 2 \([0-9a-f]{8}\) may not run here: it was given up: AssignmentsFailed: fails again and again: a-x \(Unhealthy: the pods crash\)$`, s.releases()[1].NotAllowed)
}

// numbered publishes a release whose number is not its sequence, and takes it.
func (s *site) numbered(sequence, number int64, content string) bundle.ReportRelease {
	s.t.Helper()
	d := s.draft(sequence, files(map[string]string{"a-x": content}))
	d.Release.Number = number
	s.publish(d)
	s.once()
	return *s.lastReport().Desired
}

func TestAReleaseHasANumber(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first, second := s.numbered(100, 11, "1"), s.numbered(200, 12, "2")
	s.numbered(300, 13, "3")
	require.EqualValues(t, 11, first.Number, "reports have it")
	require.NoError(t, s.rollBack("11"))
	r := s.once()
	require.Equal(t, first.Digest, r.Status.Release.Running.Digest)
	require.EqualValues(t, 11, r.Status.Release.Running.Number)
	require.Contains(t, r.Status.Message, "release "+bundle.ReleaseName(11, first.Digest)+" runs")
	require.NoError(t, s.rollBack(second.Digest.Encoded()[:6]))
	require.Equal(t, second.Digest, s.once().Status.Release.Running.Digest)
	require.EqualValues(t, 12, s.releases()[1].Number)

	s.numbered(400, 11, "4") // as where a registry's history was lost
	s.numbered(500, 12, "5")
	err := s.rollBack("11")
	require.ErrorIs(t, err, ErrAmbiguous)
	require.ErrorContains(t, err, `"11" names 2 releases: 11 (`)
	require.ErrorContains(t, err, "11 ("+first.Digest.Encoded()[:16]+"), issued ")
}

func TestAReleaseThatAPersonHasChosenIsNotGivenUp(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	engine := s.moody(map[string]reconcilers.Result{})
	first := s.release(1, "1")
	s.release(2, "2")
	require.NoError(t, s.rollBack("1"))
	engine.moods["a-x=1"] = unhealthy

	r := s.attempts(5)

	require.Equal(t, first.Digest, r.Status.Release.Running.Digest)
	require.Equal(t, bundle.Failed, r.Status.State)
	require.Equal(t, "HeldByOperator", r.Status.Reason)
}

// A new epoch never stops a running release; a release that does not run yet never will.
func TestANewEpochAndARollback(t *testing.T) {
	t.Parallel()
	for _, runs := range []bool{true, false} {
		t.Run(fmt.Sprintf("the release runs already: %v", runs), func(t *testing.T) {
			s := newSite(t)
			s.epoch = 1
			document := agenttest.NewTrust(s.stream.Platform, s.now, agenttest.NewKey(), s.key)
			require.NoError(t, s.install(document))
			first, second := s.release(1, "1"), s.release(2, "2")
			require.NoError(t, s.rollBack("1"))
			want := second
			if runs {
				want = first
				s.once()
			}
			document = document.Next(s.now)
			document.Document.Epoch, s.epoch = 2, 2
			require.NoError(t, s.install(document))

			r := s.once()

			require.Equal(t, want.Digest, r.Status.Release.Running.Digest)
			require.Equal(t, runs, r.Status.Release.Held != nil)
			next := s.release(1, "3")
			require.Equal(t, next.Digest, s.once().Status.Release.Running.Digest)
			require.ErrorIs(t, s.rollBack(second.Digest.String()), ErrNotAllowed)
		})
	}
}

func TestTheHistoryIsBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for n := range int64(maxHistory + 3) {
		s.publish(s.draft(n+1, files(map[string]string{"a-x": fmt.Sprint(n)})))
		s.once()
	}
	known := s.releases()
	require.Len(t, known, maxHistory)
	for i, k := range known {
		require.EqualValues(t, maxHistory+3-i, k.Sequence)
		require.Equal(t, i <= 1, k.Here)
	}
}

// A state file from before there was a history knows the releases in use.
func TestAnOlderStateKnowsWhatItUses(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.moody(map[string]reconcilers.Result{"a-x=2": {State: bundle.Progressing}})
	first, second := s.release(1, "1"), s.release(2, "2")
	s.agent(func(a *Agent) {
		require.NoError(t, a.state.db.Update(func(tx *bbolt.Tx) error { return state.Drop(tx, state.Meta, keyHistory) }))
	})
	known := s.releases()
	require.Len(t, known, 2)
	require.Equal(t, second.Digest, known[0].Digest)
	require.Equal(t, first.Digest, known[1].Digest)
	require.True(t, known[1].Here && known[1].Good)
	require.NoError(t, s.rollBack("1"))
	require.Equal(t, first.Digest, s.once().Status.Release.Running.Digest)
}

func TestTheEndOfARollbackThatCouldNotBeDoneAsksAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.release(1, "1")
	s.release(2, "2")
	s.release(3, "3")
	ctx := context.Background()
	s.opts.Now, s.opts.Interval = nil, time.Hour
	s.registry.away.Store(true)
	c := s.running()
	_, err := c.RollBack(ctx, Wish{To: "1"})
	require.NoError(t, err)
	reason := func(want string) func() bool {
		return func() bool {
			st, err := c.Status(ctx)
			return err == nil && st.Reason == want
		}
	}
	require.Eventually(t, reason("HeldByOperator"), time.Minute, 5*time.Millisecond)
	s.registry.away.Store(false)
	_, err = c.Resume(ctx, false)
	require.NoError(t, err)
	require.Eventually(t, reason(""), time.Minute, 5*time.Millisecond)
}

func TestARunningAgentGoesBackAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.release(1, "1")
	s.release(2, "2")
	third := s.release(3, "3")
	ctx := context.Background()
	s.opts.Now, s.opts.Interval = nil, time.Hour
	c := s.running()
	known, err := c.Releases(ctx)
	require.NoError(t, err)
	require.Len(t, known, 3)

	back, err := c.RollBack(ctx, Wish{To: "2", By: "ann\n", Reason: " it\thums"})

	require.NoError(t, err)
	require.True(t, back.Here)
	require.Equal(t, "it hums", back.Held.Reason)
	require.Eventually(t, s.has("a-x/f", "2"), time.Minute, 5*time.Millisecond)
	_, err = c.RollBack(ctx, Wish{To: "1"})
	require.NoError(t, err)
	require.Eventually(t, s.has("a-x/f", "1"), time.Minute, 5*time.Millisecond, "it is fetched at once, too")
	for to, want := range map[string]error{"3": ErrNewest, "7": ErrNotAccepted} {
		_, err = c.RollBack(ctx, Wish{To: to})
		require.ErrorIs(t, err, want)
		require.Contains(t, err.Error(), want.Error())
	}
	ended, err := c.Resume(ctx, false)
	require.NoError(t, err)
	require.EqualValues(t, 1, ended.Held.To.Sequence)
	require.Eventually(t, s.has("a-x/f", "3"), time.Minute, 5*time.Millisecond)
	st, err := c.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, third.Digest, st.Release.Running.Digest)
	require.Nil(t, st.Release.Held)
}
