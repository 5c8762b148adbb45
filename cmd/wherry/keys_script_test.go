package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
	"github.com/sigstore/cosign/v2/pkg/cosign"
	"github.com/sigstore/sigstore/pkg/cryptoutils"

	"github.com/wherry-dev/wherry/publisher/keys"
)

// keyPairs has key pairs with the password "secret", as "wherry keys generate" writes them but for openBlock: each is made
// once for all scripts.
type keyPairs struct {
	mu    sync.Mutex
	named map[string]*cosign.KeysBytes
}

// copy writes the pairs of some names:
//
//	keypair NAME…   writes NAME.key and NAME.pub, which are the same for a name in each script
func (k *keyPairs) copy(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: keypair NAME…")
	}
	for _, name := range args {
		pair, err := k.get(name)
		ts.Check(err)
		ts.Check(os.WriteFile(ts.MkAbs(name+".key"), pair.PrivateBytes, 0o600))
		ts.Check(os.WriteFile(ts.MkAbs(name+".pub"), pair.PublicBytes, 0o644))
	}
}

func (k *keyPairs) get(name string) (*cosign.KeysBytes, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if pair := k.named[name]; pair != nil {
		return pair, nil
	}
	pair, err := newKeyPair()
	if err != nil {
		return nil, err
	}
	if k.named == nil {
		k.named = map[string]*cosign.KeysBytes{}
	}
	k.named[name] = pair
	return pair, nil
}

// scriptPassword opens the keys of scripts.
const scriptPassword = "secret"

// openBlock is the type of the PEM block that follows the sealed key in a file of keypair: the same key as PKCS #8.
const openBlock = "KEY OF A TEST"

// newKeyPair returns a pair whose private half has its open form beside it, for openScriptKey.
func newKeyPair() (*cosign.KeysBytes, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	sealed, err := encrypted.EncryptWithCustomKDFParameters(der, []byte(scriptPassword), encrypted.Legacy)
	if err != nil {
		return nil, err
	}
	public, err := cryptoutils.MarshalPublicKeyToPEM(key.Public())
	if err != nil {
		return nil, err
	}
	private := pem.EncodeToMemory(&pem.Block{Type: cosign.SigstorePrivateKeyPemType, Bytes: sealed})
	private = append(private, pem.EncodeToMemory(&pem.Block{Type: openBlock, Bytes: der})...)
	return &cosign.KeysBytes{PrivateBytes: private, PublicBytes: public}, nil
}

// openScriptKey is keys.Load without the cost of scrypt, a fifth of the time of all scripts, for a key of keypair and
// its password. Any other key and any other password is a matter of keys.Load; keys.txtar signs with a key of generate.
func openScriptKey(data, password []byte) (*keys.Key, error) {
	_, rest := pem.Decode(data)
	open, _ := pem.Decode(rest)
	if open == nil || open.Type != openBlock || string(password) != scriptPassword {
		return keys.Load(data, password)
	}
	key, err := x509.ParsePKCS8PrivateKey(open.Bytes)
	if err != nil {
		return nil, err
	}
	return keys.New(key.(crypto.Signer))
}
