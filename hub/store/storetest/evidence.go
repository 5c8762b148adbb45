package storetest

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

func evidenceTests() []test {
	return []test{
		{"envelopes are kept byte for byte", envelopesAreKeptByteForByte},
		{"stored reports are listed, newest first", storedReportsAreListedNewestFirst},
		{"envelopes are read in the order of their arrival", envelopesAreReadInTheOrderOfTheirArrival},
		{"trimming keeps the present, and the past from there on", trimmingKeepsThePresentAndThePastFromThereOn},
		{"trimming keeps what an acknowledgement is owed for", trimmingKeepsWhatAnAcknowledgementIsOwedFor},
		{"a report that was trimmed changes nothing when it comes again", aReportThatWasTrimmedChangesNothingWhenItComesAgain},
	}
}

// sealed gives a report its envelope.
func sealed(t testing.TB, r store.Report) store.Report {
	t.Helper()
	body, err := json.Marshal(r.Body)
	require.NoError(t, err)
	r.Envelope, err = bundle.SealEnvelope(bundle.PayloadTypeReport, body, ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	require.NoError(t, err)
	return r
}

func envelopesAreKeptByteForByte(t *testing.T, f *fixture) {
	c := f.added("plant-7")[0]
	var all []store.Report
	for seq := range int64(6) {
		all = append(all, sealed(t, reportOf(c, order(1, seq+1), Item("drone", bundle.Compliant))))
	}
	// Other ways to write one, which a store must not put right.
	all[1].Envelope = append([]byte(" "), all[1].Envelope...)
	all[2].Envelope = append(all[2].Envelope, '\n')
	all[3].Envelope = bytes.Replace(all[3].Envelope, []byte(`"payload":"`), []byte(`"payload":"\n`), 1)
	all[4].Envelope = nil
	all[5].Envelope = bytes.Replace(all[5].Envelope, []byte(`","signatures"`), []byte("\n"+`","signatures"`), 1)
	f.ingested(c, all[0], all[2], all[4])
	f.ingested(c, all[5], all[0], all[1], all[3])
	for _, r := range all {
		got, err := f.Envelope(t.Context(), c.UID, store.OrderOf(r.Body.Agent))
		if r.Envelope == nil {
			require.ErrorIs(t, err, store.ErrForgotten)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, string(r.Envelope), string(got))
		at, err := f.Place(t.Context(), c.UID, r.ID)
		require.NoError(t, err)
		require.Equal(t, store.OrderOf(r.Body.Agent), at)
	}
	_, err := f.Envelope(t.Context(), c.UID, order(1, 99))
	require.ErrorIs(t, err, store.ErrUnknownReport)
	_, err = f.Envelope(t.Context(), "nobody", order(1, 1))
	require.ErrorIs(t, err, store.ErrUnknownReport)
	for _, id := range []digest.Digest{"", "x", digest.FromString("none")} {
		_, err = f.Place(t.Context(), c.UID, id)
		require.ErrorIs(t, err, store.ErrUnknownReport)
	}
}

func storedReportsAreListedNewestFirst(t *testing.T, f *fixture) {
	c := f.added("plant-7")[0]
	r1, r2, r3 := sealed(t, reportOf(c, order(1, 1))), reportOf(c, order(1, 2)), sealed(t, reportOf(c, order(2, 1)))
	f.ingestedBy(store.ViaMedia, c, r3)
	f.clock.Add(time.Hour)
	f.ingested(c, r1, r2)
	list, err := f.ReportList(t.Context(), store.ReportFilter{UID: c.UID})
	require.NoError(t, err)
	stored := func(r store.Report, via store.Via, received time.Time) store.StoredReport {
		return store.StoredReport{
			ID: r.ID, At: store.OrderOf(r.Body.Agent), Kind: string(bundle.Snapshot), OccurredAt: Epoch, ReceivedAt: received, Via: via, KeyID: "k",
			Kept: r.Envelope != nil, Owed: via == store.ViaMedia,
		}
	}
	want := []store.StoredReport{stored(r3, store.ViaMedia, Epoch), stored(r2, store.ViaHTTP, Epoch.Add(time.Hour)), stored(r1, store.ViaHTTP, Epoch.Add(time.Hour))}
	require.Equal(t, store.ReportList{Reports: want}, list)
	list, err = f.ReportList(t.Context(), store.ReportFilter{UID: c.UID, Limit: 2})
	require.NoError(t, err)
	require.Equal(t, store.ReportList{Reports: want[:2], More: true}, list)
	list, err = f.ReportList(t.Context(), store.ReportFilter{UID: c.UID, Limit: 2, Before: order(1, 2)})
	require.NoError(t, err)
	require.Equal(t, store.ReportList{Reports: want[2:]}, list)
}

func envelopesAreReadInTheOrderOfTheirArrival(t *testing.T, f *fixture) {
	all := f.added("plant-1", "plant-2")
	var want, second []string
	var middle store.Position
	for n := range int64(30) {
		c := all[n%2]
		a, b := sealed(t, reportOf(c, order(1, 100-2*n))), sealed(t, reportOf(c, order(1, 101-2*n)))
		f.ingested(c, b, a, reportOf(c, order(2, n)))
		for _, r := range []store.Report{a, b} {
			want = append(want, fmt.Sprint(c.UID, r.ID, string(r.Envelope)))
			if n%2 == 1 {
				second = append(second, want[len(want)-1])
			}
		}
		if n == 14 {
			var err error
			middle, err = f.End(t.Context())
			require.NoError(t, err)
		}
	}
	read := func(after store.Position, uid string) (got []string) {
		last := after
		require.NoError(t, f.Envelopes(t.Context(), after, uid, func(e store.StoredEnvelope) error {
			require.GreaterOrEqual(t, e.Position, last)
			require.Greater(t, e.Position, after)
			last = e.Position
			require.Equal(t, "k", e.KeyID)
			got = append(got, fmt.Sprint(e.UID, e.ID, string(e.Envelope)))
			return nil
		}))
		return got
	}
	require.Equal(t, want, read(0, ""))
	require.Equal(t, want[30:], read(middle, ""))
	require.Equal(t, second, read(0, all[1].UID))
	enough := errors.New("enough")
	require.ErrorIs(t, f.Envelopes(t.Context(), 0, "", func(store.StoredEnvelope) error { return enough }), enough)
}

func trimmingKeepsThePresentAndThePastFromThereOn(t *testing.T, f *fixture) {
	c := f.added("plant-7")[0]
	quiet := f.addedAs("quiet", 9)
	f.ingested(quiet, sealed(t, reportOf(quiet, order(1, 1), Item("drone", bundle.Compliant))))
	for day := range int64(20) {
		it := Item("drone", []bundle.State{bundle.Failed, bundle.Compliant}[day%2])
		it.Since = f.clock.Now()
		body := Snapshot(c.Identity, order(1, day+1), it, Item("radar", bundle.Compliant))
		body.OccurredAt = f.clock.Now()
		f.ingested(c, sealed(t, identified(body)))
		f.clock.Add(24 * time.Hour)
	}
	day := func(n int) time.Time { return Epoch.Add(time.Duration(n) * 24 * time.Hour) }
	type moment struct{ states []store.ClusterState }
	before := map[int]moment{}
	for n := range 21 {
		before[n] = moment{f.scanned(day(n), store.Scope{})}
	}
	present := f.scanned(time.Time{}, store.Scope{})

	done, err := f.Trim(t.Context(), day(15), day(10))
	require.NoError(t, err)
	require.EqualValues(t, 16, done.Envelopes, "15 days, and the quiet one's")
	require.EqualValues(t, 9+9, done.Transitions, "those of the drone, and of the agent, but for the last")
	require.Equal(t, present, f.scanned(time.Time{}, store.Scope{}))
	for n := range 21 {
		if n < 10 {
			require.ErrorIs(t, f.ScanAt(t.Context(), day(n), store.Scope{}, nil), store.ErrForgotten, n)
			continue
		}
		require.Equal(t, before[n], moment{f.scanned(day(n), store.Scope{})}, "day %d", n)
	}
	list, err := f.ReportList(t.Context(), store.ReportFilter{UID: c.UID})
	require.NoError(t, err)
	require.Len(t, list.Reports, 11)
	for i, r := range list.Reports {
		require.Equal(t, i < 5, r.Kept, r.At)
	}
	_, err = f.Envelope(t.Context(), c.UID, order(1, 11))
	require.ErrorIs(t, err, store.ErrForgotten)
	require.NoError(t, f.Compare(t.Context(), func(uid, assignment, difference string) error {
		return errors.New(uid + " " + assignment + ": " + difference)
	}))

	_, err = f.Entries(t.Context(), 0, 10)
	require.ErrorIs(t, err, store.ErrForgotten)
	end, err := f.End(t.Context())
	require.NoError(t, err)
	all, err := f.Entries(t.Context(), end-3, 10)
	require.NoError(t, err)
	require.Len(t, all, 3)
	again, err := f.Trim(t.Context(), day(15), day(10))
	require.NoError(t, err)
	require.Zero(t, again)
	nothing, err := f.Trim(t.Context(), time.Time{}, time.Time{})
	require.NoError(t, err)
	require.Zero(t, nothing)

	// Even if all is over, the newest entry's position is not used again.
	_, err = f.Trim(t.Context(), day(99), day(99))
	require.NoError(t, err)
	require.Equal(t, present, f.scanned(time.Time{}, store.Scope{}))
	f.ingested(c, reportOf(c, order(2, 1)))
	next, err := f.End(t.Context())
	require.NoError(t, err)
	require.Greater(t, next, end)
}

// addedAs registers a cluster with the key of number n.
func (f *fixture) addedAs(name string, n uint64) store.Cluster {
	f.t.Helper()
	c := cluster(name, n)
	_, err := f.AddCluster(f.t.Context(), c)
	require.NoError(f.t, err)
	return c
}

func trimmingKeepsWhatAnAcknowledgementIsOwedFor(t *testing.T, f *fixture) {
	c := f.added("plant-7")[0]
	r := sealed(t, reportOf(c, order(1, 1)))
	f.ingestedBy(store.ViaMedia, c, r)
	f.clock.Add(time.Hour)
	f.ingested(c, sealed(t, reportOf(c, order(1, 2))))
	f.clock.Add(time.Hour)
	_, err := f.Trim(t.Context(), f.clock.Now(), f.clock.Now())
	require.NoError(t, err)
	owed, err := f.Owed(t.Context())
	require.NoError(t, err)
	require.Equal(t, []store.Owed{{UID: c.UID, IDs: []digest.Digest{r.ID}}}, owed)
	_, err = f.Envelope(t.Context(), c.UID, order(1, 1))
	require.NoError(t, err)
	require.NoError(t, f.Settle(t.Context(), owed[0].IDs))
	done, err := f.Trim(t.Context(), f.clock.Now(), f.clock.Now())
	require.NoError(t, err)
	require.EqualValues(t, 1, done.Envelopes)
	has, err := f.Has(t.Context(), c.UID, order(1, 1))
	require.NoError(t, err)
	require.False(t, has)
}

func aReportThatWasTrimmedChangesNothingWhenItComesAgain(t *testing.T, f *fixture) {
	c := f.added("plant-7")[0]
	other := f.again()
	old, newer := reportOf(c, order(1, 1), Item("drone", bundle.Failed)), reportOf(c, order(1, 2), Item("drone", bundle.Compliant))
	f.ingested(c, old, newer)
	f.clock.Add(time.Hour)
	_, err := other.Trim(t.Context(), f.clock.Now(), f.clock.Now())
	require.NoError(t, err)
	before := f.scanned(time.Time{}, store.Scope{})
	f.clock.Add(time.Hour)
	require.Equal(t, store.Outcome{Duplicates: 2, Stored: []digest.Digest{old.ID, newer.ID}}, f.ingested(c, newer, old))
	require.Equal(t, before, f.scanned(time.Time{}, store.Scope{}))
	list, err := f.ReportList(t.Context(), store.ReportFilter{UID: c.UID})
	require.NoError(t, err)
	require.Len(t, list.Reports, 1)
}

func feedTests() []test {
	return []test{
		{"each change is an entry, in the order of the commits", eachChangeIsAnEntryInTheOrderOfTheCommits},
		{"who awaits a change is woken by it, also by another process", whoAwaitsAChangeIsWokenByItAlsoByAnotherProcess},
		{"who reads on never misses an entry", whoReadsOnNeverMissesAnEntry},
	}
}

func eachChangeIsAnEntryInTheOrderOfTheCommits(t *testing.T, f *fixture) {
	end, err := f.End(t.Context())
	require.NoError(t, err)
	c := f.added("plant-7")[0]
	f.clock.Add(time.Minute)
	r1, r2 := reportOf(c, order(1, 1)), reportOf(c, order(1, 2))
	f.ingested(c, r2, r1)
	f.ingested(c, r2, r1) // changes nothing
	f.ingested(c, reportOf(c, order(1, 1), Item("clone", bundle.Failed)))
	_, err = f.Unshare(t.Context(), c.Name)
	require.NoError(t, err)
	_, err = f.AddCluster(t.Context(), c) // changes nothing
	require.NoError(t, err)
	_, err = f.RemoveCluster(t.Context(), c.Name)
	require.NoError(t, err)
	all, err := f.Entries(t.Context(), end, 100)
	require.NoError(t, err)
	want := []store.FeedEntry{
		{At: Epoch, Kind: store.FeedCluster, UID: c.UID},
		{At: Epoch.Add(time.Minute), Kind: store.FeedReports, UID: c.UID, First: order(1, 1), Last: order(1, 2)},
		{At: Epoch.Add(time.Minute), Kind: store.FeedCluster, UID: c.UID},
		{At: Epoch.Add(time.Minute), Kind: store.FeedCluster, UID: c.UID},
		{At: Epoch.Add(time.Minute), Kind: store.FeedCluster, UID: c.UID},
	}
	last := end
	for i := range all {
		require.Greater(t, all[i].Position, last)
		last, all[i].Position = all[i].Position, 0
	}
	require.Equal(t, want, all)
	newest, err := f.End(t.Context())
	require.NoError(t, err)
	require.Equal(t, last, newest)
	all, err = f.Entries(t.Context(), end, 2)
	require.NoError(t, err)
	require.Len(t, all, 2)
	all, err = f.Entries(t.Context(), newest, 2)
	require.NoError(t, err)
	require.Empty(t, all)
}

func whoAwaitsAChangeIsWokenByItAlsoByAnotherProcess(t *testing.T, f *fixture) {
	other := f.again()
	c := f.added("plant-7")[0]
	end, err := f.End(t.Context())
	require.NoError(t, err)
	require.NoError(t, f.Await(t.Context(), end-1), "there is one already")
	for i, by := range []store.Store{f.Store, other.Store} {
		woken := make(chan error)
		go func() { woken <- f.Await(context.Background(), end) }()
		_, err := by.Ingest(t.Context(), store.Batch{UID: c.UID, Via: store.ViaHTTP, Reports: []store.Report{reportOf(c, order(1, int64(i+1)))}})
		require.NoError(t, err)
		require.NoError(t, <-woken)
		end, err = f.End(t.Context())
		require.NoError(t, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	woken := make(chan error)
	go func() { woken <- f.Await(ctx, end) }()
	cancel()
	require.ErrorIs(t, <-woken, context.Canceled)
}

func whoReadsOnNeverMissesAnEntry(t *testing.T, f *fixture) {
	const writers, batches = 4, 15
	var clusters []store.Cluster
	for i := range writers {
		clusters = append(clusters, f.addedAs(fmt.Sprint("plant-", i), uint64(i+1)))
	}
	after, err := f.End(t.Context())
	require.NoError(t, err)
	failed := make(chan error, writers)
	for i, c := range clusters {
		at := f.Store
		if i%2 == 1 {
			at = f.again().Store
		}
		go func() {
			var err error
			for n := range int64(batches) {
				_, e := at.Ingest(context.Background(), store.Batch{UID: c.UID, Via: store.ViaHTTP, Reports: []store.Report{reportOf(c, order(1, n+1))}})
				err = errors.Join(err, e)
			}
			failed <- err
		}()
	}
	seen := map[string]int64{}
	for n := 0; n < writers*batches; {
		require.NoError(t, f.Await(t.Context(), after))
		all, err := f.Entries(t.Context(), after, 7)
		require.NoError(t, err)
		for _, e := range all {
			require.Greater(t, e.Position, after)
			require.Equal(t, seen[e.UID]+1, e.Last.Seq)
			seen[e.UID], after = e.Last.Seq, e.Position
			n++
		}
	}
	for range writers {
		require.NoError(t, <-failed)
	}
}
