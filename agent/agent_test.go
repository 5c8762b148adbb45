package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/directory"
)

func TestAReleaseIsAppliedAndReported(t *testing.T) {
	s := newSite(t)
	d := s.publish(s.draft(1, map[string]string{"shop-main/config.yaml": "a: 1", "radar-main/config.yaml": "b: 2"}))

	r := s.once()

	require.Equal(t, Done, r.Verdict, r.Error)
	require.Equal(t, bundle.Compliant, r.Status.State)
	require.Equal(t, d.Digest, r.Status.Release.Running.Digest)
	require.Equal(t, d.Digest, r.Status.Release.Desired.Digest)
	require.Nil(t, r.Status.Release.Refused)
	require.Len(t, r.Status.Items, 2)
	require.Equal(t, 1, r.Status.Queue.Length)
	require.Equal(t, s.now, *r.Status.LastContact)
	requireFile(t, s.host, "shop-main/config.yaml", "a: 1")
	requireFile(t, s.host, "radar-main/config.yaml", "b: 2")
}

func TestAnUnchangedTagCostsOneRequestAndNoReport(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, map[string]string{"shop-main/config.yaml": "a: 1"}))
	s.once()
	s.registry.requests.Store(0)

	r := s.once()

	require.Equal(t, Idle, r.Verdict, r.Error)
	require.EqualValues(t, 1, s.registry.requests.Load())
	require.Equal(t, 1, r.Status.Queue.Length)
}

func TestOnlyWhatChangedIsAppliedAndWhatIsNoLongerListedIsRemoved(t *testing.T) {
	s := newSite(t)
	engine := &recording{Reconciler: s.opts.Engines.Reconcilers["directory"]}
	s.opts.Engines.Reconcilers["directory"] = engine
	s.publish(s.draft(1, map[string]string{"a-x/f": "1", "b-x/f": "1", "c-x/f": "1"}))
	s.once()
	require.ElementsMatch(t, []string{"apply a-x", "apply b-x", "apply c-x"}, engine.take())
	s.publish(s.draft(2, map[string]string{"a-x/f": "1", "b-x/f": "2", "d-x/f": "1"}))

	r := s.once()

	calls := engine.take()
	require.ElementsMatch(t, []string{"apply b-x", "apply d-x"}, calls[:2])
	require.Equal(t, []string{"remove c-x", "observe a-x"}, calls[2:])
	require.Equal(t, bundle.Compliant, r.Status.State)
	require.Len(t, r.Status.Items, 3)
	requireFile(t, s.host, "b-x/f", "2")
	require.NoDirExists(t, filepath.Join(s.host, "c-x"))
}

func TestAnEmptySignedReleaseRemovesEverything(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	s.once()
	s.publish(s.draft(2, nil))

	r := s.once()

	require.Equal(t, bundle.Compliant, r.Status.State)
	require.Empty(t, r.Status.Items)
	require.NoDirExists(t, filepath.Join(s.host, "a-x"))
}

func TestNothingIsRemovedBecauseNothingCanBeRead(t *testing.T) {
	for _, tc := range []struct {
		name   string
		lose   func(s *site)
		reason string
	}{
		{"registry is away", func(s *site) { s.registry.away.Store(true) }, "Unreachable"},
		{"tag is gone", func(s *site) {
			other := s.stream
			other.ClusterType = "nobody"
			s.repo = s.repository(other)
		}, "NotFound"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSite(t)
			s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
			s.once()
			tc.lose(s)
			require.NoError(t, os.RemoveAll(filepath.Join(s.host, "a-x")))

			r := s.once()

			require.Equal(t, Unreachable, r.Verdict)
			require.Equal(t, bundle.Compliant, r.Status.State, "what is here is kept, and drift corrected, offline as well")
			require.Equal(t, tc.reason, r.Status.Reason)
			requireFile(t, s.host, "a-x/f", "1")
		})
	}
}

func TestAnAgentThatHasNeverSeenAReleaseIsPending(t *testing.T) {
	s := newSite(t)
	s.registry.away.Store(true)

	r := s.once()

	require.Equal(t, Unreachable, r.Verdict)
	require.Equal(t, bundle.Pending, r.Status.State)
	require.Equal(t, "Unreachable", r.Status.Reason)
	require.Empty(t, r.Status.Items)
	require.Nil(t, r.Status.Release.Running)
}

func TestDriftIsCorrectedAndSaid(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	s.once()
	require.NoError(t, os.WriteFile(filepath.Join(s.host, "a-x/f"), []byte("changed"), 0o600))

	r := s.once()

	require.Equal(t, bundle.Compliant, r.Status.State)
	require.Equal(t, "DriftCorrected", r.Status.Items[0].Reason)
	requireFile(t, s.host, "a-x/f", "1")
	require.Contains(t, s.log.String(), "drift found")
	require.Equal(t, 2, r.Status.Queue.Length)
	require.Empty(t, s.once().Status.Items[0].Reason)
}

