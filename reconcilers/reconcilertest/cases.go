package reconcilertest

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

type testCase struct {
	name string
	run  func(t *testing.T, b *bench)
}

func cases() []testCase {
	return []testCase{
		{"apply creates what the assignment holds and lists it", applyCreates},
		{"applying again changes nothing", applyAgain},
		{"changed content changes only what differs", applyChange},
		{"what the assignment no longer holds is pruned", applyPrunes},
		{"what was never applied is observed as not compliant and stays so", observeNothing},
		{"a new process observes what an earlier one applied", observeAfterRestart},
		{"content that is newer than the applied one is not compliant", observeNewer},
		{"a changed value is reported as drift and corrected", driftChanged},
		{"a deleted value is reported as drift and corrected", driftDeleted},
		{"remove takes away what apply brought, and again is fine", remove},
		{"removing what was never applied is fine", removeNothing},
		{"an assignment that was removed can be applied again", removeAndApply},
		{"assignments do not touch each other", neighbours},
		{"what others put beside an assignment survives apply, prune and remove", foreign},
		{"content that cannot be applied fails with its reason and leaves the last good state", broken},
		{"a call whose context has ended claims no success", cancelled},
		{"an apply cut off at any point is completed by the next process", cutOff},
	}
}

func applyCreates(t *testing.T, b *bench) {
	a := b.assign(t, "drone-east", values{"alpha": "1", "beta": "2"})
	res := b.apply(t, b.Reconciler(t), a)
	requireChanges(t, res.Changes, map[string]reconcilers.Action{"alpha": reconcilers.Created, "beta": reconcilers.Created})
	b.holds(t, a.Name, values{"alpha": "1", "beta": "2"})
}

func applyAgain(t *testing.T, b *bench) {
	r, a := b.Reconciler(t), b.assign(t, "drone-east", values{"alpha": "1", "beta": "2"})
	b.apply(t, r, a)
	require.Empty(t, b.apply(t, r, a).Changes)
	require.Empty(t, b.apply(t, b.Reconciler(t), a).Changes, "after a restart")
}

func applyChange(t *testing.T, b *bench) {
	r := b.Reconciler(t)
	b.apply(t, r, b.assign(t, "drone-east", values{"alpha": "1", "beta": "2"}))
	res := b.apply(t, r, b.assign(t, "drone-east", values{"alpha": "1", "beta": "3"}))
	requireChanges(t, res.Changes, map[string]reconcilers.Action{"beta": reconcilers.Configured})
	b.holds(t, "drone-east", values{"alpha": "1", "beta": "3"})
}

func applyPrunes(t *testing.T, b *bench) {
	b.apply(t, b.Reconciler(t), b.assign(t, "drone-east", values{"alpha": "1", "beta": "2"}))
	res := b.apply(t, b.Reconciler(t), b.assign(t, "drone-east", values{"alpha": "1"}))
	requireChanges(t, res.Changes, map[string]reconcilers.Action{"beta": reconcilers.Deleted})
	b.holds(t, "drone-east", values{"alpha": "1"}, "beta")
}

func observeNothing(t *testing.T, b *bench) {
	r, a := b.Reconciler(t), b.assign(t, "drone-east", values{"alpha": "1"})
	for range 2 {
		res := r.Observe(t.Context(), a)
		require.Contains(t, []bundle.State{bundle.Pending, bundle.Drifted}, res.State)
		require.NotEmpty(t, res.Reason)
		require.Empty(t, res.Revision)
	}
	b.holds(t, a.Name, nil, "alpha")
}

func observeAfterRestart(t *testing.T, b *bench) {
	a := b.assign(t, "drone-east", values{"alpha": "1"})
	b.apply(t, b.Reconciler(t), a)
	r := b.Reconciler(t)
	res := r.Observe(t.Context(), a)
	b.settle(t, r, a, res)
	require.Empty(t, res.Changes)
}

