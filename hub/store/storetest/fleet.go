package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// historyOf returns for each assignment its changes in order, without rows that repeat the one before them and without
// telling the ways of being removed apart. Implementations may keep more rows than others; they may not differ in this.
func (f *fixture) historyOf(t require.TestingT, uid string) map[string][]string {
	all, err := f.History(context.Background(), uid)
	require.NoError(t, err)
	history, last := map[string][]string{}, map[string]string{}
	for _, c := range all {
		what := fmt.Sprintf("%s %s failures=%d", c.State, c.Reason, c.Failures)
		if c.State == bundle.Removed {
			what = string(c.State)
		}
		if last[c.Assignment] != what {
			history[c.Assignment] = append(history[c.Assignment], fmt.Sprintf("%d/%d %s", c.At.Incarnation, c.At.Seq, what))
		}
		last[c.Assignment] = what
	}
	return history
}

// presentOf returns a cluster and its deployments, without which cluster it is.
func (f *fixture) presentOf(t require.TestingT, uid string) (present []any) {
	require.NoError(t, f.Scan(context.Background(), store.Scope{UIDs: []string{uid}}, func(c store.ClusterState) error {
		present = append(present, c.State, c.Reason, c.Newest, c.LastSeen, c.Deployments)
		return nil
	}))
	return present
}

func historyTests() []test {
	return []test{
		{"a late report adds history and leaves the present", aLateReportAddsHistoryAndLeavesThePresent},
		{"history reads the same in whatever order reports arrive", historyReadsTheSameInWhateverOrderReportsArrive},
		{"any order of arrival ends the same", anyOrderOfArrivalEndsTheSame},
		{"history and the order of reports outlive a registration", historyAndTheOrderOfReportsOutliveARegistration},
	}
}

func aLateReportAddsHistoryAndLeavesThePresent(t *testing.T, f *fixture) {
	c := f.added("plant-7")[0]
	f.ingested(c, reportOf(c, order(2, 5), Item("drone", bundle.Compliant)))
	before := f.status("plant-7")
	rows, err := f.History(t.Context(), c.UID)
	require.NoError(t, err)
	done := f.ingested(c, reportOf(c, order(2, 4), Item("drone", bundle.Failed), Item("radar", bundle.Applying)), reportOf(c, order(1, 99), Item("drone", bundle.Pending)))
	require.Equal(t, 2, done.Accepted)
	require.Equal(t, before, f.status("plant-7"))
	require.Equal(t, []string{"plant-7/drone compliant"}, f.deployments())
	after, err := f.History(t.Context(), c.UID)
	require.NoError(t, err)
	require.Greater(t, len(after), len(rows))
}

func historyReadsTheSameInWhateverOrderReportsArrive(t *testing.T, f *fixture) {
	states := map[int64][]bundle.Item{
		1: {Item("drone", bundle.Compliant)}, 2: {Item("drone", bundle.Failed)}, 3: {Item("drone", bundle.Compliant)}, 4: {},
	}
	all := []string{"1/1 compliant  failures=0", "1/2 failed  failures=0", "1/3 compliant  failures=0", "1/4 removed"}
	for i, tt := range []struct {
		arrival []int64
		want    []string
	}{
		{[]int64{1, 2, 3, 4}, all},
		{[]int64{4, 3, 2, 1}, all},
		{[]int64{1, 3, 4, 2}, all},
		{[]int64{4, 2}, []string{all[1], all[3]}},
	} {
		c := cluster(fmt.Sprint("plant-", i), uint64(100+i))
		_, err := f.AddCluster(t.Context(), c)
		require.NoError(t, err)
		for _, seq := range tt.arrival {
			f.ingested(c, reportOf(c, order(1, seq), states[seq]...))
		}
		require.Equal(t, tt.want, f.historyOf(t, c.UID)["drone-main"], tt.arrival)
	}
	require.Empty(t, f.deployments())
}

