package agent

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/agent/probation"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// moody is an engine that has a result of its own for some contents: "a-x=2" is assignment a-x where its file f
// holds 2.
type moody struct {
	recording
	moods map[string]reconcilers.Result
}

var unhealthy = reconcilers.Result{State: bundle.Failed, Reason: "Unhealthy", Message: "the pods crash"}

func (m *moody) Apply(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	res := m.recording.Apply(ctx, a)
	return m.mood(a, res)
}

func (m *moody) Observe(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	return m.mood(a, m.recording.Observe(ctx, a))
}

func (m *moody) mood(a reconcilers.Assignment, res reconcilers.Result) reconcilers.Result {
	content, err := os.ReadFile(filepath.Join(a.Dir, "f"))
	if mood, ok := m.moods[a.Name+"="+string(content)]; ok && err == nil {
		return mood
	}
	return res
}

// moody replaces the site's engine.
func (s *site) moody(moods map[string]reconcilers.Result) *moody {
	m := &moody{recording{Reconciler: s.opts.Engines.Reconcilers["directory"]}, moods}
	s.opts.Engines.Reconcilers["directory"] = m
	return m
}

// files are those of assignments by their contents.
func files(contents map[string]string) map[string]string {
	f := map[string]string{}
	for name, content := range contents {
		f[name+"/f"] = content
	}
	return f
}

// attempts makes passes, each in a process of its own, until n attempts have been made, over more than the
// deadline.
func (s *site) attempts(n int) (r Result) {
	s.t.Helper()
	for range n {
		r = s.once()
		s.now = s.now.Add(3 * time.Minute)
	}
	return r
}

