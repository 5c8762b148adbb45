package outbox

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// queued describes a report in the queue.
type queued struct {
	ID   digest.Digest `json:"id"`
	Size int           `json:"size"`
	At   time.Time     `json:"at"`
	// Heartbeat is true for one that says nothing that the one before it has not said.
	Heartbeat bool `json:"heartbeat,omitempty"`
	// Begins and Ends are the failures whose first and last report it is; see coalesce.go.
	Begins []string `json:"begins,omitempty"`
	Ends   []string `json:"ends,omitempty"`
	// Rejected is why the hub will not take it, and RetryAt when it is offered again; see dead.go.
	Rejected string    `json:"rejected,omitempty"`
	RetryAt  time.Time `json:"retryAt,omitzero"`
	// Tag is where it lies in a registry; empty before it was pushed. Incarnation is the agent's when it was made.
	Tag         string `json:"tag,omitempty"`
	Incarnation int64  `json:"incarnation,omitempty"`

	seq      uint64
	envelope []byte
	dead     bool // it is a dead letter
}

// pinned reports whether the report has information about a failure that no other report has.
func (q queued) pinned() bool { return len(q.Begins)+len(q.Ends) > 0 }

// totals are what the queue comes to, kept beside it so that nobody has to count. The zero value is that of an
// empty queue.
type totals struct {
	Length    int   `json:"length"`
	Bytes     int64 `json:"bytes"`
	Coalesced int64 `json:"coalesced,omitempty"`
	Dropped   int64 `json:"dropped,omitempty"`
	// Judged is the seq up to which superfluous reports were looked for.
	Judged uint64 `json:"judged,omitempty"`
	// Gap is the time between two series of one failure, in nanoseconds; zero is failureGap.
	Gap time.Duration `json:"gap,omitempty"`
	// Rejected counts what the hub will not take; Dead and DeadBytes are those of them that are dead letters.
	Rejected      int    `json:"rejected,omitempty"`
	LastRejection string `json:"lastRejection,omitempty"`
	Dead          int    `json:"dead,omitempty"`
	DeadBytes     int64  `json:"deadBytes,omitempty"`
}

// queue is the queue within a transaction.
type queue struct {
	tx             *bbolt.Tx
	index, reports *bbolt.Bucket
	totals, before totals
}

func openQueue(tx *bbolt.Tx) (*queue, error) {
	q := &queue{tx: tx, index: tx.Bucket([]byte(bucketIndex)), reports: tx.Bucket([]byte(bucketReports))}
	if q.index == nil || q.reports == nil {
		return q, nil
	}
	var err error
	q.totals, err = state.Load[totals](tx, state.Meta, keyTotals)
	q.before = q.totals
	return q, err
}

// close keeps the totals. It says whether they have changed.
func (q *queue) close() (bool, error) {
	if q.totals == q.before {
		return false, nil
	}
	if q.totals.Length == 0 {
		q.totals.Gap = 0
	}
	return true, state.Save(q.tx, state.Meta, keyTotals, q.totals)
}

func seqKey(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }

// each calls f for the reports after seq, oldest first, until f returns false. f must not change the queue.
func (q *queue) each(after uint64, f func(queued) (bool, error)) error {
	c := q.index.Cursor()
	for k, v := c.Seek(seqKey(after + 1)); k != nil; k, v = c.Next() {
		e, err := parseQueued(k, v)
		if err != nil {
			return err
		}
		if more, err := f(e); err != nil || !more {
			return err
		}
	}
	return nil
}

func parseQueued(k, v []byte) (queued, error) {
	e := queued{seq: binary.BigEndian.Uint64(k)}
	if err := json.Unmarshal(v, &e); err != nil {
		return e, fmt.Errorf("%s %d: %w: %v", bucketIndex, e.seq, state.ErrDamaged, err)
	}
	return e, nil
}

func (q *queue) get(seq uint64) (e queued, ok bool, err error) {
	v := q.index.Get(seqKey(seq))
	if v == nil {
		return e, false, nil
	}
	e, err = parseQueued(seqKey(seq), v)
	return e, err == nil, err
}

// oldest and newest return the ends of the queue. They are not ok where it is empty.
func (q *queue) oldest() (e queued, ok bool, err error) { return q.end((*bbolt.Cursor).First) }
func (q *queue) newest() (e queued, ok bool, err error) { return q.end((*bbolt.Cursor).Last) }

func (q *queue) end(which func(*bbolt.Cursor) ([]byte, []byte)) (e queued, ok bool, err error) {
	if q.index == nil {
		return e, false, nil
	}
	k, v := which(q.index.Cursor())
	if k == nil {
		return e, false, nil
	}
	e, err = parseQueued(k, v)
	return e, err == nil, err
}

// note updates the index entry of a queued report.
func (q *queue) note(e queued) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return q.index.Put(seqKey(e.seq), data)
}

func (q *queue) insert(e queued) error {
	q.totals.Length, q.totals.Bytes = q.totals.Length+1, q.totals.Bytes+int64(e.Size)
	return errors.Join(q.note(e), q.reports.Put(seqKey(e.seq), e.envelope))
}

func (q *queue) remove(e queued) error {
	q.totals.Length, q.totals.Bytes = q.totals.Length-1, q.totals.Bytes-int64(e.Size)
	if e.Rejected != "" {
		q.totals.Rejected--
	}
	return errors.Join(q.index.Delete(seqKey(e.seq)), q.reports.Delete(seqKey(e.seq)), q.unpushed(e.Tag))
}

// enqueue adds a report of the given failures, deletes the reports that it makes superfluous, and drops the oldest ones
// above limits.
func enqueue(tx *bbolt.Tx, e queued, failures []string, limits Limits) error {
	q, err := openQueue(tx)
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
	q, err := openQueue(tx)
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
	q, err := openQueue(tx)
	if err != nil {
		return err
	}
	for _, name := range []string{bucketIndex, bucketReports, bucketFailing, bucketDead, bucketPushed} {
		if err := tx.DeleteBucket([]byte(name)); err != nil && !errors.Is(err, berrors.ErrBucketNotFound) {
			return err
		}
	}
	q.totals = totals{Coalesced: q.totals.Coalesced, Dropped: q.totals.Dropped}
	_, err = q.close()
	for _, name := range []string{bucketIndex, bucketReports} {
		_, err2 := tx.CreateBucketIfNotExists([]byte(name))
		err = errors.Join(err, err2)
	}
	return err
}

// ReadStatus returns what waits. Unsent is not in the file, and empty.
func ReadStatus(tx *bbolt.Tx) (Status, error) {
	q, err := openQueue(tx)
	if err != nil {
		return Status{}, err
	}
	t := q.totals
	s := Status{Length: t.Length, Bytes: t.Bytes, Coalesced: t.Coalesced, Dropped: t.Dropped, Rejected: t.Rejected}
	if s.Rejected > 0 {
		s.LastRejection = t.LastRejection
	}
	oldest, ok, err := q.oldest()
	if ok {
		s.Oldest = &oldest.At
	}
	return s, err
}
