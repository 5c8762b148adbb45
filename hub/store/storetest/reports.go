package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// made returns a report that one process of the agent has made.
func made(c store.Cluster, instance string, seq int64) store.Report {
	r := reportOf(c, order(1, seq)).Body
	r.Agent.Instance = instance
	return identified(r)
}

func reportTests() []test {
	return []test{
		{"a cluster has one quota in all processes, and repeats take nothing from it", func(t *testing.T, f *fixture) {
			all := f.added("plant-7", "other")
			c := all[0]
			quota := store.Quota{Reports: 10, Bytes: 1000}
			take := func(f *fixture, first, last int64) error {
				b := store.Batch{UID: c.UID, Via: store.ViaHTTP, Quota: quota}
				for seq := first; seq <= last; seq++ {
					r := reportOf(c, order(1, seq))
					r.Envelope = make([]byte, 10)
					b.Reports = append(b.Reports, r)
				}
				_, err := f.Ingest(t.Context(), b)
				return err
			}
			other := f.again()
			require.NoError(t, take(f, 1, 4))
			require.NoError(t, take(other, 5, 9))
			require.NoError(t, take(f, 1, 9), "repeats")
			require.NoError(t, take(f, 10, 12), "one batch may overdraw it")
			var over *store.QuotaError
			require.ErrorAs(t, take(other, 13, 13), &over)
			require.Equal(t, &store.QuotaError{UID: c.UID, Bound: "10 reports an hour", Wait: 12*time.Minute + time.Second}, over)
			require.NoError(t, take(other, 1, 12), "repeats are answered all the same")
			has, err := f.Has(t.Context(), c.UID, order(1, 13))
			require.NoError(t, err)
			require.False(t, has)
			f.clock.Add(12 * time.Minute)
			require.ErrorAs(t, take(f.again(), 13, 13), &over, "nothing is left yet")
			f.clock.Add(time.Second)
			require.NoError(t, take(f.again(), 13, 13), "after a restart too")

			quota.Reports = 0
			f.clock.Add(time.Hour)
			require.NoError(t, take(f, 14, 120), "by bytes")
			require.ErrorAs(t, take(f, 121, 121), &over)
			require.Equal(t, "1000 bytes an hour", over.Bound)
			quota.Bytes = 0
			require.NoError(t, take(f, 121, 121), "no bound")
		}},
		{"a batch is stored oldest first, whatever its order", aBatchIsStoredOldestFirstWhateverItsOrder},
		{"repeats change nothing", repeatsChangeNothing},
		{"another report with a number that is taken is a conflict", anotherReportWithANumberThatIsTakenIsAConflict},
		{"processes of one agent that take turns are two agents", processesOfOneAgentThatTakeTurnsAreTwoAgents},
		{"a person ends the suspicion of two agents, until new reports raise it", aPersonEndsTheSuspicionOfTwoAgentsUntilNewReportsRaiseIt},
		{"a new key ends the suspicion of two agents", aNewKeyEndsTheSuspicionOfTwoAgents},
		{"a process that was silent for many restarts is forgotten", aProcessThatWasSilentForManyRestartsIsForgotten},
		{"clusters that are not registered have no reports", clustersThatAreNotRegisteredHaveNoReports},
		{"stored reports are found by their place", storedReportsAreFoundByTheirPlace},
		{"acknowledgements of what came by media are owed until they are settled", acknowledgementsOfWhatCameByMediaAreOwedUntilTheyAreSettled},
		{"a caller that has gone leaves all of its batch, or nothing", aCallerThatHasGoneLeavesAllOfItsBatchOrNothing},
		{"many agents at once lose nothing, in several processes", manyAgentsAtOnceLoseNothingInSeveralProcesses},
	}
}

func aBatchIsStoredOldestFirstWhateverItsOrder(t *testing.T, f *fixture) {
	c := f.added("plant-7")[0]
	r1, r2, r3 := reportOf(c, order(1, 1)), reportOf(c, order(1, 2)), reportOf(c, order(2, 1))
	done := f.ingested(c, r3, r1, r2)
	require.Equal(t, store.Outcome{Accepted: 3, Stored: []digest.Digest{r1.ID, r2.ID, r3.ID}}, done)
	require.Equal(t, order(2, 1), f.status("plant-7").Newest)
}