func TestAReleaseThatFailsGivesWayToTheLastGood(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	engine := s.moody(map[string]reconcilers.Result{"b-x=2": unhealthy})
	good := s.publish(s.draft(1, files(map[string]string{"a-x": "1", "b-x": "1", "c-x": "1", "gone-x": "1"})))
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	bad := s.publish(s.draft(2, files(map[string]string{"a-x": "2", "b-x": "2", "c-x": "1", "new-x": "1"})))

	r := s.attempts(2)

	require.Equal(t, bundle.Failed, r.Status.State)
	require.Equal(t, bad.Digest, r.Status.Release.Running.Digest, "two attempts are not enough")
	require.Empty(t, r.Status.Release.Quarantined)
	engine.take()

	r = s.once()

	require.Equal(t, bundle.Failed, r.Status.State)
	require.Equal(t, "Quarantined", r.Status.Reason)
	require.Regexp(t, `^release 2 \([0-9a-f]{8}\) was given up; release 1 \([0-9a-f]{8}\) runs: AssignmentsFailed: fails again and again: b-x \(Unhealthy: the pods crash\)$`, r.Status.Message)
	require.Equal(t, bad.Digest, r.Status.Release.Desired.Digest)
	require.Equal(t, good.Digest, r.Status.Release.Running.Digest)
	require.Len(t, r.Status.Release.Quarantined, 1)
	g := r.Status.Release.Quarantined[0]
	require.Equal(t, bad.Digest, g.Digest)
	require.Equal(t, r.Status.Release.Desired.Content, g.Content)
	require.EqualValues(t, 2, g.Sequence)
	require.Equal(t, ReasonAssignmentsFailed, g.Reason)
	require.Equal(t, s.now, g.At)
	calls := engine.take()
	require.Equal(t, "apply b-x", calls[0], "the third attempt")
	for _, call := range calls {
		require.NotEqual(t, "apply c-x", call, "what has not changed is left alone")
	}
	require.Subset(t, calls, []string{"apply a-x", "apply gone-x", "remove new-x"})
	for _, i := range r.Status.Items {
		require.Equal(t, bundle.Compliant, i.State, i.Assignment)
	}
	for name, content := range map[string]string{"a-x": "1", "b-x": "1", "c-x": "1", "gone-x": "1"} {
		requireFile(t, s.host, name+"/f", content)
	}
	require.NoDirExists(t, filepath.Join(s.host, "new-x"))
	report := s.lastReport()
	require.Equal(t, bundle.Failed, report.State)
	require.Equal(t, "Quarantined", report.Reason)
	require.Equal(t, bad.Digest, report.Desired.Digest)
	require.Equal(t, good.Digest, report.Observed.Digest)

	t.Run("it stays given up", func(t *testing.T) {
		s.registry.requests.Store(0)
		r := s.attempts(5)
		require.Equal(t, Idle, r.Verdict)
		require.EqualValues(t, 5, s.registry.requests.Load(), "nothing is fetched again")
		require.Equal(t, good.Digest, r.Status.Release.Running.Digest)
		require.Equal(t, "Quarantined", r.Status.Reason)
		require.NotContains(t, engine.take(), "apply b-x")
	})
	t.Run("so does its content in a renewal", func(t *testing.T) {
		renewal := s.publish(s.draft(3, files(map[string]string{"a-x": "2", "b-x": "2", "c-x": "1", "new-x": "1"})))
		r := s.attempts(2)
		require.Equal(t, renewal.Digest, r.Status.Release.Desired.Digest, "which was accepted")
		require.Equal(t, good.Digest, r.Status.Release.Running.Digest)
		require.Equal(t, "Quarantined", r.Status.Reason)
		require.Regexp(t, `release 3 \([0-9a-f]{8}\) was given up, as its content is that of release 2 \([0-9a-f]{8}\); release 1 \([0-9a-f]{8}\) runs`, r.Status.Message)
		require.Len(t, r.Status.Release.Quarantined, 1)
	})
	t.Run("one that is refused is told before it", func(t *testing.T) {
		forged := s.draft(9, files(map[string]string{"a-x": "9"}))
		forged.Signer = agenttest.NewKey()
		s.publish(forged)
		r := s.once()
		require.Equal(t, bundle.Rejected, r.Status.State)
		require.Equal(t, string(bundle.UntrustedKey), r.Status.Reason)
		require.Equal(t, good.Digest, r.Status.Release.Running.Digest)
		require.Len(t, r.Status.Release.Quarantined, 1)
	})
	t.Run("a newer release is tried", func(t *testing.T) {
		next := s.publish(s.draft(4, files(map[string]string{"a-x": "2", "b-x": "3", "c-x": "1"})))
		r := s.once()
		require.Equal(t, bundle.Compliant, r.Status.State)
		require.Equal(t, next.Digest, r.Status.Release.Running.Digest)
		require.Empty(t, r.Status.Reason)
		require.Len(t, r.Status.Release.Quarantined, 1, "and what was given up is still known")
	})
	t.Run("a person has it tried again", func(t *testing.T) {
		s.publish(s.draft(5, files(map[string]string{"a-x": "2", "b-x": "2", "c-x": "1", "new-x": "1"})))
		require.Equal(t, "Quarantined", s.once().Status.Reason)
		s.agent(func(a *Agent) {
			resumed, err := a.state.Resume(true, s.now)
			require.NoError(t, err)
			require.Len(t, resumed.Retried, 1)
			require.Nil(t, resumed.Held)
		})
		delete(engine.moods, "b-x=2")
		r := s.once()
		require.Equal(t, bundle.Compliant, r.Status.State)
		require.EqualValues(t, 5, r.Status.Release.Running.Sequence)
		require.Empty(t, r.Status.Release.Quarantined)
	})
}

// lastReport is the newest in the queue.
func (s *site) lastReport() (r bundle.Report) {
	s.t.Helper()
	s.agent(func(a *Agent) {
		all, err := a.state.outbox.Reports()
		require.NoError(s.t, err)
		require.NotEmpty(s.t, all)
		pem, err := a.state.who.ReportKey()
		require.NoError(s.t, err)
		keys, err := bundle.ParsePublicKeys([]byte(pem))
		require.NoError(s.t, err)
		body, _, err := bundle.OpenEnvelope(bundle.PayloadTypeReport, all[len(all)-1], keys...)
		require.NoError(s.t, err)
		require.NoError(s.t, json.Unmarshal(body, &r))
	})
	return r
}

