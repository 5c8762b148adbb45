package freeze

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/engines"
	"github.com/wherry-dev/wherry/agent/window"
	"github.com/wherry-dev/wherry/bundle"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// asked is a cause that gives the test's answer, and counts its calls.
type asked struct {
	says  *Freeze
	err   error
	times int
}

func (a *asked) ask(context.Context) (*Freeze, error) {
	a.times++
	return a.says, a.err
}

// newGuard returns a guard that asks anew each time.
func newGuard(causes ...Cause) *Guard {
	return &Guard{
		Causes: causes, Engines: engines.New(nil, nil, engines.Options{}), OnCluster: []string{"flux"},
		Now: func() time.Time { return epoch }, Rest: func(time.Duration) time.Duration { return 0 },
	}
}

func TestTheFirstCauseCounts(t *testing.T) {
	first, second := &asked{says: &Freeze{Reason: "First"}}, &asked{says: &Freeze{Reason: "Second"}}
	g := newGuard(Cause{Ask: first.ask}, Cause{Ask: second.ask})
	require.NoError(t, g.Begin(t.Context()))
	require.Equal(t, &Freeze{Reason: "First", Since: epoch}, g.Found(), "nothing waits for it yet")
	ok, err := g.MayChange(t.Context())
	require.NoError(t, err)
	require.False(t, ok)
	require.Equal(t, &Freeze{Reason: "First", Since: epoch, Holding: true}, g.Found())
	require.Equal(t, []int{1, 0}, []int{first.times, second.times}, "what was found counts for the rest of the pass")
}

func TestCausesAreAskedWhenTheyAreToBe(t *testing.T) {
	always, once, onNeed := &asked{}, &asked{}, &asked{}
	g := newGuard(Cause{Ask: always.ask}, Cause{Ask: once.ask, Once: true}, Cause{Ask: onNeed.ask, OnNeed: true})
	require.NoError(t, g.Begin(t.Context()))
	require.Equal(t, []int{1, 1, 0}, []int{always.times, once.times, onNeed.times})
	for range 2 {
		ok, err := g.MayChange(t.Context())
		require.NoError(t, err)
		require.True(t, ok)
	}
	require.Equal(t, []int{3, 1, 2}, []int{always.times, once.times, onNeed.times})

	g.Rest = func(time.Duration) time.Duration { return time.Hour }
	for range 2 {
		_, err := g.MayChange(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, 4, always.times, "it may rest after that")

	onNeed.err = errors.New("unasked")
	g = newGuard(Cause{Ask: onNeed.ask, OnNeed: true})
	_, err := g.MayChange(t.Context())
	require.ErrorIs(t, err, onNeed.err)
}

func TestAFreezeKeepsSinceWhenItStands(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before *Freeze
		says   Freeze
		want   time.Time
	}{
		{"a new one", nil, Freeze{Reason: "A"}, epoch},
		{"the same", &Freeze{Reason: "A", Since: epoch.Add(-time.Hour)}, Freeze{Reason: "A"}, epoch.Add(-time.Hour)},
		{"another one", &Freeze{Reason: "B", Since: epoch.Add(-time.Hour)}, Freeze{Reason: "A"}, epoch},
		{"by a clock that was ahead", &Freeze{Reason: "A", Since: epoch.Add(time.Hour)}, Freeze{Reason: "A"}, epoch},
		{"one that knows it", nil, Freeze{Reason: "A", Since: epoch.Add(-time.Minute)}, epoch.Add(-time.Minute)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newGuard(Cause{Ask: (&asked{says: &tc.says}).ask})
			g.Before = tc.before
			require.NoError(t, g.Begin(t.Context()))
			require.Equal(t, tc.want, g.Found().Since)
		})
	}
}

func TestAFreezeOfTheClusterLeavesOtherEngines(t *testing.T) {
	record := func(adapter string) assignments.Record {
		return assignments.Record{Spec: bundle.Assignment{Name: "web", Adapter: adapter}}
	}
	g := newGuard()
	require.NoError(t, g.Begin(t.Context()))
	require.Equal(t, assignments.Change, g.Allowed(record("flux"), assignments.Change))

	g.FreezeCluster(errors.New("it does not answer"))
	require.Equal(t, assignments.Change, g.Allowed(record("directory"), assignments.Change))
	require.False(t, g.Found().Holding, "nothing waits for it")
	require.Equal(t, assignments.Observe, g.Allowed(record("flux"), assignments.Observe))
	require.Equal(t, assignments.Nothing, g.Allowed(record("flux"), assignments.Change))
	require.True(t, g.Found().Holding)
	some, err := g.MayChangeSome(t.Context())
	require.NoError(t, err)
	require.True(t, some)

	moves := record("directory")
	moves.Adapter = "flux"
	require.Equal(t, assignments.Nothing, g.Allowed(moves, assignments.Change), "the engine before takes its own away first")

	paused := newGuard(Cause{Ask: (&asked{says: &Freeze{Reason: ReasonPaused}}).ask})
	require.NoError(t, paused.Begin(t.Context()))
	require.Equal(t, assignments.Nothing, paused.Allowed(record("directory"), assignments.Correct))
	some, err = paused.MayChangeSome(t.Context())
	require.NoError(t, err)
	require.False(t, some)
}

func TestWhatWasInterruptedIsLookedAtInAFreeze(t *testing.T) {
	spec := bundle.Assignment{Name: "web", Adapter: "directory"}
	r := assignments.Record{Spec: spec, Item: bundle.Item{State: bundle.Applying}, Applied: spec.Desired(), Adapter: "directory"}
	g := newGuard(Cause{Ask: (&asked{says: &Freeze{Reason: ReasonPaused}}).ask})
	require.NoError(t, g.Begin(t.Context()))
	require.Equal(t, assignments.Observe, g.Allowed(r, assignments.Change))
	r.Removing = true
	require.Equal(t, assignments.Nothing, g.Allowed(r, assignments.Change))
}

func TestOutsideMaintenanceWaitsForTheNextWindow(t *testing.T) {
	require.Nil(t, OutsideMaintenance(nil, epoch))
	windows := []window.Maintenance{}
	for _, text := range []string{"0 2 * * * 1h UTC", "0 22 * * * 1h UTC"} {
		w, err := window.ParseMaintenance(text)
		require.NoError(t, err)
		windows = append(windows, w)
	}
	f := OutsideMaintenance(windows, epoch)
	require.Equal(t, ReasonOutsideMaintenance, f.Reason)
	require.Equal(t, epoch.Add(10*time.Hour), f.Until)
	require.Nil(t, OutsideMaintenance(windows, epoch.Add(10*time.Hour)))
}