func observeNewer(t *testing.T, b *bench) {
	r := b.Reconciler(t)
	b.apply(t, r, b.assign(t, "drone-east", values{"alpha": "1"}))
	res := r.Observe(t.Context(), b.assign(t, "drone-east", values{"alpha": "2"}))
	require.Contains(t, []bundle.State{bundle.Pending, bundle.Drifted}, res.State)
	b.holds(t, "drone-east", values{"alpha": "1"})
}

func driftChanged(t *testing.T, b *bench) {
	r, a := b.Reconciler(t), b.assign(t, "drone-east", values{"alpha": "1", "beta": "2"})
	b.apply(t, r, a)
	b.Tamper(t, a.Name, "alpha", "tampered")
	requireDrift(t, r.Observe(t.Context(), a), "alpha")
	b.holds(t, a.Name, values{"alpha": "tampered"})
	requireChanges(t, b.apply(t, r, a).Changes, map[string]reconcilers.Action{"alpha": reconcilers.Configured})
	b.holds(t, a.Name, values{"alpha": "1", "beta": "2"})
}

func driftDeleted(t *testing.T, b *bench) {
	r, a := b.Reconciler(t), b.assign(t, "drone-east", values{"alpha": "1", "beta": "2"})
	b.apply(t, r, a)
	b.Delete(t, a.Name, "beta")
	requireDrift(t, r.Observe(t.Context(), a), "beta")
	requireChanges(t, b.apply(t, r, a).Changes, map[string]reconcilers.Action{"beta": reconcilers.Created})
	b.holds(t, a.Name, values{"alpha": "1", "beta": "2"})
}

func remove(t *testing.T, b *bench) {
	a := b.assign(t, "drone-east", values{"alpha": "1", "beta": "2"})
	b.apply(t, b.Reconciler(t), a)
	changes := b.remove(t, b.Reconciler(t), a.Name)
	requireChanges(t, changes, map[string]reconcilers.Action{"alpha": reconcilers.Deleted, "beta": reconcilers.Deleted})
	b.holds(t, a.Name, nil, "alpha", "beta")
	require.Empty(t, b.remove(t, b.Reconciler(t), a.Name))
}

func removeNothing(t *testing.T, b *bench) {
	require.Empty(t, b.remove(t, b.Reconciler(t), "drone-east"))
}

func removeAndApply(t *testing.T, b *bench) {
	r, a := b.Reconciler(t), b.assign(t, "drone-east", values{"alpha": "1"})
	b.apply(t, r, a)
	b.remove(t, r, a.Name)
	requireChanges(t, b.apply(t, r, a).Changes, map[string]reconcilers.Action{"alpha": reconcilers.Created})
	b.remove(t, r, a.Name)
	b.holds(t, a.Name, nil, "alpha")
}

func neighbours(t *testing.T, b *bench) {
	r := b.Reconciler(t)
	east, west := b.assign(t, "drone-east", values{"alpha": "1"}), b.assign(t, "drone-west", values{"beta": "2"})
	b.apply(t, r, east)
	b.apply(t, r, west)
	require.Empty(t, b.apply(t, r, east).Changes)
	b.remove(t, r, west.Name)
	b.holds(t, west.Name, nil, "beta")
	b.holds(t, east.Name, values{"alpha": "1"})
	b.settle(t, r, east, r.Observe(t.Context(), east))
}

func foreign(t *testing.T, b *bench) {
	r := b.Reconciler(t)
	b.apply(t, r, b.assign(t, "drone-east", values{"alpha": "1", "beta": "2"}))
	b.AddForeign(t, "drone-east", "alpha")
	b.apply(t, r, b.assign(t, "drone-east", values{"alpha": "1", "beta": "3"}))
	b.CheckForeign(t, "drone-east", "alpha")
	b.apply(t, r, b.assign(t, "drone-east", values{"alpha": "2"}))
	b.CheckForeign(t, "drone-east", "alpha")
	b.remove(t, r, "drone-east")
	b.CheckForeign(t, "drone-east", "alpha")
}