func anyOrderOfArrivalEndsTheSame(t *testing.T, f *fixture) {
	run := uint64(0)
	arrive := func(rt *rapid.T, reports [][]bundle.Item, arrival []int) string {
		run++
		c := cluster(fmt.Sprint("plant-", run), run)
		_, err := f.AddCluster(context.Background(), c)
		require.NoError(rt, err)
		for _, i := range arrival { // every fourth report begins an incarnation
			b := store.Batch{UID: c.UID, Via: store.ViaMedia, Reports: []store.Report{reportOf(c, order(int64(1+i/4), int64(1+i%4)), reports[i]...)}}
			_, err := f.Ingest(context.Background(), b)
			require.NoError(rt, err)
		}
		return c.UID
	}
	rapid.Check(t, func(rt *rapid.T) {
		var reports [][]bundle.Item
		for range rapid.IntRange(1, 8).Draw(rt, "reports") {
			items := map[string]bundle.Item{}
			for _, w := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b"}), 0, 2).Draw(rt, "workloads") {
				it := Item(w, rapid.SampledFrom([]bundle.State{bundle.Applying, bundle.Compliant, bundle.Failed, bundle.Removed}).Draw(rt, "state"))
				it.Failures = rapid.Int64Range(0, 2).Draw(rt, "failures")
				items[w] = it
			}
			reports = append(reports, slices.SortedFunc(maps.Values(items), func(a, b bundle.Item) int { return strings.Compare(a.Workload, b.Workload) }))
		}
		inOrder := make([]int, len(reports))
		for i := range inOrder {
			inOrder[i] = i
		}
		one, other := arrive(rt, reports, inOrder), arrive(rt, reports, rapid.Permutation(inOrder).Draw(rt, "arrival"))
		require.Equal(rt, f.historyOf(rt, one), f.historyOf(rt, other))
		require.Equal(rt, f.presentOf(rt, one), f.presentOf(rt, other))
	})
}

func historyAndTheOrderOfReportsOutliveARegistration(t *testing.T, f *fixture) {
	c := f.added("plant-7")[0]
	f.ingested(c, reportOf(c, order(1, 3), Item("drone", bundle.Compliant)))
	before := f.historyOf(t, c.UID)
	require.NotEmpty(t, before)
	_, err := f.RemoveCluster(t.Context(), c.UID)
	require.NoError(t, err)
	require.Equal(t, before, f.historyOf(t, c.UID))
	require.Empty(t, f.deployments())
	_, err = f.AddCluster(t.Context(), c)
	require.NoError(t, err)
	r, err := f.Registered(t.Context(), c.UID)
	require.NoError(t, err)
	require.Equal(t, order(1, 3), r.Newest)
	f.ingested(c, reportOf(c, order(1, 2), Item("drone", bundle.Failed)))
	require.Equal(t, []string{"plant-7/drone compliant"}, f.deployments())
}

func lifeSignTests() []test {
	return []test{
		{"what an agent claims does not move its cluster", whatAnAgentClaimsDoesNotMoveItsCluster},
		{"a cluster is stale after three of its intervals", aClusterIsStaleAfterThreeOfItsIntervals},
		{"a report by media proves life only as of when it was written", aReportByMediaProvesLifeOnlyAsOfWhenItWasWritten},
	}
}

func whatAnAgentClaimsDoesNotMoveItsCluster(t *testing.T, f *fixture) {
	c := f.added("plant-7")[0]
	r := reportOf(c, order(1, 1)).Body
	r.Cluster.Environment, r.Cluster.Ring = "prod", "canary"
	f.ingested(c, identified(r))
	got := f.status("plant-7")
	require.Equal(t, c.Identity, got.Identity)
	require.Equal(t, []string{"prod", "canary"}, []string{got.Claims.Environment, got.Claims.Ring})
}

