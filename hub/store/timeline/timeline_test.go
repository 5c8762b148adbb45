package timeline

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

var epoch = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func report(seq int64, states map[string]bundle.State) bundle.Report {
	r := bundle.Report{Agent: bundle.ReportAgent{Incarnation: 1, Seq: seq}, State: bundle.Compliant, OccurredAt: epoch}
	for name, s := range states {
		r.Items = append(r.Items, bundle.Item{Assignment: name, State: s, Since: epoch})
	}
	return r
}

func TestDiff(t *testing.T) {
	good, bad, removed := Value{State: "compliant"}, Value{State: "failed"}, Value{State: "removed", Reason: "Done"}
	for _, tt := range []struct {
		name          string
		before, after map[string]Value
		want          []Change
	}{
		{"nothing", nil, nil, nil},
		{"the same", map[string]Value{"a": good}, map[string]Value{"a": good}, nil},
		{"new ones, by name", nil, map[string]Value{"b": good, "a": bad}, []Change{{"a", Gone, bad}, {"b", Gone, good}}},
		{"another value", map[string]Value{"a": good}, map[string]Value{"a": bad}, []Change{{"a", good, bad}}},
		{"not listed any more", map[string]Value{"a": good}, nil, []Change{{"a", good, Gone}}},
		{"removed, and then not listed", map[string]Value{"a": removed}, nil, nil},
	} {
		require.Equal(t, tt.want, Diff(tt.before, tt.after), tt.name)
	}
}

func TestAdvanceTellsWhichDeploymentsChanged(t *testing.T) {
	var p Present
	advance := func(at time.Time, seq int64, states map[string]bundle.State) (agent bool, values, shown []string) {
		r := report(seq, states)
		a, err := p.Advance(&r, at)
		require.NoError(t, err)
		for i, d := range a.Shown {
			d.ID = int64(i + 1)
		}
		return a.Agent, names(a.Values), names(a.Shown)
	}
	agent, values, shown := advance(epoch, 1, map[string]bundle.State{"b": bundle.Compliant, "a": bundle.Failed})
	require.True(t, agent)
	require.Equal(t, []string{"a", "b"}, values)
	require.Equal(t, values, shown)

	agent, values, shown = advance(epoch.Add(time.Hour), 2, map[string]bundle.State{"b": bundle.Compliant, "a": bundle.Failed})
	require.False(t, agent)
	require.Empty(t, append(values, shown...), "nothing to write")
	require.Equal(t, store.Order{Incarnation: 1, Seq: 2}, p.Order)
	require.Equal(t, store.Millis(epoch), p.Since, "the state has not changed since")

	_, values, _ = advance(epoch.Add(time.Hour), 3, map[string]bundle.State{"a": bundle.Compliant})
	require.Equal(t, []string{"a", "b"}, values)
	require.Equal(t, Gone, p.Deployments[1].Value)
	require.False(t, p.Deployments[1].Listed)
	_, values, shown = advance(epoch.Add(time.Hour), 4, map[string]bundle.State{"a": bundle.Compliant})
	require.Empty(t, append(values, shown...), "it was gone before")
	_, values, _ = advance(epoch.Add(time.Hour), 5, map[string]bundle.State{"a": bundle.Compliant, "aa": bundle.Compliant, "c": bundle.Compliant})
	require.Equal(t, []string{"aa", "c"}, values)
	require.Equal(t, []string{"a", "aa", "b", "c"}, names(p.Deployments), "by assignment")
}

func names(all []*Deployment) (names []string) {
	for _, d := range all {
		names = append(names, d.Assignment)
	}
	return names
}

func TestWhenAClusterWasSeen(t *testing.T) {
	for _, tt := range []struct {
		name     string
		via      store.Via
		occurred time.Time
		want     time.Time
	}{
		{"over HTTP it is now, whatever the agent's clock says", store.ViaHTTP, epoch.Add(-time.Hour), epoch},
		{"by media it is when the report was written", store.ViaMedia, epoch.Add(-time.Hour), epoch.Add(-time.Hour)},
		{"by media, and from the future", store.ViaMedia, epoch.Add(time.Hour), epoch},
		{"by a registry", store.ViaRegistry, epoch.Add(-time.Hour), epoch.Add(-time.Hour)},
	} {
		var p Present
		p.See(&bundle.Report{OccurredAt: tt.occurred}, tt.via, epoch)
		require.True(t, p.EverReported)
		require.Equal(t, store.Millis(tt.want), p.LastSeen, tt.name)
		p.See(&bundle.Report{OccurredAt: epoch.Add(-24 * time.Hour)}, store.ViaMedia, epoch)
		require.Equal(t, store.Millis(tt.want), p.LastSeen, "it never falls")
	}
}
