package agent

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/bundle"
)

// history is the oracle of the queue: all that was ever reported, and what was acknowledged of it.
type history struct {
	all   []reported
	acked map[uint64]bool
}

type reported struct {
	queued
	failures []string
}

// series calls f with the first and the last report of each series of each failure.
func (h *history) series(gap time.Duration, f func(failure string, first, last reported)) {
	byFailure := map[string][]reported{}
	for _, r := range h.all {
		for _, name := range r.failures {
			byFailure[name] = append(byFailure[name], r)
		}
	}
	for name, rs := range byFailure {
		first := 0
		for i := range rs {
			if i+1 == len(rs) || rs[i+1].At.Sub(rs[i].At) > gap {
				f(name, rs[first], rs[i])
				first = i + 1
			}
		}
	}
}

// kept is what the queue has to hold, no more and no less, where it is not full.
func (h *history) kept(gap time.Duration) []uint64 {
	newest := h.all[len(h.all)-1].seq
	keep := map[uint64]bool{newest: true}
	h.series(gap, func(_ string, first, last reported) { keep[first.seq], keep[last.seq] = true, true })
	for _, r := range h.all {
		if !r.Heartbeat && newest-r.seq < recentReports {
			keep[r.seq] = true
		}
	}
	var seqs []uint64
	for seq := range keep {
		if !h.acked[seq] {
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	return seqs
}

// step makes one more report at random: a heartbeat repeats what the one before it has said.
func (h *history) step(random *rand.Rand, at time.Time, chance float64) reported {
	seq := uint64(len(h.all) + 1)
	r := reported{queued: queued{ID: testID(int(seq)), Size: 10 + random.IntN(90), At: at, seq: seq, envelope: []byte("{}")}}
	if seq > 1 && random.IntN(3) == 0 {
		r.Heartbeat, r.failures = true, slices.Clone(h.all[seq-2].failures)
	} else {
		for _, name := range []string{"a", "b", "c", "d"} {
			if random.Float64() < chance {
				r.failures = append(r.failures, name)
			}
		}
	}
	h.all = append(h.all, r)
	return r
}

// unsynced opens a state that does not wait for the disk, which thousands of transactions would.
func unsynced(t testing.TB) *State {
	s := openTestState(t, t.TempDir())
	boltOf(s).NoSync = true
	return s
}

// Random histories of reports, and of acknowledgements that come whenever they like, twice, or for something else.
func TestTheQueueHoldsWhatItsRuleSays(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			random, s, at := rand.New(rand.NewPCG(seed, 1)), unsynced(t), epoch
			h := &history{acked: map[uint64]bool{}}
			chance := []float64{0.02, 0.1, 0.5}[seed%3]
			for range 400 {
				at = at.Add(time.Duration(random.Int64N(int64(5 * time.Hour))))
				r := h.step(random, at, chance)
				require.NoError(t, s.db.Update(func(tx *bbolt.Tx) error {
					return enqueue(tx, r.queued, slices.Clone(r.failures), QueueLimits{}.withDefaults())
				}))
				if random.IntN(40) == 0 {
					ids := []digest.Digest{testID(-1)}
					for range random.IntN(60) {
						known := h.all[random.IntN(len(h.all))]
						ids, h.acked[known.seq] = append(ids, known.ID, known.ID), true
					}
					_, err := s.settleAll(ids)
					require.NoError(t, err)
				}
				if random.IntN(10) == 0 {
					require.Equal(t, h.kept(failureGap), seqs(t, s))
				}
			}
			kept := seqs(t, s)
			require.Equal(t, h.kept(failureGap), kept)
			st := queueOf(t, s)
			require.Equal(t, len(kept), st.Length)
			require.Zero(t, st.Dropped)
			require.NoError(t, s.db.View(func(tx *bbolt.Tx) error {
				q, err := openQueue(tx)
				require.NoError(t, err)
				counted, err := q.count()
				require.Equal(t, counted.Bytes, st.Bytes)
				return err
			}))
		})
	}
}

// A queue that is much too small joins series, and still holds the first and the last report of each of those.
func TestATooSmallQueueLosesNoFailure(t *testing.T) {
	for seed := range uint64(9) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			random, s, at := rand.New(rand.NewPCG(seed, 2)), unsynced(t), epoch
			h := &history{}
			limits := QueueLimits{Reports: 9 + random.IntN(60), Bytes: 1 << 20} // 4 failures, each with a first and a last, and the newest
			for range 400 {
				at = at.Add(time.Duration(random.Int64N(int64(20 * time.Hour))))
				r := h.step(random, at, 0.15)
				require.NoError(t, s.db.Update(func(tx *bbolt.Tx) error { return enqueue(tx, r.queued, slices.Clone(r.failures), limits) }))
				if random.IntN(10) > 0 {
					continue
				}
				kept := seqs(t, s)
				require.LessOrEqual(t, len(kept), limits.Reports)
				require.Equal(t, r.seq, kept[len(kept)-1])
				h.series(gapOf(t, s), func(failure string, first, last reported) {
					require.Contains(t, kept, first.seq, "first of %s", failure)
					require.Contains(t, kept, last.seq, "last of %s", failure)
				})
			}
			kept := seqs(t, s)
			st := queueOf(t, s)
			require.EqualValues(t, len(h.all)-len(kept), st.Coalesced+st.Dropped)
		})
	}
}

