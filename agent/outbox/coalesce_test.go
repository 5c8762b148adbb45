package outbox

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/bundle/sweeptest"
)

// history is the oracle of the queue: all reports ever made, and those that were acknowledged.
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
	r := reported{queued: queued{ID: testID(int(seq)), At: at, seq: seq, envelope: make([]byte, 10+random.IntN(90))}}
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

// Random histories of reports, and of acknowledgements that come whenever they like, twice, or for something else.
func TestTheQueueHoldsWhatItsRuleSays(t *testing.T) {
	for seed := uint64(0); seed < 12; seed += uint64(sweeptest.Every(5)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			random, o, at := rand.New(rand.NewPCG(seed, 1)), unsynced(t), epoch
			h := &history{acked: map[uint64]bool{}}
			chance := []float64{0.02, 0.1, 0.5}[seed%3]
			for range 400 {
				at = at.Add(time.Duration(random.Int64N(int64(5 * time.Hour))))
				r := h.step(random, at, chance)
				require.NoError(t, o.db.Update(func(tx *bbolt.Tx) error {
					return enqueue(tx, r.queued, slices.Clone(r.failures), Limits{}.WithDefaults())
				}))
				if random.IntN(40) == 0 {
					ids := []digest.Digest{testID(-1)}
					for range random.IntN(60) {
						known := h.all[random.IntN(len(h.all))]
						ids, h.acked[known.seq] = append(ids, known.ID, known.ID), true
					}
					_, err := o.settleAll(ids)
					require.NoError(t, err)
				}
				if random.IntN(10) == 0 {
					require.Equal(t, h.kept(failureGap), seqs(t, o))
				}
			}
			kept := seqs(t, o)
			require.Equal(t, h.kept(failureGap), kept)
			st := statusOf(t, o)
			require.Equal(t, len(kept), st.Length)
			require.Zero(t, st.Dropped)
			require.NoError(t, o.db.View(func(tx *bbolt.Tx) error {
				q, err := boxOf(tx)
				require.NoError(t, err)
				var bytes int64
				for e, err := range q.after(0) {
					require.NoError(t, err)
					envelope, err := q.reports.Body(seqKey(e.seq))
					require.NoError(t, err)
					bytes += int64(len(envelope))
				}
				require.Equal(t, bytes, st.Bytes)
				return nil
			}))
		})
	}
}

// A queue that is much too small joins series, and still holds the first and the last report of each of those.
func TestATooSmallQueueLosesNoFailure(t *testing.T) {
	for seed := uint64(0); seed < 9; seed += uint64(sweeptest.Every(3)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			random, o, at := rand.New(rand.NewPCG(seed, 2)), unsynced(t), epoch
			h := &history{}
			limits := Limits{Reports: 9 + random.IntN(60), Bytes: 1 << 20} // 4 failures, each with a first and a last, and the newest
			for range 400 {
				at = at.Add(time.Duration(random.Int64N(int64(20 * time.Hour))))
				r := h.step(random, at, 0.15)
				require.NoError(t, o.db.Update(func(tx *bbolt.Tx) error { return enqueue(tx, r.queued, slices.Clone(r.failures), limits) }))
				if random.IntN(10) > 0 {
					continue
				}
				kept := seqs(t, o)
				require.LessOrEqual(t, len(kept), limits.Reports)
				require.Equal(t, r.seq, kept[len(kept)-1])
				h.series(gapOf(t, o), func(failure string, first, last reported) {
					require.Contains(t, kept, first.seq, "first of %s", failure)
					require.Contains(t, kept, last.seq, "last of %s", failure)
				})
			}
			kept := seqs(t, o)
			st := statusOf(t, o)
			require.EqualValues(t, len(h.all)-len(kept), st.Coalesced+st.Dropped)
		})
	}
}

func gapOf(t testing.TB, o *Outbox) (gap time.Duration) {
	t.Helper()
	require.NoError(t, o.db.View(func(tx *bbolt.Tx) error {
		q, err := boxOf(tx)
		gap = q.gap()
		return err
	}))
	return gap
}

// What a report costs must not depend on how many wait.
func BenchmarkEnqueue(b *testing.B) {
	for _, length := range []int{100, DefaultReports} {
		b.Run(fmt.Sprint(length), func(b *testing.B) {
			o := unsynced(b)
			add := func(tx *bbolt.Tx, i int) error { // each tells of a failure of its own
				e := queued{ID: testID(i), At: epoch.Add(time.Duration(i) * time.Minute), seq: uint64(i + 1), envelope: make([]byte, 4<<10)}
				return enqueue(tx, e, []string{fmt.Sprint(i)}, Limits{Reports: length, Bytes: 1 << 40})
			}
			require.NoError(b, o.db.Update(func(tx *bbolt.Tx) (err error) {
				for i := 0; i < length && err == nil; i++ {
					err = add(tx, i)
				}
				return err
			}))
			i := length
			for b.Loop() {
				require.NoError(b, o.db.Update(func(tx *bbolt.Tx) error { return add(tx, i) }))
				i++
			}
		})
	}
}