func aClusterIsStaleAfterThreeOfItsIntervals(t *testing.T, f *fixture) {
	f.added("unheard")
	unheard := f.status("unheard")
	require.Equal(t, store.Unreported, unheard.StateAt(f.clock.Now()))
	c := cluster("island", 9)
	c.ExpectedInterval = 30 * 24 * time.Hour
	_, err := f.AddCluster(t.Context(), c)
	require.NoError(t, err)
	f.ingested(c, reportOf(c, order(1, 1), Item("drone", bundle.Compliant)))
	f.clock.Add(90 * 24 * time.Hour)
	got := f.status("island")
	require.Equal(t, bundle.Compliant, got.StateAt(f.clock.Now()))
	require.Equal(t, store.Stale, got.StateAt(f.clock.Now().Add(time.Millisecond)))
	require.Equal(t, bundle.Compliant, got.State, "the reported state stays")
}

func aReportByMediaProvesLifeOnlyAsOfWhenItWasWritten(t *testing.T, f *fixture) {
	c := f.added("plant-7")[0]
	f.clock.Add(24 * time.Hour)
	f.ingestedBy(store.ViaMedia, c, reportOf(c, order(1, 1)))
	require.Equal(t, Epoch, f.status("plant-7").LastSeen)
	f.ingested(c, reportOf(c, order(1, 2)))
	require.Equal(t, Epoch.Add(24*time.Hour), f.status("plant-7").LastSeen)
}

// errStopped is the error of a stopped context.
var errStopped = errors.New("stopped")

// stopped is a context that has ended.
type stopped struct{ context.Context }

func (stopped) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

func (stopped) Err() error { return errStopped }

func lifeTests() []test {
	return []test{
		{"what was reported as written is there for others at once, and after a restart", whatWasReportedAsWrittenIsThereForOthersAtOnceAndAfterARestart},
		{"a store that is closed takes no writes", aStoreThatIsClosedTakesNoWrites},
		{"stores that are made at the same time are one", storesThatAreMadeAtTheSameTimeAreOne},
	}
}

func whatWasReportedAsWrittenIsThereForOthersAtOnceAndAfterARestart(t *testing.T, f *fixture) {
	other := f.again()
	c := f.added("plant-7")[0]
	f.ingested(c, reportOf(c, order(1, 1), Item("drone", bundle.Compliant)))
	require.Equal(t, []string{"plant-7/drone compliant"}, other.deployments())
	other.ingested(c, reportOf(c, order(1, 2), Item("drone", bundle.Failed)))
	require.Equal(t, []string{"plant-7/drone failed"}, f.deployments())
	require.NoError(t, f.Close())
	require.NoError(t, other.Close())
	require.Equal(t, []string{"plant-7/drone failed"}, f.again().deployments())
}

func aStoreThatIsClosedTakesNoWrites(t *testing.T, f *fixture) {
	c := f.added("plant-7")[0]
	require.NoError(t, f.Ready(t.Context()))
	require.NoError(t, f.Check(t.Context()))
	require.NoError(t, f.Close())
	require.ErrorIs(t, f.Ready(t.Context()), store.ErrClosed)
	_, err := f.Ingest(t.Context(), store.Batch{UID: c.UID, Via: store.ViaHTTP, Reports: []store.Report{reportOf(c, order(1, 1))}})
	require.ErrorIs(t, err, store.ErrClosed)
	_, err = f.AddCluster(t.Context(), cluster("plant-8", 8))
	require.ErrorIs(t, err, store.ErrClosed)
	require.Error(t, f.Scan(t.Context(), store.Scope{}, func(store.ClusterState) error { return nil }))
}

func storesThatAreMadeAtTheSameTimeAreOne(t *testing.T, f *fixture) {
	dir := t.TempDir()
	made := make(chan store.Store)
	for range 4 {
		go func() { made <- f.open(t, dir, f.clock.Now) }()
	}
	var all []store.Store
	for range 4 {
		all = append(all, <-made)
	}
	for i, s := range all {
		defer s.Close()
		_, err := s.AddCluster(t.Context(), cluster(fmt.Sprint("plant-", i), uint64(i+1)))
		require.NoError(t, err)
	}
	for _, s := range all {
		registered, err := s.Registrations(t.Context())
		require.NoError(t, err)
		require.Len(t, registered, 4)
	}
}