func gapOf(t testing.TB, s *State) (gap time.Duration) {
	t.Helper()
	require.NoError(t, s.db.View(func(tx *bbolt.Tx) error {
		q, err := openQueue(tx)
		gap = q.gap()
		return err
	}))
	return gap
}

// 30 days without a hub: an agent that looks every ten minutes, of whose assignments one flaps all the time, one
// fails for hours now and then, one has failed once, and one waits for it ever since.
func TestThirtyDaysOfflineStaySmallAndLoseNoFailure(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	state := unsynced(t)
	a := s.agentOn(state)
	records := make([]record, 8)
	for i := range records {
		name := fmt.Sprintf("w%02d-x", i)
		records[i] = record{Spec: bundle.Assignment{Name: name}, Item: bundle.Item{Assignment: name, Workload: name, Target: "x", Content: testID(i), Message: strings.Repeat("m", 300)}}
		records[i] = records[i].to(bundle.Compliant, "", "", s.now)
	}
	began, onsets, random := s.now, 0, rand.New(rand.NewPCG(1, 3))
	until := map[int]time.Time{}
	for pass := range 30 * 24 * 6 {
		s.now = s.now.Add(10 * time.Minute)
		for i := range 4 {
			failing := s.now.Before(until[i])
			switch {
			case i == 0:
				failing = pass%2 == 0
			case i == 1 && !failing && random.IntN(200) == 0:
				until[i], failing = s.now.Add(time.Duration(random.IntN(9)+1)*time.Hour), true
			case i == 2:
				failing = pass == 777
			case i == 3:
				failing = pass >= 777
			}
			r := &records[i]
			if failing {
				if r.Item.State != bundle.Failed {
					onsets++
				}
				*r = r.to(bundle.Failed, "DeadlineExceeded", strings.Repeat("f", 300), s.now)
			} else {
				*r = r.to(bundle.Compliant, "", "", s.now)
			}
		}
		require.NoError(t, state.db.Update(func(tx *bbolt.Tx) (err error) {
			for _, r := range records {
				if err == nil {
					err = saveRecord(tx, r)
				}
			}
			return err
		}))
		require.NoError(t, a.report(s.now))
	}
	st := queueOf(t, state)
	t.Logf("%d failures in %s: %d reports of %d bytes wait, %d were coalesced", onsets, s.now.Sub(began), st.Length, st.Bytes, st.Coalesced)
	require.Greater(t, onsets, 2000)
	require.Zero(t, st.Dropped)
	require.Less(t, st.Length, recentReports+2*(30*4*2)) // two series in twelve hours at most, of two failures
	require.Greater(t, st.Coalesced, int64(2000))

	reports := openReports(t, a)
	newest := reports[len(reports)-1]
	require.Equal(t, records[3].Item.State, newest.Items[3].State)
	total := int64(0)
	for i, item := range newest.Items {
		require.Equal(t, records[i].Item.State, item.State)
		total += item.Failures
	}
	require.EqualValues(t, onsets, total, "the newest report tells how often each has failed")
	require.True(t, slices.ContainsFunc(reports, func(r bundle.Report) bool { return r.Items[2].State == bundle.Failed }), "what has failed once, a month ago, is still told")
	first := slices.IndexFunc(reports, func(r bundle.Report) bool { return r.Items[3].State == bundle.Failed })
	require.Equal(t, began.Add(778*10*time.Minute), reports[first].OccurredAt)
}

// What a report costs must not depend on how many wait.
func BenchmarkEnqueue(b *testing.B) {
	for _, length := range []int{100, DefaultQueueReports} {
		b.Run(fmt.Sprint(length), func(b *testing.B) {
			s := unsynced(b)
			add := func(tx *bbolt.Tx, i int) error { // each tells of a failure of its own
				e := queued{ID: testID(i), Size: 4 << 10, At: epoch.Add(time.Duration(i) * time.Minute), seq: uint64(i + 1), envelope: make([]byte, 4<<10)}
				return enqueue(tx, e, []string{fmt.Sprint(i)}, QueueLimits{Reports: length, Bytes: 1 << 40})
			}
			require.NoError(b, s.db.Update(func(tx *bbolt.Tx) (err error) {
				for i := 0; i < length && err == nil; i++ {
					err = add(tx, i)
				}
				return err
			}))
			i := length
			for b.Loop() {
				require.NoError(b, s.db.Update(func(tx *bbolt.Tx) error { return add(tx, i) }))
				i++
			}
		})
	}
}
