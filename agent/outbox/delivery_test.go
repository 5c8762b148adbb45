package outbox

import (
	"crypto/ed25519"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle/queue"
	"github.com/wherry-dev/wherry/bundle/sweeptest"
)

// correspondence is an agent's queue, a hub, and a network that delays, reorders, repeats and loses messages between
// them, while attackers try to get reports deleted and the agent's disk is sometimes restored from a backup.
type correspondence struct {
	*testing.T
	random   *rand.Rand
	box      *Outbox
	dir      string
	hub      ed25519.PrivateKey
	stranger ed25519.PrivateKey

	made     int
	reported map[digest.Digest]bool // by the agent as it is now, whose disk may have been set back
	stored   map[digest.Digest]bool // at the hub, for good
	requests [][]queued             // under way to the hub
	answers  []answered             // under way back, any number of times

	backup         []byte
	backupReported map[digest.Digest]bool
}

type answered struct {
	batch []queued
	ack   []byte
}

func (w *correspondence) pick(n int) int { return w.random.IntN(n) }

// report makes one, which tells of a failure of its own, so that it never becomes superfluous.
func (w *correspondence) report() {
	w.made++
	id := digest.FromString(fmt.Sprint("report ", w.made))
	require.NoError(w, w.box.db.Update(func(tx *bbolt.Tx) error {
		last, err := LoadLast(tx)
		require.NoError(w, err)
		last.Seq++ // which begins again from where a backup was
		require.NoError(w, last.Save(tx))
		e := queued{ID: id, At: epoch.Add(time.Duration(w.made) * time.Minute), seq: uint64(last.Seq), envelope: []byte("{}")}
		return enqueue(tx, e, []string{fmt.Sprint(w.made)}, Limits{}.WithDefaults())
	}))
	w.reported[id] = true
}

func (w *correspondence) waiting() []queued {
	batch, err := w.box.batch(0, func(queued) bool { return true })
	require.NoError(w, err)
	return batch
}

func (w *correspondence) send() {
	if all := w.waiting(); len(all) > 0 {
		from := w.pick(len(all))
		w.requests = append(w.requests, all[from:from+1+w.pick(len(all)-from)])
	}
}

// receive has any of the requests arrive at the hub, which stores it and answers, though not everybody hears it.
func (w *correspondence) receive() {
	if len(w.requests) == 0 {
		return
	}
	i := w.pick(len(w.requests))
	batch := w.requests[i]
	if w.pick(3) > 0 { // else it comes again
		w.requests = slices.Delete(w.requests, i, i+1)
	}
	var ids []digest.Digest
	for _, q := range batch {
		w.stored[q.ID] = true
		ids = append(ids, q.ID)
	}
	w.answers = append(w.answers, answered{batch, ackOf(w.hub, "plant-7", ids)})
}

// hear has any answer arrive, new or old, as the answer to a request, or by a registry or a file.
func (w *correspondence) hear() {
	if len(w.answers) == 0 {
		return
	}
	a := w.answers[w.pick(len(w.answers))]
	if w.pick(2) == 0 {
		_, err := w.box.Acknowledge([][]byte{a.ack}, w.hub.Public(), "plant-7")
		require.NoError(w, err)
		return
	}
	ack, err := queue.OpenAck(a.ack, w.hub.Public(), "plant-7")
	require.NoError(w, err)
	_, err = w.box.settle(a.batch, verdicts{acknowledged: ack.Reports}, epoch)
	require.NoError(w, err)
}

// lie has somebody acknowledge what the hub may not have.
func (w *correspondence) lie() {
	var ids []digest.Digest
	for _, q := range w.waiting() {
		ids = append(ids, q.ID)
	}
	before := len(ids)
	envelope := ackOf(w.stranger, "plant-7", ids)
	if w.pick(2) == 0 {
		envelope = ackOf(w.hub, "plant-8", ids)
	}
	_, err := w.box.Acknowledge([][]byte{envelope}, w.hub.Public(), "plant-7")
	require.True(w, IsUntrusted(err), "%v", err)
	require.Len(w, w.waiting(), before)
}

func (w *correspondence) path() string { return filepath.Join(w.dir, state.File) }

func (w *correspondence) reopen(change func()) {
	require.NoError(w, w.box.db.Close())
	change()
	w.box = openBox(w.T, w.dir)
	agenttest.Bolt(w.box.db).NoSync = true
}

func (w *correspondence) save() {
	w.reopen(func() {
		var err error
		w.backup, err = os.ReadFile(w.path())
		require.NoError(w, err)
		w.backupReported = maps.Clone(w.reported)
	})
}

func (w *correspondence) restore() {
	if w.backup == nil {
		return
	}
	w.reopen(func() {
		require.NoError(w, os.WriteFile(w.path(), w.backup, 0o600))
		w.reported = maps.Clone(w.backupReported)
	})
}

// check requires the invariant: each report of the agent waits in the queue, or is stored.
func (w *correspondence) check() {
	waits := map[digest.Digest]bool{}
	for _, q := range w.waiting() {
		waits[q.ID] = true
	}
	for id := range w.reported {
		require.True(w, waits[id] || w.stored[id], "a report is lost")
	}
	for id := range waits {
		require.True(w, w.reported[id], "the queue holds what nobody has reported")
	}
}

func TestNoReportIsLostHoweverAcknowledgementsTravel(t *testing.T) {
	for seed := uint64(0); seed < 10; seed += uint64(sweeptest.Every(3)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			_, key, err := ed25519.GenerateKey(nil)
			require.NoError(t, err)
			_, stranger, err := ed25519.GenerateKey(nil)
			require.NoError(t, err)
			w := &correspondence{
				T: t, random: rand.New(rand.NewPCG(seed, 4)), hub: key, stranger: stranger, dir: t.TempDir(),
				reported: map[digest.Digest]bool{}, stored: map[digest.Digest]bool{},
			}
			w.box = openBox(t, w.dir)
			agenttest.Bolt(w.box.db).NoSync = true
			steps := []func(){w.report, w.report, w.send, w.send, w.receive, w.receive, w.hear, w.hear, w.hear, w.lie}
			for i := range 300 {
				switch {
				case i%50 == 20:
					w.save()
				case i%50 == 45:
					w.restore()
				case w.pick(20) == 0 && len(w.answers) > 0: // lost
					w.answers = w.answers[1:]
				default:
					steps[w.pick(len(steps))]()
				}
				w.check()
			}
			for all := w.waiting(); len(all) > 0; all = w.waiting() { // the network behaves at last
				w.requests = [][]queued{all}
				w.receive()
				last := w.answers[len(w.answers)-1]
				_, err := w.box.Acknowledge([][]byte{last.ack}, key.Public(), "plant-7")
				require.NoError(t, err)
				w.check()
			}
			for id := range w.reported {
				require.True(t, w.stored[id])
			}
			require.Zero(t, statusOf(t, w.box).Length)
		})
	}
}
