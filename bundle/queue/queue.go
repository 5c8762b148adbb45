// Package queue keeps reports on disk until a hub has acknowledged them, and sends them there.
//
// It has three users: an agent's own reports (agent/outbox), the reports that an agent takes for other agents
// (agent/relay), and the reports that a hub forwards to another hub (hub/upstream). The agent's two lie in its state file:
// begin with Open, in a transaction. A forwarding hub has its reports in its database, which is a queue already, and
// remembers a position in it. Those that send use Hub.Send and OpenAck.
//
// The guarantee, which the crash tests of all three check:
//
//   - Disk first. An entry is added, changed and deleted in the caller's transaction. Only after the commit may the caller
//     send an entry, or tell anybody that it has one.
//   - An entry is deleted only after its acknowledgement: OpenAck returns what the hub's key has signed, and it names a
//     report by the digest of its content, never by its place. So a crash at any point means that a report is sent again,
//     which its receiver drops by the digest. No refusal is signed: an agent keeps a refused report and offers it again; a
//     forwarding hub passes over it, since its database has it anyway.
//   - Bounds. A queue counts its entries and bytes in the same transaction. Its user says what has to go from a full one,
//     and counts or answers for it: an outbox drops what newer reports tell as well, then its oldest; a relay takes no more,
//     so that the agents keep theirs.
//   - Order. Entries are in the order of their keys, byte by byte.
//   - A damaged entry is an error that wraps ErrDamaged. It is never skipped, and never deleted: the user stops until
//     a person has dropped it or replaced the file.
package queue

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// ErrDamaged means that an entry, or the file that it is in, cannot be read.
var ErrDamaged = errors.New("damaged")

// Totals are the size of a queue.
type Totals struct {
	Entries int   `json:"entries"`
	Bytes   int64 `json:"bytes"` // of bodies
}

// bucketTotals has the Totals by the names of queues.
const bucketTotals = "queues"

// Queue is a queue within a transaction of a bbolt file. An entry is a key, a note, which is JSON and small, and a body. The bodies
// are in a bucket of the queue's name, and the notes in one beside it, so that looking for an entry reads no bodies.
type Queue[N any] struct {
	Totals
	tx            *bbolt.Tx
	name          string
	notes, bodies *bbolt.Bucket // nil until the file has an entry
}

// Entry is an entry of a queue. Its slices are valid until the transaction ends.
type Entry[N any] struct {
	Key  []byte
	Note N
	Body []byte // only of Batch
}

func (q *Queue[N]) notesName() string { return q.name + "-index" }

// Open returns the queue of a name, which is empty if the file has none.
func Open[N any](tx *bbolt.Tx, name string) (*Queue[N], error) {
	q := &Queue[N]{tx: tx, name: name}
	q.notes, q.bodies = tx.Bucket([]byte(q.notesName())), tx.Bucket([]byte(name))
	totals := tx.Bucket([]byte(bucketTotals))
	if totals == nil {
		return q, nil
	}
	data := totals.Get([]byte(name))
	if data == nil {
		return q, nil
	}
	if err := json.Unmarshal(data, &q.Totals); err != nil {
		return nil, fmt.Errorf("%s %s: %w: %v", bucketTotals, name, ErrDamaged, err)
	}
	if q.Entries > 0 && (q.notes == nil || q.bodies == nil) {
		return nil, fmt.Errorf("%s: %w: its %d entries are gone", name, ErrDamaged, q.Entries)
	}
	return q, nil
}

// Get returns the note of an entry. It is not ok if there is no such entry.
func (q *Queue[N]) Get(key []byte) (note N, ok bool, err error) {
	if q.notes == nil {
		return note, false, nil
	}
	data := q.notes.Get(key)
	if data == nil {
		return note, false, nil
	}
	note, err = q.parse(key, data)
	return note, err == nil, err
}

func (q *Queue[N]) parse(key, data []byte) (note N, err error) {
	if err := json.Unmarshal(data, &note); err != nil {
		return note, fmt.Errorf("%s %x: %w: %v", q.notesName(), key, ErrDamaged, err)
	}
	return note, nil
}

// Body returns the body of an entry. It is valid until the transaction ends.
func (q *Queue[N]) Body(key []byte) ([]byte, error) {
	if q.bodies != nil {
		if body := q.bodies.Get(key); body != nil {
			return body, nil
		}
	}
	return nil, fmt.Errorf("%s %x: %w: it has no body", q.name, key, ErrDamaged)
}

