package keys

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
)

func TestAGeneratedKeySignsForItsPublicHalf(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "cosign")
	files, err := Generate(prefix, []byte("secret"))
	require.NoError(t, err)
	require.Equal(t, Files{Private: prefix + ".key", Public: prefix + ".pub"}, files)
	info, err := os.Stat(files.Private)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode())

	data, err := os.ReadFile(files.Private)
	require.NoError(t, err)
	key, err := Load(data, []byte("secret"))
	require.NoError(t, err)
	pub, err := os.ReadFile(files.Public)
	require.NoError(t, err)
	keys, err := bundle.ParsePublicKeys(pub)
	require.NoError(t, err)
	require.Equal(t, bundle.Pinned(bundle.Keys{key.Public()}), bundle.Pinned(keys))
	sig, err := key.SignMessage(bytes.NewReader([]byte("message")))
	require.NoError(t, err)
	verifier, err := signature.LoadVerifier(keys[0], crypto.SHA256)
	require.NoError(t, err)
	require.NoError(t, verifier.VerifySignature(bytes.NewReader(sig), bytes.NewReader([]byte("message"))))

	_, err = Load(data, []byte("guess"))
	require.ErrorIs(t, err, ErrPassword)
	_, err = Load(pub, nil)
	require.ErrorContains(t, err, "this is the public half")
}

func TestLoadKeySaysWhatAFileIsInstead(t *testing.T) {
	for _, tc := range []struct{ name, data, want string }{
		{"an empty file", "", "no key in PEM"},
		{"text", "hello", "no key in PEM"},
		{"another key", "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n", "is not a cosign key"},
		{"a damaged key", "-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----\n", "the password does not open it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Load([]byte(tc.data), nil)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestNoKeyFileIsEverReplaced(t *testing.T) {
	for _, there := range []string{"cosign.key", "cosign.pub"} {
		t.Run(there, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, there), []byte("old"), 0o600))
			_, err := Generate(filepath.Join(dir, "cosign"), []byte("secret"))
			require.ErrorIs(t, err, fs.ErrExist)
			require.ErrorContains(t, err, there)
			requireFiles(t, dir, map[string]string{there: "old"})
		})
	}
	t.Run("a link to nowhere", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(dir, "cosign.pub")))
		_, err := Generate(filepath.Join(dir, "cosign"), []byte("secret"))
		require.ErrorIs(t, err, fs.ErrExist)
		require.NoFileExists(t, filepath.Join(dir, "cosign.key"))
	})
	t.Run("a folder that is not there", func(t *testing.T) {
		dir := t.TempDir()
		_, err := Generate(filepath.Join(dir, "none", "cosign"), []byte("secret"))
		require.ErrorIs(t, err, fs.ErrNotExist)
		requireFiles(t, dir, map[string]string{})
	})
}

func TestKindsOfKeys(t *testing.T) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	_, err = New(private)
	require.NoError(t, err)
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	_, err = New(edwards)
	require.ErrorContains(t, err, "cannot sign releases")
}

func requireFiles(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		got[e.Name()] = string(data)
	}
	require.Equal(t, want, got)
}
