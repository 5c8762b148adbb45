package bundle

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
)

// rsaKey returns a public key of that many bits, of which nobody has the private half.
func rsaKey(bits int) *rsa.PublicKey {
	n := new(big.Int).Lsh(big.NewInt(1), uint(bits-1))
	return &rsa.PublicKey{N: n.SetBit(n, 0, 1), E: 65537}
}

func ecdsaKey(t testing.TB, curve elliptic.Curve) crypto.PublicKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	require.NoError(t, err)
	return key.Public()
}

func TestKindsOfPublicKeysThatAreAccepted(t *testing.T) {
	_, edwards := reportKey(t)
	for name, key := range map[string]crypto.PublicKey{
		"Ed25519": edwards, "P-256": ecdsaKey(t, elliptic.P256()), "P-384": ecdsaKey(t, elliptic.P384()), "P-521": ecdsaKey(t, elliptic.P521()),
		"RSA of 2048 bits": rsaKey(2048), "RSA of 8192 bits": rsaKey(8192),
	} {
		keys, err := ParsePublicKeys([]byte(pemOf(t, key)))
		require.NoError(t, err, name)
		require.Equal(t, Keys{key}, keys, name)
	}
	for name, key := range map[string]crypto.PublicKey{
		"P-224": ecdsaKey(t, elliptic.P224()), "RSA of 1024 bits": rsaKey(1024), "RSA of 2047 bits": rsaKey(2047),
		"RSA of 8193 bits": rsaKey(8193), "RSA of 160,000 bits": rsaKey(160_000),
	} {
		_, err := ParsePublicKeys([]byte(pemOf(t, key)))
		require.ErrorIs(t, err, ErrKeyKind, name)
		der, err := x509.MarshalPKIXPublicKey(key)
		require.NoError(t, err)
		_, err = ParsePublicKey(der)
		require.ErrorIs(t, err, ErrKeyKind, name)
		_, _, err = OpenEnvelope(PayloadTypeReport, []byte(`{"payloadType":"`+PayloadTypeReport+`","signatures":[{}]}`), key)
		require.ErrorIs(t, err, ErrKeyKind, name)
	}
}

// A verification with such a key would take seconds, and anybody may ask for it.
func TestOversizedKeysAreRefusedBeforeAnythingIsVerified(t *testing.T) {
	signer, _ := reportKey(t)
	huge := pemOf(t, rsaKey(160_000))
	r := EnrollmentRequest{Cluster: ReportCluster{UID: "u"}, Key: huge}
	request, err := SealEnrollmentRequest(r, signer)
	require.NoError(t, err)
	require.Less(t, len(request), MaxEnrollmentBytes)
	_, _, err = OpenEnrollmentRequest(request)
	require.ErrorIs(t, err, ErrKeyKind)
	require.ErrorIs(t, err, ErrEnrollment)

	_, agents := reportKey(t)
	r.Key, r.Former = pemOf(t, agents), pemOf(t, rsaKey(4096)) // which may sign releases, and no reports
	request, err = SealEnrollmentRequest(r, signer)
	require.NoError(t, err)
	_, _, err = OpenEnrollmentRequest(request)
	require.ErrorIs(t, err, ErrKeyKind)

	thief, err := NewTrustKey("thief", rsaKey(160_000))
	require.NoError(t, err)
	body, err := json.Marshal(sampleTrust(1, Role{Keys: []TrustKey{thief}, Threshold: 1}, roleOf(1, newPerson(t, "anna"))))
	require.NoError(t, err)
	document, err := SealEnvelope(MediaTypeTrust, body, signer)
	require.NoError(t, err)
	_, _, err = OpenTrust(document)
	require.ErrorContains(t, err, ErrKeyKind.Error())
}
