package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// fill adds one report for each word: its letters are the failures that it tells of, "-" is none and "h" a
// heartbeat without any. They are an hour apart.
func fill(t testing.TB, s *State, limits QueueLimits, size int, words ...string) {
	t.Helper()
	for _, w := range words {
		require.NoError(t, s.db.Update(func(tx *bbolt.Tx) error {
			q, err := openQueue(tx)
			require.NoError(t, err)
			last, _, err := q.newest()
			require.NoError(t, err)
			e := queued{ID: testID(int(last.seq)), Size: size, At: epoch.Add(time.Duration(last.seq) * time.Hour), Heartbeat: w == "h", seq: last.seq + 1, envelope: []byte("{}")}
			var failures []string
			if w != "-" && w != "h" {
				failures = strings.Split(w, "")
			}
			return enqueue(tx, e, failures, limits.withDefaults())
		}))
	}
}

func seqs(t testing.TB, s *State) (all []uint64) {
	t.Helper()
	require.NoError(t, s.db.View(func(tx *bbolt.Tx) error {
		q, err := openQueue(tx)
		require.NoError(t, err)
		return q.each(0, func(e queued) (bool, error) { all = append(all, e.seq); return true, nil })
	}))
	return all
}

func queueOf(t testing.TB, s *State) (st QueueStatus) {
	t.Helper()
	require.NoError(t, s.db.View(func(tx *bbolt.Tx) (err error) { st, err = queueStatus(tx); return err }))
	return st
}

func TestAFullQueueGivesUpWhatNoFailureNeeds(t *testing.T) {
	for _, tc := range []struct {
		name    string
		reports string
		limits  QueueLimits
		left    []uint64
		dropped int64
	}{
		{"room for all", "- - -", QueueLimits{Reports: 3}, []uint64{1, 2, 3}, 0},
		{"oldest first", "- - - - -", QueueLimits{Reports: 3}, []uint64{3, 4, 5}, 2},
		{"failures stay", "a - b - -", QueueLimits{Reports: 3}, []uint64{1, 3, 5}, 2},
		{"a series needs its first and its last", "a a a a -", QueueLimits{Reports: 3}, []uint64{1, 4, 5}, 2},
		{"of two series the first and the last", "a - - - - - - - a -", QueueLimits{Reports: 3}, []uint64{1, 9, 10}, 7},
		{"series are joined", "a - - - - - - - a - - - - - - - a -", QueueLimits{Reports: 3}, []uint64{1, 17, 18}, 15},
		{"among failures the oldest goes", "a b c d", QueueLimits{Reports: 3}, []uint64{2, 3, 4}, 1},
		{"by size", "- - - -", QueueLimits{Bytes: 25}, []uint64{3, 4}, 2},
		{"the newest stays though it is too large", "- -", QueueLimits{Bytes: 5}, []uint64{2}, 1},
		{"a heartbeat makes the one before superfluous", "- h h h", QueueLimits{}, []uint64{1, 4}, 0},
		{"so does an event", "- h h -", QueueLimits{}, []uint64{1, 4}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := openTestState(t, t.TempDir())
			fill(t, s, tc.limits, 10, strings.Fields(tc.reports)...)
			require.Equal(t, tc.left, seqs(t, s))
			st := queueOf(t, s)
			require.Equal(t, tc.dropped, st.Dropped)
			require.Equal(t, len(tc.left), st.Length)
			require.EqualValues(t, 10*len(tc.left), st.Bytes)
			require.EqualValues(t, len(strings.Fields(tc.reports))-len(tc.left), st.Dropped+st.Coalesced)
		})
	}
}

func TestABatchKeepsTheBoundsOfARequestAndMovesOn(t *testing.T) {
	s := openTestState(t, t.TempDir())
	const size = maxSendBytes / 2
	fill(t, s, QueueLimits{Reports: 1000}, size, strings.Fields("- - - - -")...)
	fill(t, s, QueueLimits{Reports: 1000}, maxSendBytes+1, "-")
	all := func(queued) bool { return true }
	for _, tc := range []struct {
		name   string
		after  uint64
		wanted func(queued) bool
		want   []uint64
	}{
		{"by bytes", 0, all, []uint64{1, 2}},
		{"the next", 2, all, []uint64{3, 4}},
		{"one that is too large goes alone", 5, all, []uint64{6}},
		{"without the skipped", 0, func(q queued) bool { return q.seq != 1 }, []uint64{2, 3}},
		{"at the end", 6, all, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			batch, err := s.batch(tc.after, tc.wanted)
			require.NoError(t, err)
			var got []uint64
			for _, q := range batch {
				got = append(got, q.seq)
			}
			require.Equal(t, tc.want, got)
		})
	}
	newest, ahead, err := s.nextBatch(0, all)
	require.NoError(t, err)
	require.True(t, ahead, "the newest report is the whole present")
	require.EqualValues(t, 6, newest[0].seq)
}

