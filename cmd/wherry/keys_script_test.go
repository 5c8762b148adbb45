package main

import (
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
)

// keyPairs has what "wherry keys generate" writes, with the password "secret": each pair is made once for all scripts.
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

// newKeyPair asks for the older strength, with which cosign's keys are opened in half the time: the scripts open
// them a hundred times. What generate itself writes is the matter of keys.txtar.
func newKeyPair() (*cosign.KeysBytes, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	sealed, err := encrypted.EncryptWithCustomKDFParameters(der, []byte("secret"), encrypted.Legacy)
	if err != nil {
		return nil, err
	}
	public, err := cryptoutils.MarshalPublicKeyToPEM(key.Public())
	if err != nil {
		return nil, err
	}
	private := pem.EncodeToMemory(&pem.Block{Type: cosign.SigstorePrivateKeyPemType, Bytes: sealed})
	return &cosign.KeysBytes{PrivateBytes: private, PublicBytes: public}, nil
}
