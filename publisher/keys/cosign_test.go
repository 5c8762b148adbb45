package keys

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/child/childtest"
)

// What the real program does with a real token is tested in e2e. Here a script has its place, so that it
// can be asked for what that one would not do.

// standIn returns a cosign that prints public as its key, and the output of a command as its signatures.
func standIn(t *testing.T, public crypto.PublicKey, signs string) CosignOptions {
	t.Helper()
	dir := t.TempDir()
	pem, err := bundle.MarshalPublicKey(public)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "key.pub"), pem, 0o600))
	program := filepath.Join(dir, "cosign")
	text := fmt.Sprintf("#!/bin/sh\ncd %s\necho \"$@\" >> calls\ncase $1 in\npublic-key) cat key.pub ;;\nsign-blob) cat > message; %s ;;\nesac\n", dir, signs)
	childtest.WriteProgram(t, program, text)
	return CosignOptions{Program: program}
}

func signed(t *testing.T, key *ecdsa.PrivateKey, message string) string {
	t.Helper()
	sum := sha256.Sum256([]byte(message))
	sig, err := ecdsa.SignASN1(rand.Reader, key, sum[:])
	require.NoError(t, err)
	return base64.StdEncoding.EncodeToString(sig)
}

func TestCosignSignsWhatItIsGiven(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	opts := standIn(t, private.Public(), "echo "+signed(t, private, "release"))
	key, err := OpenCosign(t.Context(), "pkcs11:token=a;object=b?pin-value=98%2F76&module-path=/m.so", opts)
	require.NoError(t, err)
	require.Equal(t, private.Public(), key.Public())
	sig, err := key.SignMessage(strings.NewReader("release"))
	require.NoError(t, err)
	verifier, err := signature.LoadVerifier(key.Public(), crypto.SHA256)
	require.NoError(t, err)
	require.NoError(t, verifier.VerifySignature(bytes.NewReader(sig), strings.NewReader("release")))

	calls, err := os.ReadFile(filepath.Join(filepath.Dir(opts.Program), "calls"))
	require.NoError(t, err)
	require.Equal(t, "public-key --key pkcs11:token=a;object=b?module-path=/m.so\n"+
		"sign-blob --yes --tlog-upload=false --new-bundle-format=false --use-signing-config=false --key pkcs11:token=a;object=b?module-path=/m.so -\n",
		string(calls), "arguments can be seen by everybody")
}

func TestNoSignatureOfCosignIsTakenOnTrust(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	for _, tc := range []struct{ name, signs, want string }{
		{"a signature by another key", "echo " + signed(t, other, "release"), "not by the key that it named"},
		{"a signature of something else", "echo " + signed(t, private, "else"), "not by the key that it named"},
		{"nothing", "true", "is not a signature"},
		{"a sentence", "echo I have signed it", "is not a signature"},
		{"no end of it", "yes | head -c 200000", "printed more than 65536 bytes"},
		{"a failure", "echo Error: token $COSIGN_PKCS11_PIN is locked >&2; echo and more >&2; exit 1", "cosign: token *** is locked"},
		{"a long failure", "yes é | head -c 100000 >&2; exit 1", "…"},
		{"a silent failure", "exit 7", "exit status 7"},
		{"a process left behind", "sleep 60 & exit 0", "left behind a process"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			opts := standIn(t, private.Public(), tc.signs)
			opts.PIN = "314159"
			key, err := OpenCosign(t.Context(), "pkcs11:token=a", opts)
			require.NoError(t, err)
			sig, err := key.SignMessage(strings.NewReader("release"))
			require.Nil(t, sig)
			require.ErrorContains(t, err, tc.want)
			require.NotContains(t, err.Error(), "314159")
			require.Less(t, len(err.Error()), 2*maxCosignMessage)
		})
	}
}

func TestKeysThatCosignCannotGive(t *testing.T) {
	edwards, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	_, err = OpenCosign(t.Context(), "awskms:///a", standIn(t, edwards, "true"))
	require.ErrorContains(t, err, "ed25519 keys cannot sign releases")

	_, err = OpenCosign(t.Context(), "awskms:///a", CosignOptions{Program: "/bin/true"})
	require.ErrorContains(t, err, "is not one public key")
	_, err = OpenCosign(t.Context(), "awskms:///a", CosignOptions{Program: filepath.Join(t.TempDir(), "none")})
	require.ErrorIs(t, err, ErrNoCosign)
	_, err = OpenCosign(t.Context(), "cosign.key", CosignOptions{})
	require.ErrorContains(t, err, "is not a URI of a key")
	_, err = OpenCosign(t.Context(), "pkcs11:a?pin-value=314159", CosignOptions{Program: "/bin/false"})
	require.EqualError(t, err, "public key of pkcs11:a: cosign: exit status 1")
	_, err = OpenCosign(t.Context(), "hashivault://me:314159@vault/a", CosignOptions{Program: "/bin/false"})
	require.NotContains(t, err.Error(), "314159")
}

func TestAPINIsTakenOutOfItsURI(t *testing.T) {
	for _, tc := range []struct{ uri, pin, without string }{
		{"pkcs11:token=a;object=b?module-path=/m.so&pin-value=12%2034", "12 34", "pkcs11:token=a;object=b?module-path=/m.so"},
		{"pkcs11:token=a?pin-value=1234&module-path=/m.so", "1234", "pkcs11:token=a?module-path=/m.so"},
		{"pkcs11:token=a?x=1;pin-value=1234;module-path=/m.so", "1234", "pkcs11:token=a?x=1;module-path=/m.so"},
		{"pkcs11:token=a?pin-value=12%", "12%", "pkcs11:token=a"},
		{"pkcs11:token=a?pin-value=", "", "pkcs11:token=a"},
		{"pkcs11:token=a", "", "pkcs11:token=a"},
	} {
		pin, ok := PINInURI(tc.uri)
		require.Equal(t, tc.pin, pin, tc.uri)
		require.Equal(t, tc.pin != "", ok, tc.uri)
		require.Equal(t, tc.without, withoutPIN(tc.uri))
	}
	_, ok := PINInURI("awskms:///a?pin-value=1")
	require.False(t, ok)
}
