package enroll

import (
	"crypto"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/queue"
)

// The records of state.Meta.
const (
	keyEnrollment = "enrolment" // enrollment: the hub that has registered this agent
	keyEnrolling  = "enrolling" // pending: a request that waits for its answer
	keyHint       = "clone"     // hint: the hub's hint about this agent's identity
)

// enrollment is the hub that has registered this agent, as the state keeps it.
type enrollment struct {
	// URL is empty if reports go by media.
	URL string `json:"url,omitempty"`
	// HubKey is the hub's public key, in PEM.
	HubKey string `json:"hubKey"`
	// Cluster and KeyID are the registered cluster and key.
	Cluster bundle.ReportCluster `json:"cluster"`
	KeyID   string               `json:"keyID"`
	Request digest.Digest        `json:"request"` // the answered one
	At      time.Time            `json:"at"`
}

func (e *enrollment) hub() (queue.Hub, error) {
	if e == nil {
		return queue.Hub{}, nil
	}
	keys, err := bundle.ParsePublicKeys([]byte(e.HubKey))
	if err != nil || len(keys) != 1 {
		return queue.Hub{}, fmt.Errorf("the enrollment's hub key: %w", state.ErrDamaged)
	}
	return queue.Hub{URL: e.URL, Key: keys[0]}, nil
}

// pending is a request that waits for its answer.
type pending struct {
	Kind Kind          `json:"kind"`
	ID   digest.Digest `json:"id"`
	// Request is the envelope.
	Request []byte `json:"request"`
	// Next is the agent's identity once the hub has agreed. Until then, during a rotation, both keys sign reports,
	// so that the hub accepts them whether it has changed over already or not.
	Next *Identity `json:"next,omitempty"`
}

func loadPending(tx *bbolt.Tx) (pending, error) {
	return state.Load[pending](tx, state.Meta, keyEnrolling)
}

// Store holds the agent's identity, and the hub that has registered it, from its state file. It may be used by several
// goroutines.
type Store struct {
	db *state.DB
	// who and hub are copies of what the file holds. A change is on disk before it shows here.
	who atomic.Pointer[Identity]
	hub atomic.Pointer[queue.Hub]
}

// New returns the Store in db, which is empty before Load.
func New(db *state.DB) *Store { return &Store{db: db} }

// Load reads identity and hub from the file.
func (s *Store) Load(tx *bbolt.Tx) error {
	id, err := LoadIdentity(tx)
	if err != nil {
		return err
	}
	e, err := state.Load[*enrollment](tx, state.Meta, keyEnrollment)
	if err != nil {
		return err
	}
	h, err := e.hub()
	if err != nil {
		return err
	}
	s.who.Store(&id)
	s.hub.Store(&h)
	return nil
}

// Identity returns the agent's identity.
func (s *Store) Identity() Identity {
	if id := s.who.Load(); id != nil {
		return *id
	}
	return Identity{}
}

// Hub returns the hub that has registered the agent; the zero Hub if none has.
func (s *Store) Hub() queue.Hub { return *s.hub.Load() }

// ReportKey returns the public half of the key that signs reports, in PEM.
func (s *Store) ReportKey() (string, error) {
	signer, err := s.Identity().Signer()
	if err != nil {
		return "", fmt.Errorf("state %s: %w", s.db.Path(), err)
	}
	return publicPEM(signer)
}

func publicPEM(key crypto.Signer) (string, error) {
	data, err := bundle.MarshalPublicKey(key.Public())
	return string(data), err
}

// Rename gives the agent the uid in the cluster's memory, unless a hub has registered the agent under its own uid or
// was asked to. It returns nil if nothing changes. Pass the result to Renamed once it is on disk.
func Rename(tx *bbolt.Tx, uid string) (*Identity, error) {
	meta := tx.Bucket([]byte(state.Meta))
	if meta.Get([]byte(keyEnrollment)) != nil || meta.Get([]byte(keyEnrolling)) != nil {
		return nil, nil
	}
	id, err := LoadIdentity(tx)
	if err != nil {
		return nil, err
	}
	id.UID = uid
	return &id, id.Save(tx)
}

// Renamed makes the identity that Rename has returned the present one.
func (s *Store) Renamed(id *Identity) { s.who.Store(id) }

// Waiting returns the kind of the request without an answer; empty if there is none.
func (s *Store) Waiting() (Kind, error) {
	p, err := s.pending()
	return p.Kind, err
}

func (s *Store) pending() (p pending, err error) {
	err = s.db.View(func(tx *bbolt.Tx) (err error) {
		p, err = loadPending(tx)
		return err
	})
	return p, err
}

// Signers returns the agent's identity, and the keys that sign its reports: both during a
// rotation.
func Signers(tx *bbolt.Tx) (Identity, []crypto.Signer, error) {
	id, err := LoadIdentity(tx)
	if err != nil {
		return id, nil, err
	}
	p, err := loadPending(tx)
	if err != nil {
		return id, nil, err
	}
	key, err := id.Signer()
	if err != nil || p.Kind != Rotate {
		return id, []crypto.Signer{key}, err
	}
	next, err := p.Next.Signer()
	return id, []crypto.Signer{key, next}, err
}