func TestAnAssignmentFailsAlone(t *testing.T) {
	s := newSite(t)
	s.opts.Engines.Adapter = ""
	d := s.draft(1, map[string]string{"a-x/f": "1", "b-x/f": "1"})
	d.ChangeList = func(as []bundle.Assignment) { as[0].Adapter = "flux" }
	s.publish(d)

	r := s.once()

	require.Equal(t, bundle.Failed, r.Status.State)
	require.Equal(t, "AdapterUnavailable", r.Status.Items[0].Reason)
	require.Contains(t, r.Status.Items[0].Message, `"flux"`)
	require.Contains(t, r.Status.Items[0].Message, "directory")
	require.Equal(t, bundle.Compliant, r.Status.Items[1].State)

	s.publish(s.draft(2, map[string]string{"b-x/f": "1"}))
	r = s.once()
	require.Equal(t, bundle.Compliant, r.Status.State, "what no engine ever had can go: %v", r.Status.Items)
}

func TestTheAdapterThatIsTakenInsteadIsSaid(t *testing.T) {
	s := newSite(t)
	d := s.draft(1, map[string]string{"a-x/f": "1"})
	d.Adapter = "flux"
	s.publish(d)
	require.Equal(t, "AdapterUnavailable", s.once().Status.Items[0].Reason)
	s.opts.Engines.Adapter = "directory"

	r := s.once()

	require.Equal(t, bundle.Compliant, r.Status.State)
	require.Equal(t, "directory", r.Status.Items[0].Adapter)
}

func TestAnotherAdapterTakesOverOnlyAfterTheFirstHasLetGo(t *testing.T) {
	s := newSite(t)
	other := filepath.Join(t.TempDir(), "other")
	s.opts.Engines.Reconcilers["elsewhere"] = directory.New(other, directory.Options{})
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	s.once()
	s.opts.Engines.Adapter = "elsewhere"

	r := s.once()

	require.Equal(t, bundle.Compliant, r.Status.State)
	require.Equal(t, "elsewhere", r.Status.Items[0].Adapter)
	requireFile(t, other, "a-x/f", "1")
	require.NoDirExists(t, filepath.Join(s.host, "a-x"))
}

func TestAnEngineThatHangsHoldsUpOnlyItsAssignment(t *testing.T) {
	t.Parallel() // as most of its time is waited
	s := newSite(t)
	s.opts.Engines.Reconcilers["directory"] = &recording{Reconciler: s.opts.Engines.Reconcilers["directory"], hang: "a-x"}
	s.publish(s.draft(1, map[string]string{"a-x/f": "1", "b-x/f": "1"}))
	for deadline := time.Second; ; deadline *= 2 { // until it is enough for the other one
		s.opts.Engines.Deadline = deadline

		r := s.once()

		require.Equal(t, bundle.Progressing, r.Status.State)
		require.Equal(t, bundle.Progressing, r.Status.Items[0].State)
		if r.Status.Items[1].State == bundle.Compliant {
			return
		}
		require.Less(t, deadline, time.Minute)
	}
}

func TestWhatFollowsABranchIsObservedInEveryPass(t *testing.T) {
	s := newSite(t)
	engine := &recording{Reconciler: s.opts.Engines.Reconcilers["directory"], floats: "a-x"}
	s.opts.Engines.Reconcilers["directory"] = engine
	s.publish(s.draft(1, map[string]string{"a-x/f": "1", "b-x/f": "1"}))
	s.once()
	engine.take()

	s.agent(func(a *Agent) { a.makePass(context.Background(), scope{}) })

	require.Equal(t, []string{"observe a-x"}, engine.take())
}

func TestADamagedDiskIsNoticedAndHealed(t *testing.T) {
	for _, tc := range []struct {
		name   string
		damage func(t *testing.T, s *site, tree, folder, layer string)
	}{
		{"file changed", func(t *testing.T, _ *site, _, folder, _ string) {
			require.NoError(t, os.WriteFile(filepath.Join(folder, "f"), []byte("?"), 0o600))
		}},
		{"tree gone", func(t *testing.T, _ *site, tree, _, _ string) { require.NoError(t, os.RemoveAll(tree)) }},
		{"files gone", func(t *testing.T, _ *site, _, folder, _ string) { require.NoError(t, os.RemoveAll(folder)) }},
		{"files gone and layer damaged", func(t *testing.T, _ *site, _, folder, layer string) {
			require.NoError(t, os.RemoveAll(folder))
			require.NoError(t, os.Truncate(layer, 10))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSite(t)
			s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
			s.once()
			var tree, folder, layer string
			s.agent(func(a *Agent) {
				p := newPass(a, scope{})
				require.NoError(t, p.remember())
				tree = filepath.Join(s.dir, content.TreesDir, p.running.Release.Content.DiffID.Encoded())
				list, err := a.content.Assignments(p.running)
				require.NoError(t, err)
				folder = a.content.Folder(list[0].Content)
				layer = filepath.Join(s.dir, state.StoreDir, "blobs/sha256", p.running.Tree.Digest.Encoded())
			})
			tc.damage(t, s, tree, folder, layer)
			require.NoError(t, os.RemoveAll(filepath.Join(s.host, "a-x")))

			r := s.once()

			require.Equal(t, bundle.Compliant, r.Status.State, r.Error)
			requireFile(t, s.host, "a-x/f", "1")
			requireFile(t, folder, "f", "1")
		})
	}
}

