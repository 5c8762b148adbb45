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
	id, err := load[identity](tx, bucketMeta, keyIdentity)
	if err != nil {
		return err
	}
	e, err := load[*enrolment](tx, bucketMeta, keyEnrolment)
	if err != nil {
		return err
	}
	p, err := e.place()
	if err != nil {
		return err
	}
	s.who.Store(&id)
	s.hub.Store(&p)
	return nil
}

// signer returns the report key.
func (s *State) signer() (crypto.Signer, error) {
	block, _ := pem.Decode(s.identity().Key)
	if block == nil {
		return nil, fmt.Errorf("report key in %s: %w", s.path(), ErrDamaged)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("report key in %s: %w: %v", s.path(), ErrDamaged, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("report key in %s: %w: it cannot sign", s.path(), ErrDamaged)
	}
	return signer, nil
}

// ReportKey returns the public half of the key that signs reports, in PEM.
func (s *State) ReportKey() (string, error) {
	signer, err := s.signer()
	if err != nil {
		return "", err
	}
	data, err := bundle.MarshalPublicKey(signer.Public())
	return string(data), err
}
