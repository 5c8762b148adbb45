package hub

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/hub/store"
)

// The hub's key pair in its folder: PKCS #8 and SubjectPublicKeyInfo, both in PEM.
const (
	KeyFile       = "hub.key"
	PublicKeyFile = "hub.pub"
)

// loadKey reads the hub's key, and makes one for a new hub. An existing hub had a key: agents have pinned it, and would
// keep their reports for ever if another took its place.
func (o Options) loadKey(dir string, exists bool) (ed25519.PrivateKey, error) {
	path := cmp.Or(o.KeyFile, filepath.Join(dir, KeyFile))
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		switch {
		case o.KeyFile != "":
			return nil, fmt.Errorf("%w: %s does not exist", ErrNoKey, path)
		case exists && o.Database != "":
			return nil, fmt.Errorf("%w: the database belongs to a hub, and %s does not exist", ErrNoKey, path)
		case exists:
			return nil, fmt.Errorf("%s: %w: the file is missing beside the database", path, store.ErrCorrupt)
		}
		if err := makeKey(path); err != nil {
			return nil, err
		}
	}
	key, err := readKey(path)
	if err != nil {
		return nil, err
	}
	public, err := bundle.MarshalPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	// The public half is a copy for people. A missing one is written again.
	pub := filepath.Join(dir, PublicKeyFile)
	if have, err := os.ReadFile(pub); err == nil && string(have) == string(public) {
		return key, nil
	}
	return key, diskfile.Replace(pub, 0o600, public)
}

// NewKey returns a new key of a hub, as PKCS #8 in PEM.
func NewKey() ([]byte, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), err
}

// makeKey writes a new key, unless another process writes one first: linking, unlike renaming, never
// replaces a file.
func makeKey(path string) error {
	key, err := NewKey()
	if err != nil {
		return err
	}
	err = diskfile.Create(path, key)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

func readKey(path string) (ed25519.PrivateKey, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s: %w: it holds no PEM block", path, store.ErrCorrupt)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %v", path, store.ErrCorrupt, err)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s: %w: it holds a %T, not an Ed25519 key", path, store.ErrCorrupt, parsed)
	}
	return key, nil
}

// ParseReportKey reads the public half of an agent's report key in PEM. The error wraps store.ErrInvalid.
func ParseReportKey(data []byte) (ed25519.PublicKey, error) {
	block, rest := pem.Decode(data)
	switch {
	case block == nil:
		return nil, fmt.Errorf("report key: %w: it holds no PEM block", store.ErrInvalid)
	case strings.Contains(block.Type, "PRIVATE KEY"):
		return nil, fmt.Errorf("report key: %w: this is a private key; keep it on its machine and pass its public key", store.ErrInvalid)
	case len(strings.TrimSpace(string(rest))) > 0:
		return nil, fmt.Errorf("report key: %w: something follows the first PEM block", store.ErrInvalid)
	}
	parsed, err := bundle.ParsePublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("report key: %w: %v", store.ErrInvalid, err)
	}
	key, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("report key: %w: expected an Ed25519 key, got %T", store.ErrInvalid, parsed)
	}
	return key, nil
}
