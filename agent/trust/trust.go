// Package trust has what an agent knows of who may sign: the trust documents in its state file, which of them is in force,
// and the floors of time.
//
// Begin with New and Store.Load. Judge returns what a release is judged by, Install and Follow bring newer documents. A version
// is believed once the roots before it have signed it, and is on disk before the next one is judged by it. Nothing here
// brings version 1 but Install, because a person has to vouch for its roots.
package trust

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// Bucket has, by its version, the envelope of each trust document. It is there once there is one.
const Bucket = "trust"

// Store is the trust documents that an agent believes, in its state file. It may be used by several goroutines.
type Store struct {
	db      *state.DB
	chain   atomic.Pointer[bundle.TrustChain] // what Bucket holds
	growing sync.Mutex                        // held while it grows
}

// New returns the Store in db, which believes nothing before Load.
func New(db *state.DB) *Store { return &Store{db: db} }

// Chain returns the trust documents that the agent believes, version 1 first. Nil is none.
func (s *Store) Chain() bundle.TrustChain {
	if c := s.chain.Load(); c != nil {
		return *c
	}
	return nil
}

// keyOf is the key of a version in Bucket.
func keyOf(version int64) []byte { return fmt.Appendf(nil, "%019d", version) }

// Version is that of the newest document in the file, 0 without one.
func Version(tx *bbolt.Tx) (int64, error) {
	b := tx.Bucket([]byte(Bucket))
	if b == nil {
		return 0, nil
	}
	last, _ := b.Cursor().Last()
	if last == nil {
		return 0, nil
	}
	return strconv.ParseInt(string(last), 10, 64)
}

// Load reads the documents in their order and verifies them again, once in a process.
func (s *Store) Load(tx *bbolt.Tx) error {
	b := tx.Bucket([]byte(Bucket))
	if b == nil {
		return nil
	}
	var chain bundle.TrustChain
	err := b.ForEach(func(k, v []byte) (err error) {
		if chain, err = chain.Append(bytes.Clone(v)); err != nil {
			err = fmt.Errorf("%s %s: %w: %v", Bucket, k, state.ErrDamaged, err)
		}
		return err
	})
	s.chain.Store(&chain)
	return err
}

// believe adds a version to the chain if its turn has come and the roots have signed it, and does nothing
// where somebody else has added it meanwhile. What was believed is on disk when it returns nil.
func (s *Store) believe(version int64, envelope []byte) error {
	s.growing.Lock()
	defer s.growing.Unlock()
	if int64(len(s.Chain())) >= version {
		return nil
	}
	chain, err := s.Chain().Append(envelope)
	if err != nil {
		return err
	}
	d := chain.Current()
	err = s.db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte(Bucket))
		if err != nil {
			return err
		}
		return errors.Join(b.Put(keyOf(d.Version), envelope), RaiseFloor(tx, d.Epoch, d.IssuedAt))
	})
	if err == nil {
		s.chain.Store(&chain)
	}
	return err
}
