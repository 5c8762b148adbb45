package agent

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/state"
)

func TestANewStateHasAnIdentityThatStays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "state")
	first := openTestState(t, dir)
	key, err := first.who.ReportKey()
	require.NoError(t, err)
	require.Contains(t, key, "BEGIN PUBLIC KEY")
	require.Equal(t, epoch.Unix(), first.who.Identity().Incarnation)
	require.NoError(t, first.Close())
	info, err := os.Stat(filepath.Join(dir, state.File))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), "the file holds the report key")

	second := openTestState(t, dir)
	again, err := second.who.ReportKey()
	require.NoError(t, err)
	require.Equal(t, key, again)
	require.Equal(t, first.who.Identity(), second.who.Identity())
}

func TestASecondAgentOnTheSameFolderIsTold(t *testing.T) {
	dir := t.TempDir()
	openTestState(t, dir)
	_, err := OpenState(dir, nil)
	require.ErrorIs(t, err, state.ErrBusy)
	_, err = ReadState(dir)
	require.ErrorIs(t, err, state.ErrBusy)
}

func TestReadingAStateThatIsNotThereMakesNothing(t *testing.T) {
	dir := t.TempDir()
	_, err := ReadState(dir)
	require.ErrorIs(t, err, state.ErrNoState)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestADamagedStateFileIsSaidToBeSo(t *testing.T) {
	for _, tc := range []struct {
		name   string
		damage func([]byte) []byte
	}{
		{"text", func([]byte) []byte { return []byte("hello") }},
		{"text of some length", func([]byte) []byte { return bytes.Repeat([]byte("hello "), 10_000) }},
		{"zeros", func(b []byte) []byte { return make([]byte, len(b)) }},
		{"cut in the middle", func(b []byte) []byte { return b[:100_000] }},
		{"cut after the first pages", func(b []byte) []byte { return b[:8192+100] }},
		{"pages of data overwritten", func(b []byte) []byte {
			for i := 8192; i < len(b); i++ {
				b[i] = 0xff
			}
			return b
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			s := openTestState(t, dir)
			require.NoError(t, s.db.Update(func(tx *bbolt.Tx) error {
				return state.Save(tx, state.Meta, "filler", bytes.Repeat([]byte("x"), 100_000))
			}))
			require.NoError(t, s.Close())
			path := filepath.Join(dir, state.File)
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, tc.damage(data), 0o600))

			_, err = OpenState(dir, nil)
			require.ErrorIs(t, err, state.ErrDamaged)
			require.Contains(t, err.Error(), path)
		})
	}
}

func TestAStateFolderThatCannotBeMadeIsAnErrorOfItsPath(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := OpenState(filepath.Join(file, "state"), nil)
	var onDisk *fs.PathError
	require.ErrorAs(t, err, &onDisk)
	require.Contains(t, err.Error(), file)
}

func TestALedgerKeepsEntriesByAdapter(t *testing.T) {
	dir := t.TempDir()
	s := openTestState(t, dir)
	a, b := s.Ledger("kubernetes"), s.Ledger("directory")
	require.NoError(t, a.Save("shop", []byte("one")))
	require.NoError(t, b.Save("shop", []byte("two")))
	require.NoError(t, s.Close())

	s = openTestState(t, dir)
	got, err := s.Ledger("kubernetes").Load("shop")
	require.NoError(t, err)
	require.Equal(t, "one", string(got))
	require.NoError(t, s.Ledger("kubernetes").Save("shop", nil))
	got, err = s.Ledger("kubernetes").Load("shop")
	require.NoError(t, err)
	require.Empty(t, got)
	got, err = s.Ledger("directory").Load("shop")
	require.NoError(t, err)
	require.Equal(t, "two", string(got))
}

func openTestState(t testing.TB, dir string) *State {
	t.Helper()
	s, err := OpenState(dir, func() time.Time { return epoch })
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestAStateFolderThatExistedIsKeptFromOtherUsers(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	s.once()
	loose := map[string]fs.FileMode{".": 0o755, state.File: 0o644, state.StoreDir: 0o755, content.ContentsDir: 0o755}
	for name, mode := range loose {
		require.NoError(t, os.Chmod(filepath.Join(s.dir, name), mode))
	}
	s.once()
	for name, mode := range loose {
		info, err := os.Stat(filepath.Join(s.dir, name))
		require.NoError(t, err)
		require.Equal(t, mode&0o700, info.Mode().Perm(), name)
	}
}