func repeatsChangeNothing(t *testing.T, f *fixture) {
	c := f.added("plant-7")[0]
	r1, r2 := reportOf(c, order(1, 1), Item("drone", bundle.Applying)), reportOf(c, order(1, 2), Item("drone", bundle.Compliant))
	f.ingested(c, r1)
	before := f.status("plant-7")
	f.clock.Add(time.Minute)
	require.Equal(t, store.Outcome{Duplicates: 2, Stored: []digest.Digest{r1.ID, r1.ID}}, f.ingested(c, r1, r1))
	require.Equal(t, before, f.status("plant-7"), "a captured report that is played again must not make a dead cluster look alive")
	require.Equal(t, store.Outcome{Accepted: 1, Duplicates: 1, Stored: []digest.Digest{r1.ID, r2.ID}}, f.ingested(c, r2, r1))
}

func anotherReportWithANumberThatIsTakenIsAConflict(t *testing.T, f *fixture) {
	c := f.added("plant-7")[0]
	first, next := reportOf(c, order(1, 1)), reportOf(c, order(1, 2))
	clone := reportOf(c, order(1, 1), Item("drone", bundle.Failed))
	f.ingested(c, first)
	done := f.ingested(c, next, clone, clone)
	require.Equal(t, 1, done.Accepted)
	require.Equal(t, []digest.Digest{next.ID}, done.Stored)
	require.Equal(t, []int{1, 2}, done.Conflicts, "by their places in the batch")
	require.True(t, done.SharedNow)
	require.NotEmpty(t, done.SharedHow)
	status := f.status("plant-7")
	require.Equal(t, 2, status.Conflicts)
	require.Equal(t, &Epoch, status.SharedSince)
	require.Equal(t, done.SharedHow, status.SharedHow)
	require.Empty(t, f.deployments(), "what a conflict says is nowhere")
	again := f.ingested(c, next)
	require.False(t, again.SharedNow)
	require.Equal(t, done.SharedHow, again.SharedHow)
}

func processesOfOneAgentThatTakeTurnsAreTwoAgents(t *testing.T, f *fixture) {
	type one struct {
		instance string
		seq      int64
	}
	for i, tt := range []struct {
		name   string
		made   []one
		shared bool
	}{
		{"one process", []one{{"a", 1}, {"a", 2}, {"a", 3}}, false},
		{"one after another, in any order", []one{{"c", 6}, {"a", 2}, {"b", 3}, {"c", 4}, {"a", 1}}, false},
		{"by older agents, who say nothing of it", []one{{"", 1}, {"a", 2}, {"", 3}, {"a", 4}}, false},
		{"two take turns", []one{{"a", 1}, {"b", 2}, {"a", 3}}, true},
		{"the odd one comes late", []one{{"a", 1}, {"a", 3}, {"b", 2}}, true},
		{"an earlier one comes back", []one{{"a", 1}, {"b", 2}, {"c", 3}, {"a", 4}}, true},
	} {
		c := cluster(fmt.Sprint("plant-", i), uint64(100+i))
		_, err := f.AddCluster(t.Context(), c)
		require.NoError(t, err)
		var last store.Outcome
		for _, m := range tt.made {
			last = f.ingested(c, made(c, m.instance, m.seq))
		}
		require.Equal(t, tt.shared, last.SharedHow != "", tt.name)
		require.Equal(t, tt.shared, f.status(c.Name).SharedSince != nil, tt.name)
	}
}

