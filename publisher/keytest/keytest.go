// Package keytest makes keys for tests.
package keytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/keys"
)

// New returns a new ECDSA key.
func New(t testing.TB) *keys.Key {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	key, err := keys.New(private)
	require.NoError(t, err)
	return key
}

// Named is what a trust document says of a key.
func Named(t testing.TB, name string, key *keys.Key) bundle.TrustKey {
	k, err := bundle.NewTrustKey(name, key.Public())
	require.NoError(t, err)
	return k
}