func TestAQueueOfAnEarlierVersionIsCountedAndThinned(t *testing.T) {
	dir := t.TempDir()
	s := openTestState(t, dir)
	require.NoError(t, s.db.Update(func(tx *bbolt.Tx) error {
		for i := range uint64(300) {
			value := fmt.Sprintf(`{"id":%q,"size":10,"at":"2026-03-01T12:00:00Z","failure":%t}`, testID(int(i)), i == 7)
			require.NoError(t, tx.Bucket([]byte(bucketIndex)).Put(seqKey(i+1), []byte(value)))
			require.NoError(t, tx.Bucket([]byte(bucketReports)).Put(seqKey(i+1), []byte("{}")))
		}
		return state.Save(tx, state.Meta, keyReporter, reporter{Seq: 300, Dropped: 4})
	}))
	require.NoError(t, s.Close())
	s = openTestState(t, dir)
	st := queueOf(t, s)
	require.Equal(t, QueueStatus{Length: 300, Bytes: 3000, Dropped: 4, Oldest: st.Oldest}, st)

	fill(t, s, QueueLimits{}, 10, "-")

	require.Equal(t, 101, queueOf(t, s).Length)
	require.EqualValues(t, []uint64{8, 202}, seqs(t, s)[:2])
}

func TestReportsAreMadeWhenSomethingChangesAndForHeartbeats(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	s.once()
	s.now = s.now.Add(30 * time.Minute)
	s.once()
	s.now = s.now.Add(31 * time.Minute)
	require.Equal(t, 2, s.once().Status.Queue.Length)
	s.agent(func(a *Agent) { require.Equal(t, bundle.Heartbeat, openReports(t, a)[1].Kind) })
	s.publish(s.draft(2, map[string]string{"a-x/f": "2"}))
	s.once()

	s.agent(func(a *Agent) {
		reports := openReports(t, a)
		require.Len(t, reports, 2, "an event makes the heartbeat before it superfluous")
		instances := map[string]bool{}
		for i, seq := range []int64{1, 3} {
			require.Equal(t, []bundle.ReportKind{bundle.Snapshot, bundle.Event}[i], reports[i].Kind)
			require.NotEmpty(t, reports[i].Agent.Instance)
			instances[reports[i].Agent.Instance], reports[i].Agent.Instance = true, ""
			require.Equal(t, bundle.ReportAgent{Version: "v0.0.0-test", Incarnation: epoch.Add(time.Hour).Unix(), Seq: seq, Oldest: s.tag(1)}, reports[i].Agent)
		}
		require.Len(t, instances, 2, "each process has one of its own")
		last := reports[1]
		require.Equal(t, "plant-7", last.Cluster.UID)
		require.Equal(t, bundle.Compliant, last.State)
		require.EqualValues(t, 2, last.Observed.Sequence)
		require.Equal(t, "c0ffee", last.Desired.BaseCommit)
		require.Equal(t, "a-x", last.Items[0].Assignment)
		require.NotEmpty(t, last.Items[0].Revision)
	})
}

func TestARefusalIsReportedAsDesiredBesideWhatRuns(t *testing.T) {
	s := newSite(t)
	good := s.publish(s.draft(5, map[string]string{"a-x/f": "1"}))
	s.once()
	d := s.draft(6, map[string]string{"a-x/f": "2"})
	d.Signer = nil
	bad := s.publish(d)
	s.once()

	s.agent(func(a *Agent) {
		reports := openReports(t, a)
		last := reports[len(reports)-1]
		require.Equal(t, bundle.Rejected, last.State)
		require.Equal(t, string(bundle.Unsigned), last.Reason)
		require.Equal(t, bad.Digest, last.Desired.Digest)
		require.Equal(t, good.Digest, last.Observed.Digest)
		require.Equal(t, bundle.Compliant, last.Items[0].State)
	})
}

// openReports verifies and parses what the queue holds.
func openReports(t *testing.T, a *Agent) []bundle.Report {
	t.Helper()
	signer, err := a.state.identity().signer()
	require.NoError(t, err)
	envelopes, err := a.state.Reports()
	require.NoError(t, err)
	var reports []bundle.Report
	for _, e := range envelopes {
		body, _, err := bundle.OpenEnvelope(bundle.PayloadTypeReport, e, signer.Public())
		require.NoError(t, err)
		r, err := bundle.ParseReport(body)
		require.NoError(t, err)
		reports = append(reports, r)
	}
	return reports
}

func testID(i int) digest.Digest { return digest.FromString(fmt.Sprint("report ", i)) }
