package assignments

import (
	"crypto/sha256"
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

// Reader reads records, and decodes only those that have changed since it last did. It keeps them once, as an agent has them for
// as long as it runs. The zero Reader is ready for use, by several goroutines.
type Reader struct {
	mu sync.Mutex
	// all are the records of the last read, by the names of their assignments, and sums those of their encoded forms.
	all  []Record
	sums []sum
	// committed is true if all are those of the transaction with number id, which changes with each commit.
	committed bool
	id        int
}

type sum [sha256.Size]byte

// All returns the records by the names of their assignments. The slice belongs to all who ask: it is to be read only.
func (l *Reader) All(tx *bbolt.Tx) ([]Record, error) {
	b := tx.Bucket([]byte(Bucket))
	if b == nil {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	committed := !tx.Writable()
	if committed && l.committed && l.id == tx.ID() {
		return l.all, nil
	}
	next := Reader{all: make([]Record, 0, len(l.all)), sums: make([]sum, 0, len(l.all)), committed: committed, id: tx.ID()}
	at := 0 // in l.all, which has the order of the bucket
	err := b.ForEach(func(k, v []byte) error {
		for at < len(l.all) && l.all[at].Spec.Name < string(k) {
			at++
		}
		s := sha256.Sum256(v)
		if at < len(l.all) && l.all[at].Spec.Name == string(k) && l.sums[at] == s {
			next.add(l.all[at], s)
			return nil
		}
		r, err := state.Load[Record](tx, Bucket, string(k))
		next.add(r, s)
		return err
	})
	if err != nil {
		return nil, err
	}
	l.all, l.sums = slices.Clip(next.all), slices.Clip(next.sums)
	l.committed, l.id = next.committed, next.id
	return l.all, nil
}

func (l *Reader) add(r Record, s sum) { l.all, l.sums = append(l.all, r), append(l.sums, s) }

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
