package agent

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/directory"
)

// slow is an engine that fills a folder, and calls it what a test says instead of compliant or removed.
type slow struct {
	recording
	root string
	mu   sync.Mutex
	says map[string]bundle.State // by assignment
}

func newSlow(t *testing.T) *slow {
	root := filepath.Join(t.TempDir(), "slow")
	return &slow{root: root, recording: recording{Reconciler: directory.New(root, directory.Options{})}, says: map[string]bundle.State{}}
}

func (s *slow) say(assignment string, state bundle.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.says[assignment] = state
}

func (s *slow) said(a reconcilers.Assignment, res reconcilers.Result) reconcilers.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.says[a.Name]; state != "" {
		res.State, res.Reason = state, "AsTold"
	}
	return res
}

func (s *slow) Apply(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	return s.said(a, s.recording.Apply(ctx, a))
}

func (s *slow) Observe(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	return s.said(a, s.recording.Observe(ctx, a))
}

func (s *slow) Remove(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	return s.said(a, s.recording.Remove(ctx, a))
}

// newSlowSite is a site with the adapters directory and slow.
func newSlowSite(t *testing.T) (*site, *slow) {
	s, engine := newSite(t), newSlow(t)
	s.opts.Engines.Reconcilers["slow"] = engine
	return s, engine
}

// publishAs publishes release n with what change makes of its assignments.
func (s *site) publishAs(n int64, files map[string]string, change map[string]func(*bundle.Assignment)) draft {
	s.t.Helper()
	d := s.draft(n, files)
	d.ChangeList = func(as []bundle.Assignment) {
		for i := range as {
			if f := change[as[i].Name]; f != nil {
				f(&as[i])
			}
		}
	}
	s.publish(d)
	return d
}

// like returns what sets an assignment's adapter, wave and dependencies.
func like(adapter string, wave int, dependsOn ...string) func(*bundle.Assignment) {
	return func(a *bundle.Assignment) { a.Adapter, a.Wave, a.DependsOn = adapter, wave, dependsOn }
}

// item is how an assignment stands.
func item(t *testing.T, r Result, name string) bundle.Item {
	t.Helper()
	i := slices.IndexFunc(r.Status.Items, func(i bundle.Item) bool { return i.Assignment == name })
	require.GreaterOrEqual(t, i, 0, "%s is not among %v", name, r.Status.Items)
	return r.Status.Items[i]
}

// requireWaits requires that an assignment is pending, for that reason, and says so in these words.
func requireWaits(t *testing.T, r Result, name, reason, message string) {
	t.Helper()
	i := item(t, r, name)
	require.Equal(t, []string{"pending", reason, message}, []string{string(i.State), i.Reason, i.Message})
}

var webNeedsDB = map[string]func(*bundle.Assignment){"db-x": like("slow", 0), "web-x": like("directory", 0, "db-x")}

func TestADependentWaitsForAnotherEngine(t *testing.T) {
	s, engine := newSlowSite(t)
	engine.say("db-x", bundle.Progressing)
	s.publishAs(1, map[string]string{"db-x/f": "1", "web-x/f": "1", "other-x/f": "1"}, webNeedsDB)

	r := s.once()

	requireWaits(t, r, "web-x", "DependencyNotReady", "waits for db-x (progressing: AsTold)")
	require.NoDirExists(t, filepath.Join(s.host, "web-x"))
	require.Equal(t, bundle.Compliant, item(t, r, "other-x").State)

	engine.say("db-x", "")
	s.agent(func(a *Agent) {
		require.True(t, a.makePass(context.Background(), scope{}).moved, "what has been set free is looked at again soon")
		require.False(t, a.makePass(context.Background(), scope{}).moved)
	})
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	requireFile(t, s.host, "web-x/f", "1")
}

