package bundle

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/sigstore/sigstore/pkg/signature"
)

// Bounds of RSA keys, in bits. Smaller ones can be broken. The time that a verification takes grows with the square of
// the size: a key of 160,000 bits, which fits into a request for enrollment, takes seconds.
const (
	minRSABits = 2048
	maxRSABits = 8192
)

// ErrKeyKind is wrapped by errors about public keys whose type or size is not accepted.
var ErrKeyKind = errors.New("not a kind of key that is accepted")

// CheckPublicKey returns an error wrapping ErrKeyKind unless key is Ed25519, ECDSA on P-256, P-384 or P-521, or RSA of
// 2048 to 8192 bits. Each public key from outside must pass it, by ParsePublicKey or ParsePublicKeys, before it verifies
// anything.
func CheckPublicKey(key crypto.PublicKey) error {
	switch k := key.(type) {
	case ed25519.PublicKey:
		return nil
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256(), elliptic.P384(), elliptic.P521():
			return nil
		}
		return fmt.Errorf("%w: ECDSA on %s; use P-256, P-384 or P-521", ErrKeyKind, k.Params().Name)
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits < minRSABits || bits > maxRSABits {
			return fmt.Errorf("%w: RSA of %d bits; use %d to %d", ErrKeyKind, bits, minRSABits, maxRSABits)
		}
		return nil
	}
	return fmt.Errorf("%w: %T; use Ed25519, ECDSA or RSA", ErrKeyKind, key)
}

// ParsePublicKey parses a public key, a SubjectPublicKeyInfo in DER. The error wraps ErrKeyKind if CheckPublicKey refuses
// the key.
func ParsePublicKey(der []byte) (crypto.PublicKey, error) {
	key, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, fmt.Errorf("public key: %w", err)
	}
	if err := CheckPublicKey(key); err != nil {
		return nil, fmt.Errorf("public key: %w", err)
	}
	return key, nil
}

// verifierOf returns a verifier for signatures of key. It checks the key once more, since every verification passes here,
// however the key was parsed.
func verifierOf(key crypto.PublicKey) (signature.Verifier, error) {
	if err := CheckPublicKey(key); err != nil {
		return nil, err
	}
	return signature.LoadVerifier(key, crypto.SHA256)
}
