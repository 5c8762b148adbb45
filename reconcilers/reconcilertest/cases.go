package reconcilertest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// Case is one requirement of the agent. Its text is the row of the table in docs/reference/engines.md.
type Case string

// The cases.
const (
	Apply         Case = "apply brings what the assignment holds, and lists it"
	Reapply       Case = "applying again changes nothing"
	Change        Case = "changed content changes only what differs"
	Prune         Case = "what the assignment no longer holds goes"
	Revision      Case = "the revision is the one that was assigned"
	Restart       Case = "a new process observes what an earlier one applied"
	Never         Case = "what was never applied is not compliant"
	Newer         Case = "newer content than was applied is not compliant"
	Progress      Case = "what is under way is progressing, and says what it waits for"
	OlderGreen    Case = "a good status of an older revision is no success"
	Deadline      Case = "what never gets ready is progressing, and no call outlasts its context"
	EngineFails   Case = "a failure has the engine's own reason, and passes with its cause"
	SiteFails     Case = "a failure that no release could mend says that the site has to"
	Broken        Case = "content that cannot be applied leaves the last good state"
	OneBad        Case = "a bad assignment fails beside good ones"
	DriftChanged  Case = "a changed value is reported as drift and corrected"
	DriftDeleted  Case = "a deleted value is reported as drift and corrected"
	Remove        Case = "remove takes away what apply brought"
	RemoveNothing Case = "removing what was never applied is fine"
	RemoveReapply Case = "what was removed can be applied again"
	Neighbours    Case = "assignments do not touch each other"
	Foreign       Case = "what others own survives apply, prune, a return to earlier content and remove"
	Cancelled     Case = "a call whose context has ended claims no success"
	CutOff        Case = "an apply that is cut off anywhere is completed by the next"
	Killed        Case = "a process that is killed anywhere is followed by one that carries on"
)

type testCase struct {
	name Case
	run  func(t *testing.T, b *bench)
}

// cases are all cases, in the order of the table.
var cases = []testCase{
	{Apply, apply},
	{Reapply, reapply},
	{Change, change},
	{Prune, prune},
	{Revision, revision},
	{Restart, restart},
	{Never, never},
	{Newer, newer},
	{Progress, progress},
	{OlderGreen, olderGreen},
	{Deadline, deadline},
	{EngineFails, engineFails},
	{SiteFails, siteFails},
	{Broken, broken},
	{OneBad, oneBad},
	{DriftChanged, driftChanged},
	{DriftDeleted, driftDeleted},
	{Remove, remove},
	{RemoveNothing, removeNothing},
	{RemoveReapply, removeReapply},
	{Neighbours, neighbours},
	{Foreign, foreign},
	{Cancelled, cancelled},
	{CutOff, cutOff},
	{Killed, killed},
}

// actions are the outcomes for named values.
type actions = map[string]reconcilers.Action

func apply(t *testing.T, b *bench) {
	a := b.assign(t, "drone-east", values{"alpha": "1", "beta": "2"})
	res := b.apply(t, b.Reconciler(t), a)
	b.requireChanges(t, res.Changes, actions{"alpha": reconcilers.Created, "beta": reconcilers.Created})
	b.holds(t, a.Name, values{"alpha": "1", "beta": "2"})
}

func reapply(t *testing.T, b *bench) {
	r, a := b.Reconciler(t), b.assign(t, "drone-east", values{"alpha": "1", "beta": "2"})
	b.apply(t, r, a)
	before := b.Writes(t, a.Name)
	require.NotEmpty(t, before)
	require.Empty(t, b.apply(t, r, a).Changes)
	b.settle(t, r, a, r.Observe(t.Context(), a))
	require.Empty(t, b.apply(t, b.Reconciler(t), a).Changes, "after a restart")
	require.Equal(t, before, b.Writes(t, a.Name), "the engine was left alone")
	b.apply(t, b.Reconciler(t), b.assign(t, a.Name, values{"alpha": "1", "beta": "3"}))
	require.NotEqual(t, before, b.Writes(t, a.Name), "which is not always so")
}