func aPersonEndsTheSuspicionOfTwoAgentsUntilNewReportsRaiseIt(t *testing.T, f *fixture) {
	c := f.added("plant-7")[0]
	f.ingested(c, made(c, "a", 1), made(c, "b", 2), made(c, "a", 3))
	before, err := f.Unshare(t.Context(), "plant-7")
	require.NoError(t, err)
	require.NotNil(t, before.SharedSince)
	require.NotEmpty(t, before.SharedHow)
	require.Empty(t, f.ingested(c, made(c, "a", 4)).SharedHow)
	require.Empty(t, f.ingested(c, made(c, "b", 3)).SharedHow, "a conflict from before")
	require.Zero(t, f.status("plant-7").Conflicts)
	f.ingested(c, made(c, "b", 5))
	require.NotEmpty(t, f.ingested(c, made(c, "a", 6)).SharedHow)
	_, err = f.Unshare(t.Context(), "nobody")
	require.ErrorIs(t, err, store.ErrUnknownCluster)
}

func aNewKeyEndsTheSuspicionOfTwoAgents(t *testing.T, f *fixture) {
	c := f.added("plant-7")[0]
	f.ingested(c, made(c, "a", 1), made(c, "b", 2), made(c, "a", 3))
	r := store.Rotation{UID: c.UID, Previous: kidOf(t, c.Key), Key: keyOf(2), Until: order(1, 9)}
	require.NoError(t, f.Rotate(t.Context(), r, func(store.Keys, error) (bool, error) { return true, nil }))
	require.Empty(t, f.ingested(c, made(c, "b", 8), made(c, "a", 9)).SharedHow, "reports up to there may still come")
	require.Nil(t, f.status("plant-7").SharedSince)
}

func aProcessThatWasSilentForManyRestartsIsForgotten(t *testing.T, f *fixture) {
	c := f.added("plant-7")[0]
	for n := range int64(200) {
		f.ingested(c, made(c, fmt.Sprint(n), n+1))
	}
	require.Empty(t, f.ingested(c, made(c, "0", 500)).SharedHow)
	require.NotEmpty(t, f.ingested(c, made(c, "190", 501)).SharedHow, "one of the newest is not")
}

func clustersThatAreNotRegisteredHaveNoReports(t *testing.T, f *fixture) {
	c := cluster("plant-7", 7)
	_, err := f.Ingest(t.Context(), store.Batch{UID: c.UID, Via: store.ViaHTTP, Reports: []store.Report{reportOf(c, order(1, 1))}})
	require.ErrorIs(t, err, store.ErrUnknownCluster)
	has, err := f.Has(t.Context(), c.UID, order(1, 1))
	require.NoError(t, err)
	require.False(t, has)
	ids, err := f.From(t.Context(), c.UID, store.Order{}, 10)
	require.NoError(t, err)
	require.Empty(t, ids)
}

func storedReportsAreFoundByTheirPlace(t *testing.T, f *fixture) {
	all := f.added("plant-7", "plant-8")
	c := all[0]
	r1, r2, r3 := reportOf(c, order(1, 1)), reportOf(c, order(1, 200)), reportOf(c, order(2, 1))
	f.ingested(c, r3, r1, r2)
	f.ingested(all[1], reportOf(all[1], order(1, 5)))
	for at, want := range map[store.Order]bool{order(1, 1): true, order(1, 200): true, order(2, 1): true, order(1, 5): false, order(2, 200): false} {
		has, err := f.Has(t.Context(), c.UID, at)
		require.NoError(t, err)
		require.Equal(t, want, has, at)
	}
	for _, tt := range []struct {
		from  store.Order
		limit int
		want  []digest.Digest
	}{
		{store.Order{}, 10, []digest.Digest{r1.ID, r2.ID, r3.ID}},
		{order(1, 1), 2, []digest.Digest{r1.ID, r2.ID}},
		{order(1, 2), 10, []digest.Digest{r2.ID, r3.ID}},
		{order(1, 201), 10, []digest.Digest{r3.ID}},
		{order(2, 2), 10, nil},
	} {
		ids, err := f.From(t.Context(), c.UID, tt.from, tt.limit)
		require.NoError(t, err)
		require.Equal(t, tt.want, ids, tt.from)
	}
}

