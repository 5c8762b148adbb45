package hub

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// The hub's key pair in its folder: PKCS #8 and SubjectPublicKeyInfo, both in PEM.
const (
	KeyFile       = "hub.key"
	PublicKeyFile = "hub.pub"
)

// loadKey reads the hub's key and makes it first where there is none. A hub that exists had one: agents
// have pinned it, and another in its place would have them keep their reports for ever.
func loadKey(dir string, exists bool) (ed25519.PrivateKey, error) {
	path := filepath.Join(dir, KeyFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if exists {
			return nil, fmt.Errorf("%s: %w: it is missing beside the database", path, ErrCorrupt)
		}
		if err := makeKey(path); err != nil {
			return nil, err
		}
	}
	key, err := readKey(path)
	if err != nil {
		return nil, err
	}
	public, err := EncodePublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	// The public half is a copy for people; it is written again whenever it is missing.
	pub := filepath.Join(dir, PublicKeyFile)
	if have, err := os.ReadFile(pub); err == nil && string(have) == string(public) {
		return key, nil
	}
	return key, writeFile(pub, public, 0o600, os.Rename)
}

// makeKey writes a new key, unless another process writes one first: linking, unlike renaming, never
// replaces what is there.
func makeKey(path string) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	err = writeFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600, os.Link)
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
		return nil, fmt.Errorf("%s: %w: it holds no PEM block", path, ErrCorrupt)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %v", path, ErrCorrupt, err)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s: %w: it holds a %T, not an Ed25519 key", path, ErrCorrupt, parsed)
	}
	return key, nil
}

// writeFile puts data under path by way of a synced temporary file beside it, so that a crash leaves
// either nothing or all of it.
func writeFile(path string, data []byte, mode fs.FileMode, place func(from, to string) error) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone already where place was a rename
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := place(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
