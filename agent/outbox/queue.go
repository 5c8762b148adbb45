package outbox

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"iter"
	"time"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/queue"
)

// queued describes a report in the queue, or a dead letter.
type queued struct {
	ID digest.Digest `json:"id"`
	At time.Time     `json:"at"`
	// Heartbeat is true for one that says nothing that the one before it has not said.
	Heartbeat bool `json:"heartbeat,omitempty"`
	// Begins and Ends are the failures whose first and last report it is; see coalesce.go.
	Begins []string `json:"begins,omitempty"`
	Ends   []string `json:"ends,omitempty"`
	// Rejected is why the hub will not take it, RejectedAt since when it is a dead letter, and RetryAt when it is offered again; see
	// dead.go.
	Rejected   string    `json:"rejected,omitempty"`
	RejectedAt time.Time `json:"rejectedAt,omitzero"`
	RetryAt    time.Time `json:"retryAt,omitzero"`
	// Tag is where it lies in a registry; empty before it was pushed. Incarnation is the agent's when it was made.
	Tag         string `json:"tag,omitempty"`
	Incarnation int64  `json:"incarnation,omitempty"`

	seq      uint64
	envelope []byte // only of a batch, and of a new one
	dead     bool   // it is a dead letter
}

// pinned reports whether the report has information about a failure that no other report has.
func (e queued) pinned() bool { return len(e.Begins)+len(e.Ends) > 0 }

// totals are the counters of the queue beside its length. The zero value is that of a new queue.
type totals struct {
	Coalesced int64 `json:"coalesced,omitempty"`
	Dropped   int64 `json:"dropped,omitempty"`
	// Judged is the seq up to which superfluous reports were looked for.
	Judged uint64 `json:"judged,omitempty"`
	// Gap is the time between two series of one failure, in nanoseconds; zero is failureGap.
	Gap time.Duration `json:"gap,omitempty"`
	// Rejected counts what the hub will not take.
	Rejected      int    `json:"rejected,omitempty"`
	LastRejection string `json:"lastRejection,omitempty"`
}

// box is the outbox within a transaction.
type box struct {
	tx             *bbolt.Tx
	reports, dead  *queue.Queue[queued] // by seq
	totals, before totals
}

func boxOf(tx *bbolt.Tx) (*box, error) {
	reports, err1 := queue.Open[queued](tx, bucketReports)
	dead, err2 := queue.Open[queued](tx, bucketDead)
	t, err3 := state.Load[totals](tx, state.Meta, keyTotals)
	return &box{tx: tx, reports: reports, dead: dead, totals: t, before: t}, errors.Join(err1, err2, err3)
}

// close keeps the totals. It says whether they have changed.
func (q *box) close() (bool, error) {
	if q.totals == q.before {
		return false, nil
	}
	if q.reports.Entries == 0 {
		q.totals.Gap = 0
	}
	return true, state.Save(q.tx, state.Meta, keyTotals, q.totals)
}

func seqKey(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }

// reportOf returns the report, or the dead letter, of an entry.
func reportOf(e queue.Entry[queued], dead bool) queued {
	r := e.Note
	r.seq, r.envelope, r.dead = binary.BigEndian.Uint64(e.Key), bytes.Clone(e.Body), dead
	return r
}

// after yields the reports after seq, oldest first. The queue must not change before the loop ends.
func (q *box) after(seq uint64) iter.Seq2[queued, error] { return each(q.reports, seq, false) }

// letters yields the dead letters, oldest first.
func (q *box) letters() iter.Seq2[queued, error] { return each(q.dead, 0, true) }

func each(of *queue.Queue[queued], seq uint64, dead bool) iter.Seq2[queued, error] {
	return func(yield func(queued, error) bool) {
		for e, err := range of.From(seqKey(seq + 1)) {
			if err != nil {
				yield(queued{}, err)
				return
			}
			if !yield(reportOf(e, dead), nil) {
				return
			}
		}
	}
}

func (q *box) get(seq uint64) (e queued, ok bool, err error) { return getFrom(q.reports, seq, false) }

func getFrom(of *queue.Queue[queued], seq uint64, dead bool) (e queued, ok bool, err error) {
	e, ok, err = of.Get(seqKey(seq))
	e.seq, e.dead = seq, dead
	return e, ok, err
}

// oldest and newest return the ends of the queue. They are not ok if it is empty.
func (q *box) oldest() (e queued, ok bool, err error) { return endOf(q.reports.First()) }
func (q *box) newest() (e queued, ok bool, err error) { return endOf(q.reports.Last()) }

func endOf(e queue.Entry[queued], ok bool, err error) (queued, bool, error) {
	if !ok {
		return queued{}, false, err
	}
	return reportOf(e, false), true, nil
}

// of returns the queue that e is in.
func (q *box) of(e queued) *queue.Queue[queued] {
	if e.dead {
		return q.dead
	}
	return q.reports
}

// note updates the description of a queued report or a dead letter.
func (q *box) note(e queued) error { return q.of(e).Note(seqKey(e.seq), e) }

func (q *box) insert(e queued) error { return q.of(e).Put(seqKey(e.seq), e, e.envelope) }

func (q *box) remove(e queued) error {
	if e.Rejected != "" {
		q.totals.Rejected--
	}
	return errors.Join(q.of(e).Delete(seqKey(e.seq)), q.unpushed(e.Tag))
}

// enqueue adds a report of the given failures, deletes the reports that it makes superfluous, and drops the oldest ones
// above limits.
func enqueue(tx *bbolt.Tx, e queued, failures []string, limits Limits) error {
	q, err := boxOf(tx)
	if err != nil {
		return err
	}
	if err := errors.Join(q.add(e, failures), q.makeRoom(limits)); err != nil {
		return err
	}
	_, err = q.close()
	return err
}

// OldestTag names the oldest report that the agent keeps beside the one of that incarnation and seq.
func OldestTag(tx *bbolt.Tx, incarnation, seq int64) (string, error) {
	q, err := boxOf(tx)
	if err != nil {
		return "", err
	}
	e, ok, err := q.oldest()
	if ok {
		return bundle.ReportTag(cmp.Or(e.Incarnation, incarnation), int64(e.seq)), nil
	}
	return bundle.ReportTag(incarnation, seq), err
}

// Clear deletes the queued reports and the memory of failures.
func Clear(tx *bbolt.Tx) error {
	q, err := boxOf(tx)
	if err != nil {
		return err
	}
	for _, name := range []string{bucketFailing, bucketPushed} {
		if err := tx.DeleteBucket([]byte(name)); err != nil && !errors.Is(err, berrors.ErrBucketNotFound) {
			return err
		}
	}
	err = errors.Join(q.reports.Clear(), q.dead.Clear())
	q.totals = totals{Coalesced: q.totals.Coalesced, Dropped: q.totals.Dropped}
	_, err2 := q.close()
	return errors.Join(err, err2)
}

// ReadStatus returns what waits. Unsent is not in the file, and empty.
func ReadStatus(tx *bbolt.Tx) (Status, error) {
	q, err := boxOf(tx)
	if err != nil {
		return Status{}, err
	}
	t := q.totals
	s := Status{Length: q.reports.Entries, Bytes: q.reports.Bytes, Coalesced: t.Coalesced, Dropped: t.Dropped, Rejected: t.Rejected}
	if s.Rejected > 0 {
		s.LastRejection = t.LastRejection
	}
	oldest, ok, err := q.oldest()
	if ok {
		s.Oldest = &oldest.At
	}
	return s, err
}
