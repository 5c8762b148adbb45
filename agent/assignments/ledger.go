package assignments

import (
	"bytes"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/reconcilers"
)

// LedgerOf returns the memory of the reconciler with the given name.
func LedgerOf(db *state.DB, adapter string) reconcilers.Ledger { return ledger{db, adapter} }

type ledger struct {
	db      *state.DB
	adapter string
}

func ledgerKey(adapter, assignment string) string { return adapter + "\x00" + assignment }

func (l ledger) Load(assignment string) (entry []byte, err error) {
	err = l.db.View(func(tx *bbolt.Tx) error {
		entry = bytes.Clone(tx.Bucket([]byte(LedgerBucket)).Get([]byte(ledgerKey(l.adapter, assignment))))
		return nil
	})
	return entry, err
}

func (l ledger) Save(assignment string, entry []byte) error {
	return l.db.Update(func(tx *bbolt.Tx) error { return SaveLedger(tx, l.adapter, assignment, entry) })
}

// SaveLedger keeps what a reconciler knows of an assignment. An empty entry forgets it.
func SaveLedger(tx *bbolt.Tx, adapter, assignment string, entry []byte) error {
	b, key := tx.Bucket([]byte(LedgerBucket)), []byte(ledgerKey(adapter, assignment))
	if len(entry) == 0 {
		return b.Delete(key)
	}
	return b.Put(key, entry)
}