func broken(t *testing.T, b *bench) {
	r := b.Reconciler(t)
	west := b.assign(t, "drone-west", values{"gamma": "7"})
	b.apply(t, r, west)
	b.apply(t, r, b.assign(t, "drone-east", values{"alpha": "1"}))

	bad := b.assign(t, "drone-east", values{"alpha": "2"})
	reason := b.Break(t, bad.Dir)
	for _, res := range []reconcilers.Result{r.Apply(t.Context(), bad), r.Observe(t.Context(), bad)} {
		require.Equal(t, bundle.Failed, res.State)
		require.Equal(t, reason, res.Reason)
		require.NotEmpty(t, res.Message)
		require.LessOrEqual(t, len(res.Message), bundle.MaxMessageBytes)
		require.Empty(t, res.Changes)
	}
	b.holds(t, "drone-east", values{"alpha": "1"})
	b.settle(t, r, west, r.Observe(t.Context(), west))

	b.apply(t, r, b.assign(t, "drone-east", values{"alpha": "3"}))
	b.holds(t, "drone-east", values{"alpha": "3"})
}

func cancelled(t *testing.T, b *bench) {
	r, a := b.Reconciler(t), b.assign(t, "drone-east", values{"alpha": "1"})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	requireNoSuccess(t, r.Apply(ended, a))
	requireNoSuccess(t, r.Observe(ended, a))
	b.holds(t, a.Name, nil, "alpha")
	b.apply(t, r, a)
	requireNoSuccess(t, r.Remove(ended, a))
	b.holds(t, a.Name, values{"alpha": "1"})
}

// cutOff measures how long an apply takes, ends others after parts of that time, and lets a new process
// carry on with newer content each time.
func cutOff(t *testing.T, b *bench) {
	const parts = 12
	start := time.Now()
	b.apply(t, b.Reconciler(t), b.assign(t, "drone-east", cutOffContent(0)))
	whole := time.Since(start)
	for i := 1; i <= parts; i++ {
		content := cutOffContent(i)
		cut, cancel := context.WithTimeout(t.Context(), whole*time.Duration(i)/parts)
		res := b.Reconciler(t).Apply(cut, b.assign(t, "drone-east", content))
		cancel()
		require.Contains(t, []bundle.State{bundle.Progressing, bundle.Failed, bundle.Compliant}, res.State, res.Message)
		if res.State == bundle.Compliant {
			b.holds(t, "drone-east", content)
		}
		if i%2 == 0 { // as often as not the next process gets newer content before it could complete the last
			continue
		}
		b.apply(t, b.Reconciler(t), b.assign(t, "drone-east", content))
		b.holds(t, "drone-east", content, "extra-"+strconv.Itoa(i-1), "extra-"+strconv.Itoa(i-2))
	}
	b.remove(t, b.Reconciler(t), "drone-east")
	b.holds(t, "drone-east", nil, "alpha", "beta", "extra-"+strconv.Itoa(parts))
}

// cutOffContent has one value that stays, one that changes, and one that is new each time.
func cutOffContent(i int) values {
	return values{"alpha": "1", "beta": strconv.Itoa(i), "extra-" + strconv.Itoa(i): "x"}
}

// requireChanges fails t unless changes are exactly want, by a part of their names. What was kept is
// not counted.
func requireChanges(t *testing.T, changes []reconcilers.Change, want map[string]reconcilers.Action) {
	t.Helper()
	got := map[string]reconcilers.Action{}
	for _, c := range changes {
		name := c.Object
		for w := range want {
			if strings.Contains(c.Object, w) {
				name = w
			}
		}
		got[name] = c.Action
	}
	require.Equal(t, want, got)
}

func requireDrift(t *testing.T, res reconcilers.Result, name string) {
	t.Helper()
	require.Equal(t, bundle.Drifted, res.State, "%s: %s", res.Reason, res.Message)
	require.NotEmpty(t, res.Reason)
	require.Contains(t, res.Message, name, "the message says what has drifted")
	require.Empty(t, res.Changes)
}

func requireNoSuccess(t *testing.T, res reconcilers.Result) {
	t.Helper()
	require.Contains(t, []bundle.State{bundle.Progressing, bundle.Failed}, res.State)
	require.Empty(t, res.Changes)
}
