package reconcilertest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// The cases of slow engines, and of engines that fail.

func progress(t *testing.T, b *bench) {
	a, words, finish := b.stalled(t, values{"alpha": "1"})
	r := b.Reconciler(t)
	requireUnderWay(t, r.Apply(t.Context(), a), words)
	requireUnderWay(t, r.Observe(t.Context(), a), words)
	r = b.Reconciler(t)
	requireUnderWay(t, r.Apply(t.Context(), a), words)
	res := r.Observe(t.Context(), a)
	requireUnderWay(t, res, words)
	finish()
	b.settle(t, r, a, res)
	b.holds(t, a.Name, values{"alpha": "1"})
}

func olderGreen(t *testing.T, b *bench) {
	r := b.Reconciler(t)
	one, _, finish := b.stalled(t, values{"alpha": "1"})
	res := r.Apply(t.Context(), one)
	finish()
	first := b.settle(t, r, one, res).Revision
	two, words, finish := b.stalled(t, values{"alpha": "2"})
	requireUnderWay(t, r.Apply(t.Context(), two), words)
	for range 3 {
		res = r.Observe(t.Context(), two)
		requireUnderWay(t, res, words)
	}
	finish()
	require.NotEqual(t, first, b.settle(t, r, two, res).Revision)
	b.holds(t, "drone-east", values{"alpha": "2"})
}

// The deadlines here for one call, and for all work of the adapter. Neither is long enough to finish; a call is long
// enough to begin, even on a busy machine.
const (
	callTime  = 10 * time.Second
	hastyTime = 2 * time.Second
)

func deadline(t *testing.T, b *bench) {
	a, words, finish := b.stalled(t, values{"alpha": "1"})
	r := b.Reconciler(t)
	for _, call := range []func(context.Context, reconcilers.Assignment) reconcilers.Result{r.Apply, r.Observe, r.Observe} {
		requireUnderWay(t, b.within(t, callTime, a, call), words)
	}
	if runner, ok := b.Engine.(Runner); ok {
		r = b.restart(t, func(t *testing.T) reconcilers.Reconciler { return runner.Hasty(t, hastyTime) })
		b.requireFailed(t, r, a, "DeadlineExceeded", "")
		b.requireNoneRunning(t)
		r = b.Reconciler(t)
	}
	finish()
	b.apply(t, r, a)
	b.holds(t, a.Name, values{"alpha": "1"})
}

// within fails t if a call goes on for long after its context has ended.
func (b *bench) within(t *testing.T, d time.Duration, a reconcilers.Assignment, call func(context.Context, reconcilers.Assignment) reconcilers.Result) reconcilers.Result {
	t.Helper()
	const grace = time.Minute // far longer than an adapter takes to notice, even on a busy machine
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	done := make(chan reconcilers.Result, 1)
	go func() { done <- call(ctx, a) }()
	select {
	case res := <-done:
		return res
	case <-time.After(d + grace):
		require.FailNow(t, "the call outlasts its context")
		return reconcilers.Result{}
	}
}

func engineFails(t *testing.T, b *bench) {
	r := b.Reconciler(t)
	b.apply(t, r, b.assign(t, "drone-east", values{"alpha": "1"}))
	bad, reason, words := b.failing(t, "drone-east", values{"alpha": "2"})
	b.requireFailed(t, r, bad, reason, words)
	b.requireFailed(t, b.Reconciler(t), bad, reason, words)
	r = b.Reconciler(t)
	b.apply(t, r, b.assign(t, "drone-east", values{"alpha": "3"}))
	b.holds(t, "drone-east", values{"alpha": "3"})
}

func siteFails(t *testing.T, b *bench) {
	o, ok := b.Engine.(Obstructer)
	require.True(t, ok, "%T is no Obstructer, and the case is not declared as one that it cannot have", b.Engine)
	a := b.assign(t, "drone-east", values{"alpha": "1"})
	reason, mend := o.Obstruct(t, a.Name)
	r := b.Reconciler(t)
	res := b.wait(t, r, a, r.Apply(t.Context(), a))
	require.Equal(t, bundle.Failed, res.State, "%s: %s", res.Reason, res.Message)
	require.Equal(t, reason, res.Reason, res.Message)
	require.Equal(t, reconcilers.FaultSite, res.Fault)
	require.NotEmpty(t, res.Message)
	mend()
	b.apply(t, b.Reconciler(t), a)
	b.holds(t, a.Name, values{"alpha": "1"})
}

