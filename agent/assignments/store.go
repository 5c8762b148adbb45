package assignments

import (
	"bytes"
	"errors"
	"slices"
	"sync"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// The buckets of the state file. Every file has them.
const (
	Bucket       = "items"  // assignment: Record
	LedgerBucket = "ledger" // adapter NUL assignment: what a reconciler keeps
)

// Reader reads records, and decodes only those that have changed since it last did. The zero Reader is ready for use,
// by several goroutines.
type Reader struct {
	mu sync.Mutex
	// byName are the records of the last read, with their encoded form.
	byName map[string]*decoded
	// all are the records of the transaction with number id, which changes with each commit.
	all []Record
	id  int
}

type decoded struct {
	from []byte
	Record
}

// All returns the records by the names of their assignments. The slice belongs to all who ask: it is to be read only.
func (l *Reader) All(tx *bbolt.Tx) ([]Record, error) {
	b := tx.Bucket([]byte(Bucket))
	if b == nil {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	committed := !tx.Writable()
	if committed && l.byName != nil && l.id == tx.ID() {
		return l.all, nil
	}
	rs, read := make([]Record, 0, len(l.byName)), make(map[string]*decoded, len(l.byName))
	err := b.ForEach(func(k, v []byte) error {
		d := l.byName[string(k)]
		if d == nil || !bytes.Equal(d.from, v) {
			r, err := state.Load[Record](tx, Bucket, string(k))
			if err != nil {
				return err
			}
			d = &decoded{bytes.Clone(v), r}
		}
		read[string(k)] = d
		rs = append(rs, d.Record)
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.byName = read
	if rs = slices.Clip(rs); committed {
		l.all, l.id = rs, tx.ID()
	}
	return rs, nil
}

// ByName returns the records under the names of their assignments. The map is the caller's.
func (l *Reader) ByName(tx *bbolt.Tx) (map[string]Record, error) {
	rs, err := l.All(tx)
	byName := make(map[string]Record, len(rs))
	for _, r := range rs {
		byName[r.Spec.Name] = r
	}
	return byName, err
}

// Save keeps a record.
func Save(tx *bbolt.Tx, r Record) error { return state.Save(tx, Bucket, r.Spec.Name, r) }

// Write saves records, in one transaction, and deletes those of removed assignments, with their entries in the
// ledger.
func Write(db *state.DB, rs []Record) error {
	if len(rs) == 0 {
		return nil
	}
	return db.Update(func(tx *bbolt.Tx) (err error) {
		for _, r := range rs {
			if r.Removing && r.Item.State == bundle.Removed {
				err = errors.Join(err, state.Drop(tx, Bucket, r.Spec.Name), state.Drop(tx, LedgerBucket, ledgerKey(r.Adapter, r.Spec.Name)))
			} else {
				err = errors.Join(err, Save(tx, r))
			}
		}
		return err
	})
}
