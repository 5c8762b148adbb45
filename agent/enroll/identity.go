package enroll

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

// The records of state.Meta.
const (
	keyIdentity = "identity"
	keyCluster  = "cluster" // bundle.ReportCluster
)

// Identity is made once, when the state file is new. The zero Identity is none.
type Identity struct {
	// Key is the private half of the report key, PKCS #8 in PEM.
	Key []byte `json:"key"`
	// UID names the cluster if the configuration does not.
	UID string `json:"uid"`
	// Incarnation is the Unix time in seconds at which the file was created.
	Incarnation int64 `json:"incarnation"`
}

func newIdentity(now time.Time) (Identity, error) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return Identity{}, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Identity{}, err
	}
	return Identity{
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		UID:         strings.ToLower(rand.Text()),
		Incarnation: max(now.Unix(), 1),
	}, nil
}

// Create writes an identity that is made at now.
func CreateIdentity(tx *bbolt.Tx, now time.Time) error {
	id, err := newIdentity(now)
	if err != nil {
		return err
	}
	return id.Save(tx)
}

// Load reads the identity.
func LoadIdentity(tx *bbolt.Tx) (Identity, error) {
	return state.Load[Identity](tx, state.Meta, keyIdentity)
}

// Save replaces the identity.
func (id Identity) Save(tx *bbolt.Tx) error { return state.Save(tx, state.Meta, keyIdentity, id) }

// Signer returns the report key.
func (id Identity) Signer() (crypto.Signer, error) {
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

// Next returns a new identity: with another key and uid, and a later incarnation, so that its reports are newer than all
// earlier ones.
func (id Identity) Next(now time.Time) (*Identity, error) {
	next, err := newIdentity(now)
	next.Incarnation = max(next.Incarnation, id.Incarnation+1)
	return &next, err
}

// LoadCluster reads the agent's cluster as of its last run; the zero one before the first.
func LoadCluster(tx *bbolt.Tx) (bundle.ReportCluster, error) {
	return state.Load[bundle.ReportCluster](tx, state.Meta, keyCluster)
}

// SaveCluster replaces the cluster that LoadCluster returns.
func SaveCluster(tx *bbolt.Tx, c bundle.ReportCluster) error {
	return state.Save(tx, state.Meta, keyCluster, c)
}
