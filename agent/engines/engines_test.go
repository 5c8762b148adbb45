package engines

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// engine says of each assignment what a test has it say, else compliant or removed, and notes its calls.
type engine struct {
	mu     sync.Mutex
	says   map[string]bundle.State
	calls  []string
	during func(call string) // nil does nothing
}

func (e *engine) answer(call string, a reconcilers.Assignment, state bundle.State) reconcilers.Result {
	e.mu.Lock()
	e.calls = append(e.calls, call+" "+a.Name)
	if says := e.says[a.Name]; says != "" {
		state = says
	}
	e.mu.Unlock()
	if e.during != nil {
		e.during(call + " " + a.Name)
	}
	return reconcilers.Result{State: state}
}

func (e *engine) Apply(_ context.Context, a reconcilers.Assignment) reconcilers.Result {
	return e.answer("apply", a, bundle.Compliant)
}

func (e *engine) Observe(_ context.Context, a reconcilers.Assignment) reconcilers.Result {
	return e.answer("observe", a, bundle.Compliant)
}

func (e *engine) Remove(_ context.Context, a reconcilers.Assignment) reconcilers.Result {
	return e.answer("remove", a, bundle.Removed)
}

// guard lets everything be changed until it was asked so often; zero is for ever.
type guard struct {
	asked, most int
	err         error
}

func (g *guard) closed() bool { return g.most > 0 && g.asked > g.most }

func (g *guard) MayChange(context.Context) (bool, error) {
	g.asked++
	return !g.closed(), g.err
}

func (g *guard) Allowed(_ assignments.Record, do assignments.Operation) assignments.Operation {
	if g.closed() && do.Changes() {
		return assignments.Nothing
	}
	return do
}

// fixture has one engine, and the records of a new release's assignments.
type fixture struct {
	*testing.T
	*engine
	db      *state.DB
	set     *Set
	rollout *assignments.Rollout
}

// newFixture returns one with the assignments in specs, which are to be applied, and those named gone, which are to be
// removed.
func newFixture(t *testing.T, specs []bundle.Assignment, gone ...string) *fixture {
	db, err := state.Open(t.TempDir(), assignments.Bucket, assignments.LedgerBucket)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, db.Init(state.CheckSchema, func(*bbolt.Tx) error { return nil }))
	f := &fixture{T: t, engine: &engine{says: map[string]bundle.State{}}, db: db}
	f.set = New(db, content.New(db, content.Options{}), Options{
		Reconcilers: map[string]reconcilers.Reconciler{"a": f.engine, "b": f.engine},
		Deadline:    time.Minute, Now: func() time.Time { return epoch },
	})
	var records []assignments.Record
	for _, spec := range specs {
		spec.Content = digest.FromString(spec.Name)
		records = append(records, assignments.Record{}.Listed(spec, spec.Adapter, epoch))
	}
	for _, name := range gone {
		spec := bundle.Assignment{Name: name, Adapter: "a", Content: digest.FromString(name)}
		r := assignments.Record{}.Listed(spec, "a", epoch).Begun("a", epoch).After(reconcilers.Result{State: bundle.Compliant}, assignments.Rules{}, epoch)
		records = append(records, r.Dropped(epoch))
	}
	require.NoError(t, assignments.Write(db, records))
	f.rollout, err = f.set.Rollout(records)
	require.NoError(t, err)
	return f
}

// written is how the assignments stand on the disk, as NAME STATE REASON.
func (f *fixture) written() (all []string) {
	require.NoError(f, f.db.View(func(tx *bbolt.Tx) error {
		rs, err := new(assignments.Reader).All(tx)
		for _, r := range rs {
			all = append(all, r.Spec.Name+" "+string(r.Item.State)+" "+r.Item.Reason)
		}
		return err
	}))
	return all
}

