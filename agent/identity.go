package agent

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// identity is made once, when the file is new.
type identity struct {
	// Key is the private half of the report key, PKCS #8 in PEM.
	Key []byte `json:"key"`
	// UID names the cluster where the configuration does not.
	UID string `json:"uid"`
	// Incarnation is the Unix time in seconds at which the file was made.
	Incarnation int64 `json:"incarnation"`
}

func newIdentity(now time.Time) (identity, error) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return identity{}, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return identity{}, err
	}
	return identity{
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		UID:         strings.ToLower(rand.Text()),
		Incarnation: max(now.Unix(), 1),
	}, nil
}

// identity is who the agent is. A change of it is on disk before it shows here.
func (s *State) identity() identity {
	if id := s.who.Load(); id != nil {
		return *id
	}
	return identity{}
}

func (s *State) loadIdentity(tx *bbolt.Tx) error {
	id, err := state.Load[identity](tx, state.Meta, keyIdentity)
	if err != nil {
		return err
	}
	e, err := state.Load[*enrollment](tx, state.Meta, keyEnrollment)
	if err != nil {
		return err
	}
	p, err := e.hub()
	if err != nil {
		return err
	}
	s.who.Store(&id)
	s.hub.Store(&p)
	return nil
}

// signer returns the report key.
func (id identity) signer() (crypto.Signer, error) {
	block, _ := pem.Decode(id.Key)
	if block == nil {
		return nil, fmt.Errorf("report key: %w", state.ErrDamaged)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("report key: %w: %v", state.ErrDamaged, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("report key: %w: it cannot sign", state.ErrDamaged)
	}
	return signer, nil
}

// next is who the agent is to be: with another key, and in a later incarnation, so that what it reports from then on
// is newer than all before.
func (id identity) next(kind EnrollKind, now time.Time) (*identity, error) {
	next, err := newIdentity(now)
	next.Incarnation = max(next.Incarnation, id.Incarnation+1)
	if kind == EnrollRotate {
		next.UID = id.UID
	}
	return &next, err
}

// signers returns who the agent is, and the keys that sign its reports: both while one takes the place of the
// other.
func signers(tx *bbolt.Tx) (identity, []crypto.Signer, error) {
	id, err := state.Load[identity](tx, state.Meta, keyIdentity)
	if err != nil {
		return id, nil, err
	}
	pending, err := state.Load[enrolling](tx, state.Meta, keyEnrolling)
	if err != nil {
		return id, nil, err
	}
	key, err := id.signer()
	if err != nil || pending.Kind != EnrollRotate {
		return id, []crypto.Signer{key}, err
	}
	next, err := pending.Next.signer()
	return id, []crypto.Signer{key, next}, err
}

func publicPEM(key crypto.Signer) (string, error) {
	data, err := bundle.MarshalPublicKey(key.Public())
	return string(data), err
}

// ReportKey returns the public half of the key that signs reports, in PEM.
func (s *State) ReportKey() (string, error) {
	signer, err := s.identity().signer()
	if err != nil {
		return "", fmt.Errorf("state %s: %w", s.db.Path(), err)
	}
	return publicPEM(signer)
}
