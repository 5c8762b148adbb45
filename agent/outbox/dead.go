package outbox

import (
	"bytes"
	"cmp"
	"errors"
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

// due reports whether a report may be sent. After the clock was set back, a rejected report waits at most skipTime.
func (e queued) due(now time.Time) bool {
	return e.Rejected == "" || !now.Before(e.RetryAt) || e.RetryAt.Sub(now) > skipTime
}

// reject takes a report that was rejected out of the sending order, if there is room for it among the dead letters.
func (q *box) reject(e queued, why string, now time.Time) error {
	if e.dead {
		e.Rejected, e.RetryAt = cmp.Or(why, e.Rejected), state.Stamp(now.Add(skipTime))
		return q.note(e)
	}
	envelope, err := q.reports.Body(seqKey(e.seq))
	if err != nil {
		return err
	}
	if e.Rejected == "" {
		q.totals.Rejected++
	}
	e.Rejected, e.RetryAt = cmp.Or(why, "rejected"), state.Stamp(now.Add(skipTime))
	q.totals.LastRejection = e.Rejected
	if q.dead.Entries == maxDeadReports || q.dead.Bytes+int64(len(envelope)) > maxDeadBytes {
		return q.note(e)
	}
	letter := e
	letter.dead, letter.Tag, letter.RejectedAt, letter.envelope = true, "", state.Stamp(now), bytes.Clone(envelope)
	err = errors.Join(q.remove(e), q.insert(letter))
	q.totals.Rejected++ // which remove has counted as gone
	return err
}

// DeadLetters returns the reports that the hub will not take, oldest first; also those that there was no room for
// among the dead letters.
func (o *Outbox) DeadLetters() (all []DeadLetter, err error) {
	all = []DeadLetter{}
	err = o.db.View(func(tx *bbolt.Tx) error {
		q, err := boxOf(tx)
		if err != nil {
			return err
		}
		rejected, err := q.rejected()
		for _, e := range rejected {
			envelope, err := q.of(e).Body(seqKey(e.seq))
			if err != nil {
				return err
			}
			all = append(all, DeadLetter{e.ID, e.seq, len(envelope), e.At, e.RejectedAt, e.RetryAt, e.Rejected})
		}
		return err
	})
	return all, err
}

// RetryDeadLetters has all of them offered to the hub with the next request, and wakes the sinks. It returns how many there are.
func (o *Outbox) RetryDeadLetters() (n int, err error) {
	defer o.Wake()
	return o.changeRejected(func(q *box, e queued) error {
		e.RetryAt = time.Time{}
		return q.note(e)
	})
}

// DropDeadLetters deletes all of them for good. It returns how many there were.
func (o *Outbox) DropDeadLetters() (n int, err error) { return o.changeRejected((*box).remove) }

func (o *Outbox) changeRejected(change func(*box, queued) error) (n int, err error) {
	err = o.db.UpdateIf(func(tx *bbolt.Tx) (bool, error) {
		q, err := boxOf(tx)
		if err != nil {
			return false, err
		}
		rejected, err := q.rejected()
		n = len(rejected)
		for _, e := range rejected {
			err = errors.Join(err, change(q, e))
		}
		if err == nil {
			_, err = q.close()
		}
		return n > 0, err
	})
	return n, err
}

// rejected returns the dead letters, and the rejected reports that there was no room for among them.
func (q *box) rejected() ([]queued, error) {
	if q.totals.Rejected == 0 {
		return nil, nil
	}
	return q.all(func(e queued) bool { return e.Rejected != "" })
}