func TestARoundFollowsDependenciesAndRemovesLast(t *testing.T) {
	f := newFixture(t, []bundle.Assignment{{Name: "web", Adapter: "a", DependsOn: []string{"db"}}, {Name: "db", Adapter: "b"}}, "old")

	changes, err := f.set.Round(t.Context(), f.rollout, f.set.Due, &guard{}, Changes{})

	require.NoError(t, err)
	require.Equal(t, Changes{Called: map[string]bool{"db": true, "web": true, "old": true}, Began: true}, changes)
	require.Equal(t, []string{"apply db", "apply web", "remove old"}, f.calls)
	require.Equal(t, []string{"db compliant ", "web compliant "}, f.written())

	f.calls = nil
	changes, err = f.set.Round(t.Context(), f.rollout, f.set.Due, &guard{}, Changes{})
	require.NoError(t, err)
	require.Equal(t, Changes{Called: map[string]bool{}}, changes)
	require.Empty(t, f.calls, "all has what it needs")
}

func TestAnAssignmentIsOnTheDiskAsBegunBeforeItsEngineIsCalled(t *testing.T) {
	f := newFixture(t, []bundle.Assignment{{Name: "web", Adapter: "a"}})
	var during []string
	f.during = func(string) { during = f.written() }
	_, err := f.set.Round(t.Context(), f.rollout, f.set.Due, &guard{}, Changes{})
	require.NoError(t, err)
	require.Equal(t, []string{"web applying "}, during)
}

func TestNothingIsBegunOnceTheClusterMustNotBeChanged(t *testing.T) {
	var specs []bundle.Assignment
	for i := range Workers + 2 {
		specs = append(specs, bundle.Assignment{Name: string(rune('a' + i)), Adapter: "a"})
	}
	f := newFixture(t, specs, "z")

	changes, err := f.set.Round(t.Context(), f.rollout, f.set.Due, &guard{most: 1}, Changes{})

	require.NoError(t, err)
	require.Len(t, changes.Called, Workers, "what was begun ends")
	slices.Sort(f.calls)
	require.Equal(t, []string{"apply a", "apply b", "apply c", "apply d"}, f.calls)
	require.Equal(t, []string{"a compliant ", "b compliant ", "c compliant ", "d compliant ", "e pending ", "f pending ", "z pending Removing"}, f.written())
	require.Empty(t, f.rollout.Of("f").Applied, "it is as it was before")
}

func TestAGuardThatCannotBeAskedEndsARound(t *testing.T) {
	f := newFixture(t, []bundle.Assignment{{Name: "web", Adapter: "a"}})
	unasked := errors.New("unasked")
	_, err := f.set.Round(t.Context(), f.rollout, f.set.Due, &guard{err: unasked}, Changes{})
	require.ErrorIs(t, err, unasked)
	require.Empty(t, f.calls)
	require.Equal(t, []string{"web pending "}, f.written())
}

func TestWhatIsCutOffStaysAsApplying(t *testing.T) {
	f := newFixture(t, []bundle.Assignment{{Name: "web", Adapter: "a"}})
	ctx, cancel := context.WithCancel(t.Context())
	f.during = func(string) { cancel() }
	_, err := f.set.Round(ctx, f.rollout, f.set.Due, &guard{}, Changes{})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []string{"web applying "}, f.written())
}

func TestDriftIsCorrectedOnce(t *testing.T) {
	observe := func(assignments.Record) assignments.Operation { return assignments.Observe }
	f := newFixture(t, []bundle.Assignment{{Name: "web", Adapter: "a"}})
	since, err := f.set.Round(t.Context(), f.rollout, f.set.Due, &guard{}, Changes{})
	require.NoError(t, err)
	f.says["web"] = bundle.Drifted

	f.calls = nil
	_, err = f.set.Round(t.Context(), f.rollout, observe, &guard{}, since)
	require.NoError(t, err)
	require.Equal(t, []string{"observe web"}, f.calls, "it was given a moment ago")

	f.calls = nil
	changes, err := f.set.Round(t.Context(), f.rollout, observe, &guard{}, Changes{})
	require.NoError(t, err)
	require.Equal(t, []string{"observe web", "apply web"}, f.calls)
	require.Equal(t, Changes{Called: map[string]bool{"web": true}}, changes, "nothing of it is new")
}

func TestAnAssignmentWithoutItsEngineHasFailed(t *testing.T) {
	f := newFixture(t, []bundle.Assignment{{Name: "web", Adapter: "c"}})
	require.Equal(t, []string{"web failed AdapterUnavailable"}, f.written())
	require.Equal(t, assignments.Nothing, f.set.Due(f.rollout.Of("web")))
}