func acknowledgementsOfWhatCameByMediaAreOwedUntilTheyAreSettled(t *testing.T, f *fixture) {
	all := f.added("plant-b", "plant-a")
	b, a := all[0], all[1]
	a1, a2, b1 := reportOf(a, order(1, 1)), reportOf(a, order(1, 2)), reportOf(b, order(1, 1))
	f.ingestedBy(store.ViaMedia, b, b1)
	f.ingestedBy(store.ViaMedia, a, a2, a1)
	f.ingested(a, reportOf(a, order(1, 3)))
	f.ingestedBy(store.ViaRegistry, a, reportOf(a, order(1, 4)))
	owed, err := f.Owed(t.Context())
	require.NoError(t, err)
	require.Equal(t, []store.Owed{{UID: a.UID, IDs: []digest.Digest{a1.ID, a2.ID}}, {UID: b.UID, IDs: []digest.Digest{b1.ID}}}, owed)
	require.NoError(t, f.Settle(t.Context(), []digest.Digest{a1.ID, b1.ID, digest.FromString("none")}))
	owed, err = f.Owed(t.Context())
	require.NoError(t, err)
	require.Equal(t, []store.Owed{{UID: a.UID, IDs: []digest.Digest{a2.ID}}}, owed)
	f.ingested(b, b1)
	f.ingestedBy(store.ViaMedia, b, b1)
	owed, err = f.Owed(t.Context())
	require.NoError(t, err)
	require.Len(t, owed, 2, "it came by media again: the acknowledgement never arrived")
}

func aCallerThatHasGoneLeavesAllOfItsBatchOrNothing(t *testing.T, f *fixture) {
	c := f.added("plant-7")[0]
	_, err := f.Ingest(stopped{t.Context()}, store.Batch{UID: c.UID, Via: store.ViaHTTP, Reports: []store.Report{reportOf(c, order(1, 1)), reportOf(c, order(1, 2))}})
	if err != nil {
		require.ErrorIs(t, err, errStopped)
	}
	require.NoError(t, f.Ready(t.Context())) // after the writes that were begun
	ids, err := f.From(t.Context(), c.UID, store.Order{}, 10)
	require.NoError(t, err)
	require.Contains(t, []int{0, 2}, len(ids))
}

func manyAgentsAtOnceLoseNothingInSeveralProcesses(t *testing.T, f *fixture) {
	const agents, batches, size = 6, 4, 10
	other := f.again()
	var wg sync.WaitGroup
	var clusters []store.Cluster
	for i := range agents {
		clusters = append(clusters, cluster(fmt.Sprint("plant-", i), uint64(i+1)))
		_, err := f.AddCluster(t.Context(), clusters[i])
		require.NoError(t, err)
	}
	failed := make(chan error, 2*agents*batches)
	for _, c := range clusters {
		for n := range batches {
			b := store.Batch{UID: c.UID, Via: store.ViaHTTP}
			for i := range size {
				seq := int64((batches-n)*size + i)
				b.Reports = append(b.Reports, reportOf(c, order(1, seq), Item("drone", []bundle.State{bundle.Applying, bundle.Compliant}[seq%2])))
			}
			for _, at := range []store.Store{f.Store, other.Store} {
				wg.Go(func() {
					done, err := at.Ingest(t.Context(), b)
					if err == nil && done.Accepted+done.Duplicates != size {
						err = errors.New("some are neither")
					}
					failed <- err
				})
			}
		}
	}
	wg.Wait()
	close(failed)
	for err := range failed {
		require.NoError(t, err)
	}
	for _, c := range clusters {
		ids, err := f.From(t.Context(), c.UID, store.Order{}, 1000)
		require.NoError(t, err)
		require.Len(t, ids, batches*size)
		status := f.status(c.Name)
		require.Zero(t, status.Conflicts)
		require.EqualValues(t, batches*size+size-1, status.Newest.Seq)
		history, err := f.History(t.Context(), c.UID)
		require.NoError(t, err)
		n := 0
		for _, h := range history {
			if h.Assignment == "drone-main" {
				n++
			}
		}
		require.Equal(t, batches*size, n, "each report changed the state")
	}
}