func TestAReleaseThatFailsStaysWhere(t *testing.T) {
	t.Parallel()
	bySite := reconcilers.Result{State: bundle.Failed, Reason: "NotWritable", Fault: reconcilers.FaultSite, Message: "?"}
	for _, tc := range []struct {
		name    string
		moods   map[string]reconcilers.Result
		before  func(*site) // the second release
		second  map[string]string
		change  func([]bundle.Assignment)
		reason  string
		message string
	}{
		{
			name: "what fails asks for it", moods: map[string]reconcilers.Result{"b-x=2": unhealthy},
			change: func(as []bundle.Assignment) { as[1].OnFailure = "hold" }, reason: "OnFailureHold", message: "fails again and again: b-x (Unhealthy: the pods crash)",
		},
		{
			name: "something beside it that fails asks for it", moods: map[string]reconcilers.Result{"a-x=2": unhealthy, "b-x=2": unhealthy},
			change: func(as []bundle.Assignment) { as[1].OnFailure = "hold" }, reason: "OnFailureHold",
		},
		{name: "an assignment only progresses", moods: map[string]reconcilers.Result{"b-x=2": {State: bundle.Pending, Reason: "APIServerUnreachable"}}},
		{name: "the site is at fault", moods: map[string]reconcilers.Result{"b-x=2": bySite}},
		{name: "an engine is missing", change: func(as []bundle.Assignment) { as[1].Adapter = "flux" }},
		{
			name: "an assignment that did not change fails", moods: map[string]reconcilers.Result{"b-x=1": unhealthy}, second: map[string]string{"a-x": "2", "b-x": "1"},
			before: func(s *site) { s.moody(nil) },
		},
		{name: "no release was good", moods: map[string]reconcilers.Result{"a-x=1": unhealthy, "b-x=2": unhealthy}, reason: "NoGoodRelease"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			plain := maps.Clone(s.opts.Engines.Reconcilers)
			if tc.before == nil {
				s.moody(tc.moods)
			}
			s.publish(s.draft(1, files(map[string]string{"a-x": "1", "b-x": "1"})))
			s.once()
			if tc.before != nil {
				s.opts.Engines.Reconcilers = plain
				s.moody(tc.moods)
			}
			second := tc.second
			if second == nil {
				second = map[string]string{"a-x": "2", "b-x": "2"}
			}
			d := s.draft(2, files(second))
			d.ChangeList = tc.change
			bad := s.publish(d)

			r := s.attempts(6)

			require.Equal(t, bad.Digest, r.Status.Release.Running.Digest)
			require.Empty(t, r.Status.Release.Quarantined)
			require.Equal(t, tc.reason, r.Status.Reason)
			require.Contains(t, r.Status.Message, tc.message)
		})
	}
}

func TestWhatWasCompliantAndGoesBadLaterKeepsItsRelease(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	engine := s.moody(map[string]reconcilers.Result{})
	s.publish(s.draft(1, files(map[string]string{"a-x": "1", "b-x": "1"})))
	s.once()
	engine.moods["b-x=2"] = reconcilers.Result{State: bundle.Pending, Reason: "APIServerUnreachable"}
	second := s.publish(s.draft(2, files(map[string]string{"a-x": "2", "b-x": "2"})))
	s.once() // a-x is compliant, b-x waits: the release was never good
	engine.moods["a-x=2"] = unhealthy

	r := s.attempts(6)

	require.Equal(t, second.Digest, r.Status.Release.Running.Digest)
	require.Equal(t, bundle.Failed, r.Status.Items[0].State)
}