func broken(t *testing.T, b *bench) {
	r := b.Reconciler(t)
	b.apply(t, r, b.assign(t, "drone-east", values{"alpha": "1"}))
	bad, reason := b.broken(t, "drone-east", values{"alpha": "2"})
	require.Empty(t, b.requireFailed(t, r, bad, reason, ""))
	b.holds(t, "drone-east", values{"alpha": "1"})
	b.apply(t, r, b.assign(t, "drone-east", values{"alpha": "3"}))
	b.holds(t, "drone-east", values{"alpha": "3"})
}

func oneBad(t *testing.T, b *bench) {
	r := b.Reconciler(t)
	north, south := b.assign(t, "drone-north", values{"gamma": "1"}), b.assign(t, "drone-south", values{"delta": "1"})
	bad, reason := b.broken(t, "drone-east", values{"alpha": "1"})
	b.apply(t, r, north)
	b.requireFailed(t, r, bad, reason, "")
	b.apply(t, r, south)
	if b.can(EngineFails) {
		worse, reason, words := b.failing(t, "drone-west", values{"beta": "1"})
		b.requireFailed(t, r, worse, reason, words)
	}
	b.settle(t, r, north, r.Observe(t.Context(), north))
	b.apply(t, r, b.assign(t, "drone-south", values{"delta": "2"}))
	b.requireFailed(t, r, bad, reason, "")
	b.remove(t, r, bad.Name)
	b.holds(t, north.Name, values{"gamma": "1"})
	b.holds(t, south.Name, values{"delta": "2"})
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

func neighbours(t *testing.T, b *bench) {
	r := b.Reconciler(t)
	east, west := b.assign(t, "drone-east", values{"alpha": "1"}), b.assign(t, "drone-west", values{"beta": "2"})
	b.apply(t, r, east)
	b.apply(t, r, west)
	require.Empty(t, b.apply(t, r, east).Changes)
	if b.can(Remove) {
		b.remove(t, r, west.Name)
		b.holds(t, west.Name, nil, "beta")
	}
	b.holds(t, east.Name, values{"alpha": "1"})
	b.settle(t, r, east, r.Observe(t.Context(), east))
}

func foreign(t *testing.T, b *bench) {
	r := b.Reconciler(t)
	first := b.assign(t, "drone-east", values{"alpha": "1", "beta": "2"})
	b.apply(t, r, first)
	b.AddForeign(t, "drone-east", "alpha")
	for _, a := range []reconcilers.Assignment{
		b.assign(t, "drone-east", values{"alpha": "1", "beta": "3"}), b.assign(t, "drone-east", values{"alpha": "2"}), first,
	} {
		b.apply(t, r, a)
		b.CheckForeign(t, "drone-east", "alpha")
	}
	b.holds(t, first.Name, values{"alpha": "1", "beta": "2"})
	if b.can(Remove) {
		b.remove(t, r, "drone-east")
		b.CheckForeign(t, "drone-east", "alpha")
	}
}

// cutOff measures the time of an apply, ends others after parts of that time, and lets a new process
// continue with newer content each time.
func cutOff(t *testing.T, b *bench) {
	const parts = 12
	r, a := b.Reconciler(t), b.assign(t, "drone-east", cutOffContent(0))
	start := time.Now()
	res := r.Apply(t.Context(), a)
	whole := time.Since(start)
	b.settle(t, r, a, res)
	for i := 1; i <= parts; i++ {
		content := cutOffContent(i)
		cut, cancel := context.WithTimeout(t.Context(), whole*time.Duration(i)/parts)
		res := b.Reconciler(t).Apply(cut, b.assign(t, "drone-east", content))
		cancel()
		// Pending is one that was not cut off: on a slow machine an object of the cut before may not be deleted yet.
		require.Contains(t, []bundle.State{bundle.Pending, bundle.Progressing, bundle.Failed, bundle.Compliant}, res.State, res.Message)
		if res.State == bundle.Compliant {
			b.holds(t, "drone-east", content)
		}
		if i%2 == 1 { // as often as not the next process gets newer content before it could complete the last
			b.completes(t, i)
		}
	}
	b.vanishes(t, parts)
}
