package outbox

import (
	"crypto"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// epoch is when these tests begin.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// openBox opens the outbox of a state file that has nothing else, as the agent does.
func openBox(t testing.TB, dir string) *Outbox {
	t.Helper()
	db, err := state.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	require.NoError(t, db.Init(state.CheckSchema, func(*bbolt.Tx) error { return nil }))
	return New(db)
}

// unsynced opens one that does not wait for the disk, which thousands of transactions would.
func unsynced(t testing.TB) *Outbox {
	o := openBox(t, t.TempDir())
	agenttest.Bolt(o.db).NoSync = true
	return o
}

func statusOf(t testing.TB, o *Outbox) Status {
	t.Helper()
	st, err := o.Status()
	require.NoError(t, err)
	return st
}

func testID(i int) digest.Digest { return digest.FromString(fmt.Sprint("report ", i)) }

// ackOf is an acknowledgement that key has signed.
func ackOf(key crypto.Signer, cluster string, ids []digest.Digest) json.RawMessage {
	body, err := json.Marshal(bundle.Ack{Schema: bundle.ReportSchema, Cluster: cluster, IssuedAt: epoch, Reports: ids})
	if err != nil {
		panic(err)
	}
	envelope, err := bundle.SealEnvelope(bundle.PayloadTypeAck, body, key)
	if err != nil {
		panic(err)
	}
	return envelope
}

// fill adds one report for each word: its letters are the failures that it tells of, "-" is none and "h" a
// heartbeat without any. They are an hour apart.
func fill(t testing.TB, o *Outbox, limits Limits, size int, words ...string) {
	t.Helper()
	for _, w := range words {
		require.NoError(t, o.db.Update(func(tx *bbolt.Tx) error {
			q, err := boxOf(tx)
			require.NoError(t, err)
			last, _, err := q.newest()
			require.NoError(t, err)
			e := queued{ID: testID(int(last.seq)), At: epoch.Add(time.Duration(last.seq) * time.Hour), Heartbeat: w == "h", seq: last.seq + 1, envelope: make([]byte, size)}
			var failures []string
			if w != "-" && w != "h" {
				failures = strings.Split(w, "")
			}
			return enqueue(tx, e, failures, limits.WithDefaults())
		}))
	}
}

func seqs(t testing.TB, o *Outbox) (all []uint64) {
	t.Helper()
	require.NoError(t, o.db.View(func(tx *bbolt.Tx) error {
		q, err := boxOf(tx)
		require.NoError(t, err)
		for e, err := range q.after(0) {
			require.NoError(t, err)
			all = append(all, e.seq)
		}
		return nil
	}))
	return all
}

func TestAFullQueueGivesUpWhatNoFailureNeeds(t *testing.T) {
	for _, tc := range []struct {
		name    string
		reports string
		limits  Limits
		left    []uint64
		dropped int64
	}{
		{"room for all", "- - -", Limits{Reports: 3}, []uint64{1, 2, 3}, 0},
		{"oldest first", "- - - - -", Limits{Reports: 3}, []uint64{3, 4, 5}, 2},
		{"failures stay", "a - b - -", Limits{Reports: 3}, []uint64{1, 3, 5}, 2},
		{"a series needs its first and its last", "a a a a -", Limits{Reports: 3}, []uint64{1, 4, 5}, 2},
		{"of two series the first and the last", "a - - - - - - - a -", Limits{Reports: 3}, []uint64{1, 9, 10}, 7},
		{"series are joined", "a - - - - - - - a - - - - - - - a -", Limits{Reports: 3}, []uint64{1, 17, 18}, 15},
		{"among failures the oldest goes", "a b c d", Limits{Reports: 3}, []uint64{2, 3, 4}, 1},
		{"by size", "- - - -", Limits{Bytes: 25}, []uint64{3, 4}, 2},
		{"the newest stays though it is too large", "- -", Limits{Bytes: 5}, []uint64{2}, 1},
		{"a heartbeat makes the one before superfluous", "- h h h", Limits{}, []uint64{1, 4}, 0},
		{"so does an event", "- h h -", Limits{}, []uint64{1, 4}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			o := openBox(t, t.TempDir())
			fill(t, o, tc.limits, 10, strings.Fields(tc.reports)...)
			require.Equal(t, tc.left, seqs(t, o))
			st := statusOf(t, o)
			require.Equal(t, tc.dropped, st.Dropped)
			require.Equal(t, len(tc.left), st.Length)
			require.EqualValues(t, 10*len(tc.left), st.Bytes)
			require.EqualValues(t, len(strings.Fields(tc.reports))-len(tc.left), st.Dropped+st.Coalesced)
		})
	}
}

func TestABatchKeepsTheBoundsOfARequestAndMovesOn(t *testing.T) {
	o := openBox(t, t.TempDir())
	size := request.Bytes / 2
	fill(t, o, Limits{Reports: 1000}, size, strings.Fields("- - - - -")...)
	fill(t, o, Limits{Reports: 1000}, request.Bytes+1, "-")
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
			batch, err := o.batch(tc.after, tc.wanted)
			require.NoError(t, err)
			var got []uint64
			for _, q := range batch {
				got = append(got, q.seq)
			}
			require.Equal(t, tc.want, got)
		})
	}
	newest, ahead, err := o.nextBatch(0, all)
	require.NoError(t, err)
	require.True(t, ahead, "the newest report is the whole present")
	require.EqualValues(t, 6, newest[0].seq)
}