func TestAnUpgradeWaitsForTheDependencysNewContent(t *testing.T) {
	s, engine := newSlowSite(t)
	s.publishAs(1, map[string]string{"db-x/f": "1", "web-x/f": "1"}, webNeedsDB)
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	engine.say("db-x", bundle.Failed)
	s.publishAs(2, map[string]string{"db-x/f": "2", "web-x/f": "2"}, webNeedsDB)

	r := s.once()

	requireWaits(t, r, "web-x", "DependencyNotReady", "waits for db-x (failed: AsTold)")
	requireFile(t, s.host, "web-x/f", "1")

	s.publishAs(3, map[string]string{"db-x/f": "2", "web-x/f": "1"}, webNeedsDB)
	require.Equal(t, bundle.Compliant, item(t, s.once(), "web-x").State, "it has this content")

	engine.say("db-x", "")
	s.publishAs(4, map[string]string{"db-x/f": "3", "web-x/f": "3"}, webNeedsDB)
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	requireFile(t, s.host, "web-x/f", "3")
}

func TestADependencyThatFailsLaterTakesNobodyDown(t *testing.T) {
	s, engine := newSlowSite(t)
	s.publishAs(1, map[string]string{"db-x/f": "1", "web-x/f": "1"}, webNeedsDB)
	s.once()
	engine.say("db-x", bundle.Failed)
	require.NoError(t, os.Remove(filepath.Join(s.host, "web-x/f")))

	r := s.once()

	require.Equal(t, bundle.Failed, item(t, r, "db-x").State)
	require.Equal(t, "DriftCorrected", item(t, r, "web-x").Reason)
	requireFile(t, s.host, "web-x/f", "1")
}

func TestAWaveBeginsWhenTheLowerOneIsThrough(t *testing.T) {
	s, engine := newSlowSite(t)
	engine.say("a-x", bundle.Progressing)
	engine.say("b-x", bundle.Failed)
	files := map[string]string{"a-x/f": "1", "b-x/f": "1", "c-x/f": "1", "d-x/f": "1"}
	s.publishAs(1, files, map[string]func(*bundle.Assignment){
		"a-x": like("slow", -1), "b-x": like("slow", -1), "c-x": like("directory", 0, "b-x"), "d-x": like("directory", 1),
	})

	r := s.once()
	requireWaits(t, r, "d-x", "WaveNotReady", "wave 1 begins after wave -1: a-x (progressing: AsTold)")
	requireWaits(t, r, "c-x", "DependencyNotReady", "waits for b-x (failed: AsTold)")

	engine.say("a-x", "")
	r = s.once()
	require.Equal(t, bundle.Compliant, item(t, r, "d-x").State, "neither what failed nor what waits for it keeps the next wave")
	require.Equal(t, bundle.Pending, item(t, r, "c-x").State)
}

func TestADependencyOfALaterWaveGoesFirst(t *testing.T) {
	s, engine := newSlowSite(t)
	s.publishAs(1, map[string]string{"a-x/f": "1", "b-x/f": "1"}, map[string]func(*bundle.Assignment){
		"a-x": like("slow", 0, "b-x"), "b-x": like("slow", 7),
	})
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	require.Equal(t, []string{"apply b-x", "apply a-x"}, engine.take())
}

func TestAWaveWaitsNoLongerThanTheDeadline(t *testing.T) {
	s, engine := newSlowSite(t)
	engine.say("a-x", bundle.Pending)
	s.publishAs(1, map[string]string{"a-x/f": "1", "b-x/f": "1"}, map[string]func(*bundle.Assignment){
		"a-x": like("slow", 0), "b-x": like("directory", 1),
	})
	requireWaits(t, s.once(), "b-x", "WaveNotReady", "wave 1 begins after wave 0: a-x (pending: AsTold)")
	s.now = s.now.Add(DefaultDeadline + time.Second)
	require.Equal(t, bundle.Compliant, item(t, s.once(), "b-x").State)
}

func TestRemovalRunsInReverse(t *testing.T) {
	s, engine := newSlowSite(t)
	files := map[string]string{"db-x/f": "1", "web-x/f": "1", "late-x/f": "1", "other-x/f": "1"}
	s.publishAs(1, files, map[string]func(*bundle.Assignment){
		"db-x": like("directory", 0), "web-x": like("slow", 0, "db-x"), "late-x": like("slow", 1), "other-x": like("directory", 0),
	})
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	engine.say("web-x", bundle.Progressing)
	engine.say("late-x", bundle.Progressing)
	s.publish(s.draft(2, nil))

	r := s.once()
	requireWaits(t, r, "db-x", "Removing", "waits for web-x (pending: Removing), which depends on it")
	requireWaits(t, r, "other-x", "Removing", "wave 0 goes after wave 1: late-x (progressing: AsTold)")

	engine.say("late-x", "")
	r = s.once()
	requireWaits(t, r, "db-x", "Removing", "waits for web-x (progressing: AsTold), which depends on it")
	require.Len(t, r.Status.Items, 2, "an unrelated one is gone: %v", r.Status.Items)
	requireFile(t, s.host, "db-x/f", "1")

	engine.say("web-x", "")
	require.Empty(t, s.once().Status.Items)
	require.NoDirExists(t, filepath.Join(s.host, "db-x"))
}

