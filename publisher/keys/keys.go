// Package keys holds the keys that sign releases and trust documents.
//
// A [Key] comes from a file ([Load], [Generate]) or, by the cosign program, from a token or a key service
// ([OpenCosign]). A private key never leaves the package, and no message shows a PIN or a password.
package keys

import (
	"crypto"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/options"

	"github.com/wherry-dev/wherry/bundle/diskfile"
)

// ErrPassword is wrapped by Load's error when the password does not open the key.
var ErrPassword = errors.New("the password does not open it")

// ErrEd25519 is returned for a key of a kind that cannot sign releases: cosign signs with the prehashed variant, which Flux and our agents do not verify.
var ErrEd25519 = errors.New("ed25519 keys cannot sign releases: use ECDSA or RSA")

// cosignKeyType is the type of the PEM block in which cosign 1 wrote a private key.
const cosignKeyType = "ENCRYPTED COSIGN PRIVATE KEY"

// Key signs releases.
type Key struct {
	signature.Signer
	public crypto.PublicKey
}

// New returns a key that is in memory already, an ECDSA or RSA one.
func New(private crypto.Signer) (*Key, error) {
	signer, err := signature.LoadSigner(private, crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("signing key: %w", err)
	}
	return newKey(signer, private.Public())
}

func newKey(signer signature.Signer, public crypto.PublicKey) (*Key, error) {
	if _, ok := public.(ed25519.PublicKey); ok {
		return nil, ErrEd25519
	}
	return &Key{Signer: signer, public: public}, nil
}

// Public returns what agents pin.
func (k *Key) Public() crypto.PublicKey { return k.public }

// Load opens a private key as cosign writes it. It takes 64 MiB and about half a second, on purpose:
// that is what guessing a password costs.
func Load(data, password []byte) (*Key, error) {
	block, _ := pem.Decode(data)
	switch {
	case block == nil:
		return nil, errors.New("no key in PEM")
	case block.Type == "PUBLIC KEY":
		return nil, errors.New("this is the public half: the private one is in the .key file")
	case block.Type != string(cryptoutils.EncryptedSigstorePrivateKeyPEMType) && block.Type != cosignKeyType:
		return nil, fmt.Errorf("%q is not a cosign key: import it with cosign import-key-pair", block.Type)
	}
	signer, err := open(block.Bytes, password)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPassword, err)
	}
	public, err := signer.PublicKey()
	if err != nil {
		return nil, err
	}
	return newKey(signer, public)
}

// open decrypts a private key. It signs as cosign does.
func open(sealed, password []byte) (signature.Signer, error) {
	der, err := encrypted.Decrypt(sealed, password)
	if err != nil {
		return nil, err
	}
	private, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, err
	}
	return signature.LoadDefaultSignerVerifier(private, options.WithED25519ph())
}

// Files are the two files of a key pair.
type Files struct {
	Private string `json:"private"`
	Public  string `json:"public"`
}

// Generate writes a new key pair as prefix.key, with mode 0600, and prefix.pub. The password
// encrypts the private half. No existing file is replaced, and a failure leaves neither file behind;
// the error wraps fs.ErrExist when one of them is there.
func Generate(prefix string, password []byte) (files Files, err error) {
	files = Files{Private: prefix + ".key", Public: prefix + ".pub"}
	for _, name := range []string{files.Private, files.Public} {
		if _, err := os.Lstat(name); err == nil {
			return Files{}, fmt.Errorf("generate keys: %w", &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist})
		}
	}
	private, public, err := cryptoutils.GeneratePEMEncodedECDSAKeyPair(elliptic.P256(), cryptoutils.StaticPasswordFunc(append([]byte{}, password...)))
	if err != nil {
		return Files{}, fmt.Errorf("generate keys: %w", err)
	}
	if err := createFile(files.Private, private, 0o600); err != nil {
		return Files{}, fmt.Errorf("generate keys: %w", err)
	}
	if err := createFile(files.Public, public, 0o644); err != nil {
		return Files{}, errors.Join(fmt.Errorf("generate keys: %w", err), os.Remove(files.Private))
	}
	return files, nil
}

// createFile writes a file that must not be there yet, and has it on disk or not at all.
func createFile(name string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return diskfile.SyncDir(filepath.Dir(name))
}
