package outbox

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
)

// Dead letters are reports that the hub says it will never take. They are out of the way of the others, and so few
// that they cannot fill the disk: where there is no room, a rejected report stays in the queue. Nobody has signed
// the rejection, so that they are never deleted for it, and are offered again after skipTime.
const (
	maxDeadReports = 1000
	maxDeadBytes   = 8 << 20
	skipTime       = 24 * time.Hour
)

// DeadLetter is a report that the hub will not take.
type DeadLetter struct {
	ID    digest.Digest `json:"id"`
	Seq   uint64        `json:"seq"`
	Bytes int           `json:"bytes"`
	// MadeAt is when it was reported, RejectedAt when the hub refused it first, and RetryAt when it is offered again.
	MadeAt     time.Time `json:"madeAt"`
	RejectedAt time.Time `json:"rejectedAt,omitzero"`
	RetryAt    time.Time `json:"retryAt,omitzero"`
	Reason     string    `json:"reason"`
}

// letter is a dead letter as it is kept.
type letter struct {
	queued
	RejectedAt time.Time       `json:"rejectedAt"`
	Envelope   json.RawMessage `json:"envelope"`
}

// due reports whether a report may be sent. After the clock was set back, a rejected report waits at most skipTime.
func (q queued) due(now time.Time) bool {
	return q.Rejected == "" || !now.Before(q.RetryAt) || q.RetryAt.Sub(now) > skipTime
}

// bury takes a report that was rejected out of the sending order.
func (q *queue) bury(e queued, why string, now time.Time) error {
	if e.Rejected == "" {
		q.totals.Rejected++
	}
	e.Rejected, e.RetryAt = cmp.Or(why, "rejected"), state.Stamp(now.Add(skipTime))
	q.totals.LastRejection = e.Rejected
	if q.totals.Dead == maxDeadReports || q.totals.DeadBytes+int64(e.Size) > maxDeadBytes {
		return q.note(e)
	}
	l := letter{queued: e, RejectedAt: state.Stamp(now), Envelope: bytes.Clone(q.reports.Get(seqKey(e.seq)))}
	err := errors.Join(q.remove(e), q.putLetter(l))
	q.totals.Rejected++ // which remove has counted as gone
	q.totals.Dead, q.totals.DeadBytes = q.totals.Dead+1, q.totals.DeadBytes+int64(e.Size)
	return err
}

func (q *queue) putLetter(l letter) error {
	b, err := q.tx.CreateBucketIfNotExists([]byte(bucketDead))
	if err != nil {
		return err
	}
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return b.Put(seqKey(l.seq), data)
}

func (q *queue) removeLetter(l letter) error {
	q.totals.Rejected, q.totals.Dead, q.totals.DeadBytes = q.totals.Rejected-1, q.totals.Dead-1, q.totals.DeadBytes-int64(l.Size)
	return q.tx.Bucket([]byte(bucketDead)).Delete(seqKey(l.seq))
}

// letters returns the dead letters, oldest first.
func (q *queue) letters() (all []letter, err error) {
	b := q.tx.Bucket([]byte(bucketDead))
	if b == nil {
		return nil, nil
	}
	err = b.ForEach(func(k, v []byte) error {
		l, err := parseLetter(k, v)
		all = append(all, l)
		return err
	})
	return all, err
}

func parseLetter(k, v []byte) (l letter, err error) {
	if err := json.Unmarshal(v, &l); err != nil {
		return l, fmt.Errorf("%s: %w: %v", bucketDead, state.ErrDamaged, err)
	}
	l.seq, l.envelope, l.dead = binary.BigEndian.Uint64(k), l.Envelope, true
	return l, nil
}

// deadBatch returns the dead letters that wanted chooses, within the bounds of one request.
func (o *Outbox) deadBatch(wanted func(queued) bool) (batch []queued, err error) {
	err = o.db.View(func(tx *bbolt.Tx) error {
		q, err := openQueue(tx)
		if err != nil || q.totals.Dead == 0 {
			return err
		}
		all, err := q.letters()
		total := 0
		for _, l := range all {
			if !wanted(l.queued) {
				continue
			}
			if total += l.Size; len(batch) == maxSendReports || len(batch) > 0 && total > maxSendBytes {
				break
			}
			batch = append(batch, l.queued)
		}
		return err
	})
	return batch, err
}

// settleLetter is what settle does with a dead letter that was offered again.
func (q *queue) settleLetter(sent queued, acked bool, why string, refused bool, now time.Time) (deleted bool, err error) {
	b := q.tx.Bucket([]byte(bucketDead))
	if b == nil {
		return false, nil
	}
	v := b.Get(seqKey(sent.seq))
	if v == nil {
		return false, nil
	}
	l, err := parseLetter(seqKey(sent.seq), v)
	switch {
	case err != nil || l.ID != sent.ID:
	case acked:
		return true, q.removeLetter(l)
	case refused:
		l.Rejected, l.RetryAt = cmp.Or(why, l.Rejected), state.Stamp(now.Add(skipTime))
		return false, q.putLetter(l)
	}
	return false, err
}

// DeadLetters returns the reports that the hub will not take, oldest first; also those that there was no room for
// among the dead letters.
func (o *Outbox) DeadLetters() (all []DeadLetter, err error) {
	all = []DeadLetter{}
	err = o.db.View(func(tx *bbolt.Tx) error {
		return eachRejected(tx, func(_ *queue, l letter) error {
			all = append(all, DeadLetter{l.ID, l.seq, l.Size, l.At, l.RejectedAt, l.RetryAt, l.Rejected})
			return nil
		})
	})
	return all, err
}

// RetryDeadLetters has all of them offered to the hub with the next request, and wakes the sinks. It returns how many there are.
func (o *Outbox) RetryDeadLetters() (n int, err error) {
	defer o.Wake()
	return o.changeRejected(func(q *queue, l letter) error {
		l.RetryAt = time.Time{}
		if l.dead {
			return q.putLetter(l)
		}
		return q.note(l.queued)
	})
}

// DropDeadLetters deletes all of them for good. It returns how many there were.
func (o *Outbox) DropDeadLetters() (n int, err error) {
	return o.changeRejected(func(q *queue, l letter) error {
		if l.dead {
			return q.removeLetter(l)
		}
		return q.remove(l.queued)
	})
}

func (o *Outbox) changeRejected(f func(*queue, letter) error) (n int, err error) {
	err = o.db.UpdateIf(func(tx *bbolt.Tx) (bool, error) {
		n = 0
		var used *queue
		err := eachRejected(tx, func(q *queue, l letter) error {
			n, used = n+1, q
			return f(q, l)
		})
		if err == nil && used != nil {
			_, err = used.close()
		}
		return n > 0, err
	})
	return n, err
}

func eachRejected(tx *bbolt.Tx, f func(*queue, letter) error) error {
	q, err := openQueue(tx)
	if err != nil || q.totals.Rejected == 0 {
		return err
	}
	all, err := q.letters()
	if err == nil && q.totals.Rejected > q.totals.Dead {
		err = q.each(0, func(e queued) (bool, error) {
			if e.Rejected != "" {
				all = append(all, letter{queued: e})
			}
			return true, nil
		})
	}
	for _, l := range all {
		err = errors.Join(err, f(q, l))
	}
	return err
}