func TestWhatRunningContentNeedsStaysUntilItHasGivenWay(t *testing.T) {
	s, engine := newSlowSite(t)
	s.publishAs(1, map[string]string{"db-x/f": "1", "web-x/f": "1"}, webNeedsDB)
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	engine.say("cache-x", bundle.Progressing)
	s.publishAs(2, map[string]string{"cache-x/f": "1", "web-x/f": "2"}, map[string]func(*bundle.Assignment){
		"cache-x": like("slow", 0), "web-x": like("directory", 0, "cache-x"),
	})

	r := s.once()
	requireWaits(t, r, "db-x", "Removing", "waits for web-x (pending: DependencyNotReady), which depends on it")
	requireFile(t, engine.root, "db-x/f", "1")

	engine.say("cache-x", "")
	r = s.once()
	require.Equal(t, bundle.Compliant, r.Status.State)
	require.NoDirExists(t, filepath.Join(engine.root, "db-x"))
}

// wherry's publisher makes no circles, and names only existing assignments; another one may not.
func TestWhatCanNeverBeginDoesNotHang(t *testing.T) {
	s, _ := newSlowSite(t)
	files := map[string]string{"a-x/f": "1", "b-x/f": "1", "c-x/f": "1", "d-x/f": "1"}
	circle := map[string]func(*bundle.Assignment){
		"a-x": like("directory", 0, "b-x"), "b-x": like("directory", 0, "a-x"),
		"c-x": like("directory", 0, "z-x"), "d-x": like("directory", 3),
	}
	s.publishAs(1, files, circle)
	var r Result
	s.agent(func(a *Agent) { r = a.Once(context.Background(), time.Hour) })
	requireWaits(t, r, "a-x", "DependencyNotReady", "waits for b-x (pending: DependencyNotReady)")
	requireWaits(t, r, "c-x", "DependencyNotReady", "waits for z-x (not in this release)")
	require.Equal(t, bundle.Compliant, item(t, r, "d-x").State)

	s.publish(s.draft(2, files))
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	delete(circle, "c-x")
	s.publishAs(3, files, circle)
	require.Equal(t, bundle.Compliant, s.once().Status.State, "they have this content")
	s.publish(s.draft(4, nil))
	require.Empty(t, s.once().Status.Items, "what went in a circle can go")
}

func TestAnInterruptedPassGoesOnWhereItWas(t *testing.T) {
	s, engine := newSlowSite(t)
	engine.hang = "web-x"
	ctx, cancel := context.WithCancel(context.Background())
	s.publishAs(1, map[string]string{"db-x/f": "1", "web-x/f": "1", "last-x/f": "1"}, map[string]func(*bundle.Assignment){
		"db-x": like("slow", 0), "web-x": like("slow", 0, "db-x"), "last-x": like("directory", 0, "web-x"),
	})
	var ended sync.WaitGroup
	ended.Go(func() { s.agent(func(a *Agent) { require.Equal(t, Interrupted, a.Once(ctx, 0).Verdict) }) })
	require.Eventually(t, func() bool { return slices.Contains(engine.seen(), "apply web-x") }, time.Minute, time.Millisecond)
	cancel()
	ended.Wait()
	require.Equal(t, []string{"apply db-x", "apply web-x"}, engine.take())
	engine.hang = ""

	r := s.once()

	require.Equal(t, bundle.Compliant, r.Status.State)
	require.Equal(t, []string{"apply web-x", "observe db-x"}, engine.take())
	requireFile(t, s.host, "last-x/f", "1")
}