func TestAReleaseThatWasStagedIsAppliedWithoutTheRegistry(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	s.once()
	d := s.publish(s.draft(2, map[string]string{"a-x/f": "2"}))
	s.agent(func(a *Agent) { // ends as if killed before apply
		p := newPass(a, scope{from: a.source})
		require.NoError(t, p.remember())
		_, out := p.puller().take(context.Background())
		require.Equal(t, done, out)
	})
	requireFile(t, s.host, "a-x/f", "1")
	s.registry.away.Store(true)

	r := s.once()

	require.Equal(t, Unreachable, r.Verdict)
	require.Equal(t, bundle.Compliant, r.Status.State)
	require.Equal(t, d.Digest, r.Status.Release.Running.Digest)
	requireFile(t, s.host, "a-x/f", "2")
	require.Contains(t, s.log.String(), "a step was interrupted and is done again")
}

func TestAFaultOfThisMachineLeavesTheRunningReleaseAndHeals(t *testing.T) {
	for _, folder := range []string{state.StoreDir, content.TreesDir, content.ContentsDir} {
		t.Run(folder+" cannot be written", func(t *testing.T) {
			s := newSite(t)
			good := s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
			s.once()
			path := filepath.Join(s.dir, folder)
			require.NoError(t, os.RemoveAll(path))
			require.NoError(t, os.WriteFile(path, nil, 0o600)) // a file where a folder belongs
			d := s.publish(s.draft(2, map[string]string{"a-x/f": "2"}))

			r := s.once()

			require.Equal(t, Broken, r.Verdict, r.Error)
			require.Equal(t, "LocalFailure", r.Status.Reason)
			require.NotEmpty(t, r.Status.Message)
			require.Equal(t, good.Digest, r.Status.Release.Running.Digest)
			requireFile(t, s.host, "a-x/f", "1")

			require.NoError(t, os.Remove(path))
			r = s.once()
			require.Equal(t, Done, r.Verdict, r.Error)
			require.Equal(t, d.Digest, r.Status.Release.Running.Digest)
			require.Empty(t, r.Status.Reason)
			requireFile(t, s.host, "a-x/f", "2")
		})
	}
}

func TestOnlyReleasesInUseStayOnDisk(t *testing.T) {
	s := newSite(t)
	for n := range int64(4) {
		s.publish(s.draft(n+1, map[string]string{"a-x/f": fmt.Sprint(n)}))
		require.Equal(t, bundle.Compliant, s.once().Status.State)
	}
	for _, folder := range []string{content.TreesDir, content.ContentsDir} {
		entries, err := os.ReadDir(filepath.Join(s.dir, folder))
		require.NoError(t, err)
		require.Len(t, entries, 1)
	}
	blobs, err := os.ReadDir(filepath.Join(s.dir, state.StoreDir, "blobs/sha256"))
	require.NoError(t, err)
	require.Len(t, blobs, 6, "manifest, release document and layer of what runs, and of what was good before")
}

func TestATreeIsNotFetchedForAReleaseOfEqualContent(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	s.once()
	s.registry.blobs.Store(0)
	d := s.publish(s.draft(2, map[string]string{"a-x/f": "1"}))

	r := s.once()

	require.Equal(t, d.Digest, r.Status.Release.Running.Digest)
	require.Zero(t, s.registry.blobs.Load())
	require.Equal(t, Idle, s.once().Verdict)
}

// recording notes the calls of an engine. The assignment called hang never gets an answer.
type recording struct {
	reconcilers.Reconciler
	mu    sync.Mutex
	calls []string
	hang  string
	// floats names an assignment that follows a branch.
	floats string
}

func (r *recording) note(call string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call)
}

func (r *recording) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

func (r *recording) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

func (r *recording) Apply(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	r.note("apply " + a.Name)
	if a.Name == r.hang {
		<-ctx.Done()
		return reconcilers.Result{State: bundle.Progressing, Reason: "TimedOut"}
	}
	res := r.Reconciler.Apply(ctx, a)
	res.Floating = a.Name == r.floats
	return res
}

func (r *recording) Observe(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	r.note("observe " + a.Name)
	if a.Name == r.hang {
		<-ctx.Done()
		return reconcilers.Result{State: bundle.Progressing, Reason: "TimedOut"}
	}
	res := r.Reconciler.Observe(ctx, a)
	res.Floating = a.Name == r.floats
	return res
}

func (r *recording) Remove(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	r.note("remove " + a.Name)
	return r.Reconciler.Remove(ctx, a)
}

func requireFile(t testing.TB, dir, name, want string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	require.Equal(t, want, string(got))
}
