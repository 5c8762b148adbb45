package hub

import (
	"compress/gzip"
	"crypto/ed25519"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/storetest"
)

func TestOpenKeepsKeyAndContent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a folder?with#odd%20name")
	c := storetest.NewClock()
	h := openHub(t, dir, c)
	newAgent(t, "plant-7").register(t, h)
	key := h.PublicKey()
	require.NoError(t, h.Close())

	info, err := os.Stat(filepath.Join(dir, KeyFile))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.NoError(t, os.Remove(filepath.Join(dir, PublicKeyFile)))

	h = openHub(t, dir, c)
	require.Equal(t, key, h.PublicKey())
	require.Equal(t, "plant-7", onlyCluster(t, h).Name)
	pem, err := bundle.MarshalPublicKey(key)
	require.NoError(t, err)
	written, err := os.ReadFile(filepath.Join(dir, PublicKeyFile))
	require.NoError(t, err)
	require.Equal(t, string(pem), string(written))
	require.NoError(t, h.Check(t.Context()))
	left, err := filepath.Glob(filepath.Join(dir, ".*"))
	require.NoError(t, err)
	require.Empty(t, left, "no temporary file stays")
}

func TestOpenKeepsOtherUsersOut(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hub")
	openHub(t, dir, storetest.NewClock())
	modes := func() map[string]fs.FileMode {
		found := map[string]fs.FileMode{}
		require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			require.NoError(t, err)
			info, err := os.Lstat(path)
			require.NoError(t, err)
			found[filepath.Base(path)] = info.Mode().Perm()
			return nil
		}))
		return found
	}
	want := map[string]fs.FileMode{"hub": 0o700, "hub.db": 0o600, "hub.db-wal": 0o600, "hub.db-shm": 0o600, "hub.key": 0o600, "hub.pub": 0o600}
	require.Equal(t, want, modes(), "a new hub")
	for name := range want {
		if name != "hub" {
			require.NoError(t, os.Chmod(filepath.Join(dir, name), 0o666))
		}
	}
	require.NoError(t, os.Chmod(dir, 0o755))
	openHub(t, dir, storetest.NewClock())
	require.Equal(t, want, modes(), "one that existed")
}

func TestOpenRefuses(t *testing.T) {
	filled := func(t *testing.T) string {
		dir := t.TempDir()
		h := openHub(t, dir, storetest.NewClock())
		newAgent(t, "plant-7").register(t, h)
		require.NoError(t, h.Close())
		return dir
	}
	overwrite := func(name, content string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
		}
	}
	tests := []struct {
		name  string
		spoil func(t *testing.T, dir string)
		want  error
	}{
		{"a database that is none", overwrite(DatabaseFile, strings.Repeat("not a database", 1000)), store.ErrCorrupt},
		{"a key that is none", overwrite(KeyFile, "hello"), store.ErrCorrupt},
		{"a key of another kind", overwrite(KeyFile, "-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----\n"), store.ErrCorrupt},
		{"a key that is gone", func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, KeyFile))) }, store.ErrCorrupt},
		{"a database of the future", func(t *testing.T, dir string) {
			f, err := os.OpenFile(filepath.Join(dir, DatabaseFile), os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = f.WriteAt([]byte{0, 0, 0, 99}, 60) // the user version in SQLite's header
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}, store.ErrNewer},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := filled(t)
			tt.spoil(t, dir)
			_, err := Open(dir, Options{MustExist: true})
			require.ErrorIs(t, err, tt.want)
		})
	}
}

func TestDamageInsideIsFound(t *testing.T) {
	dir := t.TempDir()
	h := openHub(t, dir, storetest.NewClock())
	a := newAgent(t, "plant-7")
	a.register(t, h)
	require.NoError(t, h.Close())
	path := filepath.Join(dir, DatabaseFile)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(path, info.Size()/2))

	h, err = Open(dir, Options{})
	if err == nil { // the schema itself may have survived
		defer h.Close()
		err = h.Check(t.Context())
	}
	require.ErrorIs(t, err, store.ErrCorrupt)
}

func TestOpenOfAMissingHub(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	_, err := Open(dir, Options{MustExist: true})
	require.ErrorIs(t, err, ErrNoHub)
	require.NoDirExists(t, dir)
}

func TestOneProcessServesFromAFolder(t *testing.T) {
	dir := t.TempDir()
	h, err := Open(dir, Options{})
	require.NoError(t, err)
	release, err := h.Claim()
	require.NoError(t, err)
	other, err := Open(dir, Options{}) // such as a command that works on the folder
	require.NoError(t, err)
	_, err = other.Claim()
	require.ErrorIs(t, err, ErrServed)
	require.ErrorContains(t, err, dir)
	require.NoError(t, release())
	release, err = other.Claim()
	require.NoError(t, err)
	require.NoError(t, release())
	require.NoError(t, h.Close())
	require.NoError(t, other.Close())
}

func TestHubsMadeAtTheSameTimeShareOneKey(t *testing.T) {
	dir := t.TempDir()
	hubs := make(chan *Hub, 4)
	for range cap(hubs) {
		go func() {
			h, err := Open(dir, Options{})
			if err != nil {
				t.Error(err)
			}
			hubs <- h
		}()
	}
	var first *Hub
	for range cap(hubs) {
		h := <-hubs
		if h == nil {
			continue
		}
		defer h.Close()
		if first == nil {
			first = h
		}
		require.Equal(t, first.PublicKey(), h.PublicKey())
	}
}

// The database of each released version goes on as a hub: registrations, keys, order and history are as they were.
func TestAHubOfEachVersionGoesOn(t *testing.T) {
	fixtures, err := filepath.Glob(filepath.Join("store", "sqlite", "testdata", "version*.db.gz"))
	require.NoError(t, err)
	require.NotEmpty(t, fixtures)
	for _, fixture := range fixtures {
		t.Run(filepath.Base(fixture), func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, makeKey(filepath.Join(dir, KeyFile)))
			f, err := os.Open(fixture)
			require.NoError(t, err)
			defer f.Close()
			z, err := gzip.NewReader(f)
			require.NoError(t, err)
			content, err := io.ReadAll(z)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, DatabaseFile), content, 0o600))

			h := openHub(t, dir, storetest.NewClock())
			require.Equal(t, []string{"drone-main compliant"}, deploymentsOf(t, h))
			b := newAgent(t, "plant-8")
			_, refused := enroll(t, h, b.request(t, newToken(t, h, nil)))
			require.Empty(t, refused)
			a := newAgent(t, "plant-7")
			a.private = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)) // the fixture's
			it := storetest.Item("drone", bundle.Failed)
			it.Failures = 2
			status, _, _ := post(t, h, a.UID, a.seal(t, a.report(1, 2, it)))
			require.Equal(t, http.StatusOK, status)
			require.Equal(t, []string{"1/1 compliant ", "1/2 failed  failures=2"}, historyOf(t, h, a.UID)["drone-main"])
			require.NoError(t, h.Close())
			require.Equal(t, int64(2), presentOf(t, openHub(t, dir, storetest.NewClock()), a.UID)[0].Failures)
		})
	}
}
