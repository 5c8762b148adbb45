package agent

import (
	"bytes"
	"cmp"
	"errors"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"
)

// batch returns reports after seq, oldest first and without those to be skipped, within the bounds of
// one request but at least one.
func (s *State) batch(after uint64, maxReports, maxBytes int, skip func(digest.Digest) bool) (batch []queued, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		q, err := openQueue(tx)
		if err != nil || q.index == nil {
			return err
		}
		total := 0
		return q.each(after, func(e queued) (bool, error) {
			if skip(e.ID) {
				return true, nil
			}
			if total += e.Size; len(batch) == maxReports || len(batch) > 0 && total > maxBytes {
				return false, nil
			}
			batch = append(batch, q.with(e))
			return true, nil
		})
	})
	return batch, err
}

// last returns the newest report alone; none where the queue is empty.
func (s *State) last(skip func(digest.Digest) bool) (batch []queued, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		q, err := openQueue(tx)
		if err != nil {
			return err
		}
		e, ok, err := q.newest()
		if err == nil && ok && !skip(e.ID) {
			batch = []queued{q.with(e)}
		}
		return err
	})
	return batch, err
}

func (q *queue) with(e queued) queued {
	e.envelope = bytes.Clone(q.reports.Get(seqKey(e.seq)))
	return e
}

// settle deletes the reports of batch that are acknowledged, and marks those that were rejected with the hub's
// reason. It returns how many were deleted: some may have become superfluous meanwhile. A report is known by
// its id, which is the digest of what it says: an acknowledgement of another report with the same seq, as after
// a backup was restored, does not touch it.
func (s *State) settle(batch []queued, acknowledged []digest.Digest, rejected map[digest.Digest]string) (deleted int, err error) {
	acked := map[digest.Digest]bool{}
	for _, id := range acknowledged {
		acked[id] = true
	}
	err = s.updateIf(func(tx *bbolt.Tx) (bool, error) {
		deleted = 0
		q, err := openQueue(tx)
		if err != nil {
			return false, err
		}
		changed := false
		for _, sent := range batch {
			e, ok, err := q.get(sent.seq)
			if err != nil {
				return false, err
			}
			if !ok || e.ID != sent.ID {
				continue
			}
			why, refused := rejected[e.ID]
			switch {
			case acked[e.ID]:
				deleted, changed = deleted+1, true
				err = q.remove(e)
			case refused && e.Rejected == "":
				e.Rejected, changed = cmp.Or(why, "rejected"), true
				q.totals.Rejected, q.totals.LastRejection = q.totals.Rejected+1, e.Rejected
				err = q.note(e)
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
func (s *State) settleAll(acknowledged []digest.Digest) (deleted int, err error) {
	acked := map[digest.Digest]bool{}
	for _, id := range acknowledged {
		acked[id] = true
	}
	var found []queued
	err = s.view(func(tx *bbolt.Tx) error {
		q, err := openQueue(tx)
		if err != nil || q.index == nil {
			return err
		}
		return q.each(0, func(e queued) (bool, error) {
			if acked[e.ID] {
				found = append(found, e)
			}
			return true, nil
		})
	})
	deleted, err2 := s.settle(found, acknowledged, nil)
	return deleted, errors.Join(err, err2)
}
