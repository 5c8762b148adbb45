// Package trust keeps an agent's trust: the trust documents in its state file, the one in force, and the floors of time.
//
// Begin with New and Store.Load. Judge returns the trust for judging releases, Install and Follow add newer documents. A
// version is accepted once the roots before it have signed it, and is on disk before the next one is verified with it. Only
// Install accepts version 1, because a person has to vouch for its roots.
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

// Bucket holds the envelope of each trust document, by version. It exists once there is one.
const Bucket = "trust"

// Store holds the trust documents that an agent has accepted, in its state file. It may be used by several goroutines.
type Store struct {
	db      *state.DB
	chain   atomic.Pointer[bundle.TrustChain] // the content of Bucket
	growing sync.Mutex                        // held while it grows
}

// New returns the Store in db, which is empty before Load.
func New(db *state.DB) *Store { return &Store{db: db} }

// Chain returns the trust documents that the agent has accepted, version 1 first. Nil means none.
func (s *Store) Chain() bundle.TrustChain {
	if c := s.chain.Load(); c != nil {
		return *c
	}
	return nil
}

// keyOf returns the key of a version in Bucket.
func keyOf(version int64) []byte { return fmt.Appendf(nil, "%019d", version) }

// Version returns the version of the newest document in the file, 0 without one.
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

// believe adds a version to the chain if it is the next one and the roots have signed it, and does nothing
// if another goroutine has added it meanwhile. The version is on disk when believe returns nil.
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