// From yields the entries from a key on. The queue must not change before the loop ends.
func (q *Queue[N]) From(key []byte) iter.Seq2[Entry[N], error] {
	return func(yield func(Entry[N], error) bool) {
		if q.notes == nil {
			return
		}
		c := q.notes.Cursor()
		for k, v := c.Seek(key); k != nil; k, v = c.Next() {
			note, err := q.parse(k, v)
			if !yield(Entry[N]{Key: k, Note: note}, err) || err != nil {
				return
			}
		}
	}
}

// With yields the entries whose keys begin with prefix.
func (q *Queue[N]) With(prefix []byte) iter.Seq2[Entry[N], error] {
	return func(yield func(Entry[N], error) bool) {
		for e, err := range q.From(prefix) {
			if err == nil && !bytes.HasPrefix(e.Key, prefix) || !yield(e, err) {
				return
			}
		}
	}
}

// First and Last return the ends of the queue. They are not ok if it is empty.
func (q *Queue[N]) First() (e Entry[N], ok bool, err error) { return q.end((*bbolt.Cursor).First) }
func (q *Queue[N]) Last() (e Entry[N], ok bool, err error)  { return q.end((*bbolt.Cursor).Last) }

func (q *Queue[N]) end(which func(*bbolt.Cursor) ([]byte, []byte)) (e Entry[N], ok bool, err error) {
	if q.notes == nil {
		return e, false, nil
	}
	k, v := which(q.notes.Cursor())
	if k == nil {
		return e, false, nil
	}
	e.Key = k
	e.Note, err = q.parse(k, v)
	return e, err == nil, err
}

// Bounds are those of one request.
type Bounds struct{ Entries, Bytes int }

// Full reports whether a request that has entries of so many bytes has no place for one of next bytes. A first one always has.
func (b Bounds) Full(entries, bytes, next int) bool {
	return entries > 0 && (entries >= b.Entries || bytes+next > b.Bytes)
}

// Batch returns the entries from a key on that wanted chooses, with their bodies, within bounds.
func (q *Queue[N]) Batch(from []byte, wanted func(Entry[N]) bool, bounds Bounds) (batch []Entry[N], err error) {
	size := 0
	for e, err := range q.From(from) {
		if err != nil {
			return nil, err
		}
		if !wanted(e) {
			continue
		}
		if e.Body, err = q.Body(e.Key); err != nil {
			return nil, err
		}
		if bounds.Full(len(batch), size, len(e.Body)) {
			break
		}
		batch, size = append(batch, e), size+len(e.Body)
	}
	return batch, nil
}

// NextKey returns a number that no earlier call has returned, for keys in the order of arrival.
func (q *Queue[N]) NextKey() (uint64, error) {
	if err := q.create(); err != nil {
		return 0, err
	}
	return q.notes.NextSequence()
}

// create makes the buckets.
func (q *Queue[N]) create() (err error) {
	if q.notes != nil && q.bodies != nil {
		return nil
	}
	q.notes, err = q.tx.CreateBucketIfNotExists([]byte(q.notesName()))
	if err == nil {
		q.bodies, err = q.tx.CreateBucketIfNotExists([]byte(q.name))
	}
	return err
}

// Put adds an entry with a key that no entry has. A nil body is an empty one.
func (q *Queue[N]) Put(key []byte, note N, body []byte) error {
	if err := q.create(); err != nil {
		return err
	}
	if body == nil { // bbolt does not tell it from none
		body = []byte{}
	}
	return errors.Join(q.Note(key, note), q.bodies.Put(key, body), q.add(1, len(body)))
}

// Note replaces the note of an entry.
func (q *Queue[N]) Note(key []byte, note N) error {
	data, err := json.Marshal(note)
	if err != nil {
		return err
	}
	return q.notes.Put(key, data)
}

// Delete deletes an entry.
func (q *Queue[N]) Delete(key []byte) error {
	body, err := q.Body(key)
	if err != nil {
		return err
	}
	size := len(body)
	return errors.Join(q.notes.Delete(key), q.bodies.Delete(key), q.add(-1, -size))
}

func (q *Queue[N]) add(entries, size int) error {
	q.Totals = Totals{q.Entries + entries, q.Bytes + int64(size)}
	totals, err := q.tx.CreateBucketIfNotExists([]byte(bucketTotals))
	if err != nil {
		return err
	}
	data, err := json.Marshal(q.Totals)
	if err != nil {
		return err
	}
	return totals.Put([]byte(q.name), data)
}

// Clear deletes all entries.
func (q *Queue[N]) Clear() error {
	for _, name := range []string{q.notesName(), q.name} {
		if err := q.tx.DeleteBucket([]byte(name)); err != nil && !errors.Is(err, berrors.ErrBucketNotFound) {
			return err
		}
	}
	q.notes, q.bodies = nil, nil
	return q.add(-q.Entries, -int(q.Bytes))
}