func TestWhatIsIllForMonthsKeepsNoReleaseFromBeingGood(t *testing.T) {
	t.Parallel()
	for name, mood := range map[string]reconcilers.Result{"ill": unhealthy, "suspended": {State: bundle.Suspended, Reason: "Suspended"}} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			engine := s.moody(map[string]reconcilers.Result{"a-x=3": unhealthy})
			contents := map[string]string{"a-x": "1", "b-x": "1"}
			s.publish(s.draft(1, files(contents)))
			s.once()
			engine.moods["b-x=1"] = mood
			contents["a-x"] = "2"
			second := s.publish(s.draft(2, files(contents)))
			s.once()
			contents["a-x"] = "3"
			s.publish(s.draft(3, files(contents)))

			r := s.attempts(3)

			require.Equal(t, second.Digest, r.Status.Release.Running.Digest)
			require.Equal(t, "Quarantined", r.Status.Reason)
			require.Equal(t, mood.State, r.Status.Items[1].State)
		})
	}
}

func TestAttemptsInHasteAreNoReasonToGiveUp(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.moody(map[string]reconcilers.Result{"a-x=2": unhealthy})
	s.publish(s.draft(1, files(map[string]string{"a-x": "1"})))
	s.once()
	bad := s.publish(s.draft(2, files(map[string]string{"a-x": "2"})))
	for range 10 {
		require.Equal(t, bad.Digest, s.once().Status.Release.Running.Digest)
	}
	s.now = s.now.Add(DefaultDeadline)
	require.EqualValues(t, 1, s.once().Status.Release.Running.Sequence)
}

func TestWhatRecoversInTimeStays(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	engine := s.moody(map[string]reconcilers.Result{"a-x=2": unhealthy})
	s.publish(s.draft(1, files(map[string]string{"a-x": "1"})))
	s.once()
	next := s.publish(s.draft(2, files(map[string]string{"a-x": "2"})))
	s.attempts(2)
	delete(engine.moods, "a-x=2")

	r := s.once()

	require.Equal(t, bundle.Compliant, r.Status.State)
	require.Equal(t, next.Digest, r.Status.Release.Running.Digest)
	s.agent(func(a *Agent) {
		require.NoError(t, a.state.db.View(func(tx *bbolt.Tx) error {
			require.Nil(t, tx.Bucket([]byte(state.Meta)).Get([]byte(keyAttempts)))
			return nil
		}))
	})
	engine.moods["a-x=2"] = unhealthy
	s.opts.Engines.Reconcilers["directory"] = engine
	r = s.attempts(6)
	require.Equal(t, bundle.Failed, r.Status.State, "once good, what fails later is no fault of the release")
	require.Equal(t, next.Digest, r.Status.Release.Running.Digest)
}

func TestAGoodReleaseThatFailsTooIsKept(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	engine := s.moody(map[string]reconcilers.Result{})
	good := s.publish(s.draft(1, files(map[string]string{"a-x": "1"})))
	s.once()
	s.publish(s.draft(2, files(map[string]string{"a-x": "2"})))
	engine.moods["a-x=1"], engine.moods["a-x=2"] = unhealthy, unhealthy
	s.attempts(3)
	engine.take()

	r := s.attempts(8)

	require.Equal(t, good.Digest, r.Status.Release.Running.Digest)
	require.Equal(t, "Quarantined", r.Status.Reason)
	require.Equal(t, bundle.Failed, r.Status.Items[0].State)
	require.Len(t, r.Status.Release.Quarantined, 1)
	require.Len(t, engine.take(), 8, "one attempt each")
}

func TestNothingIsGivenUpWhileTheClusterMustNotBeChanged(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.moody(map[string]reconcilers.Result{"a-x=2": unhealthy})
	s.publish(s.draft(1, files(map[string]string{"a-x": "1"})))
	s.once()
	bad := s.publish(s.draft(2, files(map[string]string{"a-x": "2"})))
	s.attempts(2)
	s.pause("", 0)
	require.Equal(t, bad.Digest, s.attempts(4).Status.Release.Running.Digest)
	s.resume()
	require.EqualValues(t, 1, s.once().Status.Release.Running.Sequence)
}

func TestTheQuarantineIsBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.moody(map[string]reconcilers.Result{})
	s.publish(s.draft(1, files(map[string]string{"a-x": "1"})))
	s.once()
	s.agent(func(a *Agent) {
		for n := range int64(probation.MaxQuarantined + 3) {
			p := newPass(a, scope{})
			require.NoError(t, p.remember())
			r := *p.running
			r.Release.Sequence = 100 + n
			r.Manifest.Digest = bundle.NewBlob("", []byte{byte(n)}).Descriptor.Digest
			p.running = &r
			require.NoError(t, p.giveUp(ReasonAssignmentsFailed, "?"))
		}
		st, err := a.Status()
		require.NoError(t, err)
		require.Len(t, st.Release.Quarantined, probation.MaxQuarantined)
		require.EqualValues(t, 100+probation.MaxQuarantined+2, st.Release.Quarantined[0].Sequence, "the newest are kept")
	})
}

// A new epoch is the answer to stolen keys: what those have signed and what ran well does not come back, neither
// by itself nor by a person.
func TestNothingOfAnEpochThatIsOverComesBack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.moody(map[string]reconcilers.Result{"a-x=2": unhealthy})
	s.epoch = 1
	document := agenttest.NewTrust(s.stream.Platform, s.now, agenttest.NewKey(), s.key)
	require.NoError(t, s.install(document))
	good := s.publish(s.draft(1, files(map[string]string{"a-x": "1"})))
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	document = document.Next(s.now)
	document.Document.Epoch, s.epoch = 2, 2
	s.offerTrust(document)
	next := s.publish(s.draft(1, files(map[string]string{"a-x": "2"})))

	r := s.attempts(4)

	require.Equal(t, next.Digest, r.Status.Release.Running.Digest)
	require.Equal(t, "NoGoodRelease", r.Status.Reason)
	require.ErrorIs(t, s.rollBack(good.Digest.String()), ErrNotAllowed)
}

func (s *site) rollBack(to string) (err error) {
	s.agent(func(a *Agent) { _, err = a.state.RollBack(Wish{To: to, By: "ann", Reason: "it hums"}, s.now) })
	return err
}

func TestBeingToldToEndIsNoCrash(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish(s.draft(1, files(map[string]string{"a-x": "1"})))
	s.once()
	next := s.publish(s.draft(2, files(map[string]string{"a-x": "2"})))
	engine := &recording{Reconciler: s.opts.Engines.Reconcilers["directory"], hang: "a-x"}
	s.opts.Engines.Reconcilers["directory"] = engine
	for range 2 * probation.MaxAttempts {
		s.agent(func(a *Agent) {
			ctx, cancel := context.WithCancelCause(context.Background())
			go func() {
				for len(engine.take()) == 0 {
					time.Sleep(time.Millisecond)
				}
				cancel(errors.New("SIGTERM"))
			}()
			require.Equal(t, Interrupted, a.Once(ctx, 0).Verdict)
		})
	}
	engine.hang = ""
	r := s.once()
	require.Equal(t, bundle.Compliant, r.Status.State)
	require.Equal(t, next.Digest, r.Status.Release.Running.Digest)
}

func TestAPassThatFindsNothingNewWritesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish(s.draft(1, files(map[string]string{"a-x": "1"})))
	s.once()
	s.agent(func(a *Agent) {
		commits := func() (n int) {
			require.NoError(t, a.state.db.View(func(tx *bbolt.Tx) error { n = tx.ID(); return nil }))
			return n
		}
		pass := func() { a.makePass(context.Background(), scope{from: a.source, all: true}) }
		pass() // a process says who it is
		before := commits()
		pass()
		require.Equal(t, before, commits())
	})
}
