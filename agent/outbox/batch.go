package outbox

import (
	"iter"
	"time"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/queue"
)

// request bounds one batch for a sink; a single larger envelope goes alone.
var request = queue.Bounds{Entries: hubapi.MaxReports, Bytes: 1 << 20}

// batch returns the reports after seq that wanted chooses, oldest first, within the bounds of one request but at
// least one.
func (o *Outbox) batch(after uint64, wanted func(queued) bool) (batch []queued, err error) {
	err = o.db.View(func(tx *bbolt.Tx) error {
		q, err := boxOf(tx)
		if err == nil {
			batch, err = batchOf(q.reports, after, false, wanted)
		}
		return err
	})
	return batch, err
}

// deadBatch returns the dead letters that wanted chooses, within the bounds of one request.
func (o *Outbox) deadBatch(wanted func(queued) bool) (batch []queued, err error) {
	err = o.db.View(func(tx *bbolt.Tx) error {
		q, err := boxOf(tx)
		if err == nil {
			batch, err = batchOf(q.dead, 0, true, wanted)
		}
		return err
	})
	return batch, err
}

func batchOf(of *queue.Queue[queued], after uint64, dead bool, wanted func(queued) bool) (batch []queued, err error) {
	entries, err := of.Batch(seqKey(after+1), func(e queue.Entry[queued]) bool { return wanted(reportOf(e, dead)) }, request)
	for _, e := range entries {
		batch = append(batch, reportOf(e, dead))
	}
	return batch, err
}

// nextBatch returns what to give to a sink next: what batch returns, but the newest report alone, which is the
// whole present, where one batch does not reach it.
func (o *Outbox) nextBatch(after uint64, wanted func(queued) bool) (batch []queued, ahead bool, err error) {
	if batch, err = o.batch(after, wanted); err != nil || len(batch) == 0 {
		return nil, false, err
	}
	err = o.db.View(func(tx *bbolt.Tx) error {
		q, err := boxOf(tx)
		if err != nil {
			return err
		}
		newest, ok, err := q.newest()
		if ok && newest.seq > batch[len(batch)-1].seq && wanted(newest) {
			batch, err = batchOf(q.reports, newest.seq-1, false, wanted)
			ahead = true
		}
		return err
	})
	return batch, ahead, err
}

// verdicts are a hub's answers about reports. Only the acknowledgement is signed.
type verdicts struct {
	acknowledged []digest.Digest
	rejected     map[digest.Digest]string // why
}

func (v verdicts) acked() map[digest.Digest]bool {
	acked := make(map[digest.Digest]bool, len(v.acknowledged))
	for _, id := range v.acknowledged {
		acked[id] = true
	}
	return acked
}

// of counts the reports of batch that the hub has said anything of.
func (v verdicts) of(batch []queued) (n int) {
	acked := v.acked()
	for _, q := range batch {
		if _, refused := v.rejected[q.ID]; refused || acked[q.ID] {
			n++
		}
	}
	return n
}

// settle deletes the acknowledged reports of batch, and puts rejected ones aside. It returns the number of deleted
// reports: some may have become superfluous meanwhile. A report is identified by its id, the digest of its content: an
// acknowledgement of another report with the same seq, as after a restored backup, does not delete it.
func (o *Outbox) settle(batch []queued, v verdicts, now time.Time) (deleted int, err error) {
	acked := v.acked()
	err = o.db.UpdateIf(func(tx *bbolt.Tx) (changed bool, err error) {
		deleted = 0
		q, err := boxOf(tx)
		if err != nil {
			return false, err
		}
		for _, sent := range batch {
			why, refused := v.rejected[sent.ID]
			if !refused && !acked[sent.ID] {
				continue
			}
			e, ok, err := getFrom(q.of(sent), sent.seq, sent.dead)
			if err != nil {
				return false, err
			}
			changed = true
			switch {
			case !ok || e.ID != sent.ID:
			case acked[sent.ID]:
				deleted++
				err = q.remove(e)
			default:
				err = q.reject(e, why, now)
			}
			if err != nil {
				return false, err
			}
		}
		kept, err := q.close()
		return changed || kept, err
	})
	if err != nil {
		return 0, err
	}
	return deleted, nil
}

// settleAll is settle for acknowledgements that did not come as the answer to a batch.
func (o *Outbox) settleAll(acknowledged []digest.Digest) (deleted int, err error) {
	v := verdicts{acknowledged: acknowledged}
	acked := v.acked()
	var found []queued
	err = o.db.View(func(tx *bbolt.Tx) error {
		q, err := boxOf(tx)
		if err != nil {
			return err
		}
		found, err = q.all(func(e queued) bool { return acked[e.ID] })
		return err
	})
	if err != nil {
		return 0, err
	}
	return o.settle(found, v, time.Time{})
}

// all returns the dead letters and the reports that wanted chooses, without their envelopes.
func (q *box) all(wanted func(queued) bool) (all []queued, err error) {
	for _, entries := range []iter.Seq2[queued, error]{q.letters(), q.after(0)} {
		for e, err := range entries {
			if err != nil {
				return nil, err
			}
			if wanted(e) {
				all = append(all, e)
			}
		}
	}
	return all, nil
}
