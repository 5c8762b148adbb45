package outbox

import (
	"bytes"
	"time"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/bundle/hubapi"
)

// Bounds of one batch for a sink.
const (
	maxSendReports = hubapi.MaxReports
	maxSendBytes   = 1 << 20 // of envelopes; a single larger one goes alone
)

// batch returns the reports after seq that wanted chooses, oldest first, within the bounds of one request but at
// least one.
func (o *Outbox) batch(after uint64, wanted func(queued) bool) (batch []queued, err error) {
	err = o.db.View(func(tx *bbolt.Tx) error {
		q, err := openQueue(tx)
		if err != nil || q.index == nil {
			return err
		}
		total := 0
		return q.each(after, func(e queued) (bool, error) {
			if !wanted(e) {
				return true, nil
			}
			if total += e.Size; len(batch) == maxSendReports || len(batch) > 0 && total > maxSendBytes {
				return false, nil
			}
			batch = append(batch, q.with(e))
			return true, nil
		})
	})
	return batch, err
}

// nextBatch returns what to give to a sink next: what batch returns, but the newest report alone, which is the
// whole present, where one batch does not reach it.
func (o *Outbox) nextBatch(after uint64, wanted func(queued) bool) (batch []queued, ahead bool, err error) {
	if batch, err = o.batch(after, wanted); err != nil || len(batch) == 0 {
		return nil, false, err
	}
	err = o.db.View(func(tx *bbolt.Tx) error {
		q, err := openQueue(tx)
		if err != nil {
			return err
		}
		newest, ok, err := q.newest()
		if ok && newest.seq > batch[len(batch)-1].seq && wanted(newest) {
			batch, ahead = []queued{q.with(newest)}, true
		}
		return err
	})
	return batch, ahead, err
}

func (q *queue) with(e queued) queued {
	e.envelope = bytes.Clone(q.reports.Get(seqKey(e.seq)))
	return e
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
		q, err := openQueue(tx)
		if err != nil {
			return false, err
		}
		for _, sent := range batch {
			why, refused := v.rejected[sent.ID]
			if !refused && !acked[sent.ID] {
				continue
			}
			gone, err := q.settle(sent, acked[sent.ID], why, refused, now)
			if err != nil {
				return false, err
			}
			if changed = true; gone {
				deleted++
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

func (q *queue) settle(sent queued, acked bool, why string, refused bool, now time.Time) (deleted bool, err error) {
	if sent.dead {
		return q.settleLetter(sent, acked, why, refused, now)
	}
	e, ok, err := q.get(sent.seq)
	switch {
	case err != nil || !ok || e.ID != sent.ID:
		return false, err
	case acked:
		return true, q.remove(e)
	}
	return false, q.bury(e, why, now)
}

// settleAll is settle for acknowledgements that did not come as the answer to a batch.
func (o *Outbox) settleAll(acknowledged []digest.Digest) (deleted int, err error) {
	v := verdicts{acknowledged: acknowledged}
	acked := v.acked()
	var found []queued
	err = o.db.View(func(tx *bbolt.Tx) error {
		q, err := openQueue(tx)
		if err != nil || q.index == nil {
			return err
		}
		letters, err := q.letters()
		for _, l := range letters {
			if acked[l.ID] {
				found = append(found, l.queued)
			}
		}
		if err != nil {
			return err
		}
		return q.each(0, func(e queued) (bool, error) {
			if acked[e.ID] {
				found = append(found, e)
			}
			return true, nil
		})
	})
	if err != nil {
		return 0, err
	}
	return o.settle(found, v, time.Time{})
}