func change(t *testing.T, b *bench) {
	r := b.Reconciler(t)
	b.apply(t, r, b.assign(t, "drone-east", values{"alpha": "1", "beta": "2"}))
	res := b.apply(t, r, b.assign(t, "drone-east", values{"alpha": "1", "beta": "3"}))
	b.requireChanges(t, res.Changes, actions{"beta": reconcilers.Configured})
	b.holds(t, "drone-east", values{"alpha": "1", "beta": "3"})
}

func prune(t *testing.T, b *bench) {
	b.apply(t, b.Reconciler(t), b.assign(t, "drone-east", values{"alpha": "1", "beta": "2"}))
	res := b.apply(t, b.Reconciler(t), b.assign(t, "drone-east", values{"alpha": "1"}))
	b.requireChanges(t, res.Changes, actions{"beta": reconcilers.Deleted})
	b.holds(t, "drone-east", values{"alpha": "1"}, "beta")
}

func revision(t *testing.T, b *bench) {
	r := b.Reconciler(t)
	one, two := b.assign(t, "drone-east", values{"alpha": "1"}), b.assign(t, "drone-east", values{"alpha": "2"})
	first := b.apply(t, r, one).Revision
	second := b.apply(t, r, two).Revision
	require.NotEmpty(t, first)
	require.NotEqual(t, first, second)
	require.Equal(t, first, b.apply(t, r, one).Revision, "the same content is the same revision")
	b.holds(t, one.Name, values{"alpha": "1"})
}

func restart(t *testing.T, b *bench) {
	a := b.assign(t, "drone-east", values{"alpha": "1"})
	b.apply(t, b.Reconciler(t), a)
	before, r := b.Writes(t, a.Name), b.Reconciler(t)
	res := r.Observe(t.Context(), a)
	b.settle(t, r, a, res)
	require.Empty(t, res.Changes)
	require.Equal(t, before, b.Writes(t, a.Name))
}

func never(t *testing.T, b *bench) {
	r, a := b.Reconciler(t), b.assign(t, "drone-east", values{"alpha": "1"})
	for range 2 {
		res := r.Observe(t.Context(), a)
		require.Contains(t, []bundle.State{bundle.Pending, bundle.Drifted}, res.State)
		require.NotEmpty(t, res.Reason)
		require.Empty(t, res.Revision)
	}
	b.holds(t, a.Name, nil, "alpha")
}

func newer(t *testing.T, b *bench) {
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
	b.requireDrift(t, r, a, "alpha")
	b.holds(t, a.Name, values{"alpha": "tampered"})
	b.requireChanges(t, b.apply(t, r, a).Changes, actions{"alpha": reconcilers.Configured})
	b.holds(t, a.Name, values{"alpha": "1", "beta": "2"})
}

func driftDeleted(t *testing.T, b *bench) {
	r, a := b.Reconciler(t), b.assign(t, "drone-east", values{"alpha": "1", "beta": "2"})
	b.apply(t, r, a)
	b.Delete(t, a.Name, "beta")
	b.requireDrift(t, r, a, "beta")
	b.requireChanges(t, b.apply(t, r, a).Changes, actions{"beta": reconcilers.Created})
	b.holds(t, a.Name, values{"alpha": "1", "beta": "2"})
}

func remove(t *testing.T, b *bench) {
	a := b.assign(t, "drone-east", values{"alpha": "1", "beta": "2"})
	b.apply(t, b.Reconciler(t), a)
	changes := b.remove(t, b.Reconciler(t), a.Name)
	b.requireChanges(t, changes, actions{"alpha": reconcilers.Deleted, "beta": reconcilers.Deleted})
	b.holds(t, a.Name, nil, "alpha", "beta")
	require.Empty(t, b.remove(t, b.Reconciler(t), a.Name), "again is fine")
}

func removeNothing(t *testing.T, b *bench) {
	require.Empty(t, b.remove(t, b.Reconciler(t), "drone-east"))
}

func removeReapply(t *testing.T, b *bench) {
	r, a := b.Reconciler(t), b.assign(t, "drone-east", values{"alpha": "1"})
	b.apply(t, r, a)
	b.remove(t, r, a.Name)
	b.requireChanges(t, b.apply(t, r, a).Changes, actions{"alpha": reconcilers.Created})
	b.remove(t, r, a.Name)
	b.holds(t, a.Name, nil, "alpha")
}
