package zarf

import (
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sigstore/sigstore/pkg/cryptoutils"

	"github.com/wherry-dev/wherry/bundle/diskfile"
)

// signing is the key pair that identifies the packages made here: in cosign's format, encrypted with a password in a file
// beside it, since Zarf accepts no key without one.
type signing struct {
	private, public string // files
	password        string
}

// signingKey returns this agent's key, which is created at the first call. If the key was lost, packages are made again
// with a new one.
func (r *Reconciler) signingKey() (signing, error) {
	dir := filepath.Join(r.opts.Dir, "signing")
	s := signing{private: filepath.Join(dir, "cosign.key"), public: filepath.Join(dir, "cosign.pub")}
	passwordFile := filepath.Join(dir, "password")
	r.keyMu.Lock()
	defer r.keyMu.Unlock()
	if _, err := os.Stat(s.public); err == nil { // written last
		password, err := os.ReadFile(passwordFile)
		s.password = strings.TrimSpace(string(password))
		return s, err
	} else if !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	s.password = rand.Text()
	private, public, err := cryptoutils.GeneratePEMEncodedECDSAKeyPair(elliptic.P256(), cryptoutils.StaticPasswordFunc([]byte(s.password)))
	if err != nil {
		return s, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return s, err
	}
	for _, f := range []struct {
		path string
		data []byte
	}{{passwordFile, []byte(s.password + "\n")}, {s.private, private}, {s.public, public}} {
		if err := diskfile.WriteFile(f.path, f.data); err != nil {
			return s, err
		}
	}
	return s, nil
}
