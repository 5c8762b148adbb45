package agent

import (
	"bytes"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/reconcilers"
)

// Ledger returns the memory of the reconciler with the given name.
func (s *State) Ledger(adapter string) reconcilers.Ledger { return ledger{s, adapter} }

type ledger struct {
	state   *State
	adapter string
}

func ledgerKey(adapter, assignment string) string { return adapter + "\x00" + assignment }

func (l ledger) key(assignment string) []byte { return []byte(ledgerKey(l.adapter, assignment)) }

func (l ledger) Load(assignment string) (entry []byte, err error) {
	err = l.state.db.View(func(tx *bbolt.Tx) error {
		entry = bytes.Clone(tx.Bucket([]byte(bucketLedger)).Get(l.key(assignment)))
		return nil
	})
	return entry, err
}

func (l ledger) Save(assignment string, entry []byte) error {
	return l.state.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucketLedger))
		if len(entry) == 0 {
			return b.Delete(l.key(assignment))
		}
		return b.Put(l.key(assignment), entry)
	})
}
