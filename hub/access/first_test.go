package access

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// place writes a file that is not there yet.
func place(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

func TestTheFirstTokenIsMadeOnce(t *testing.T) {
	kept := &memory{}
	tokens := Tokens{Store: kept}
	file := filepath.Join(t.TempDir(), AdminTokenFile)
	first, err := tokens.First(t.Context(), file, place)
	require.NoError(t, err)
	who, err := tokens.Check(t.Context(), first)
	require.NoError(t, err)
	require.Equal(t, Admin, who.Role)
	require.WithinDuration(t, time.Now().Add(DefaultTokenTime), who.ExpiresAt, time.Minute)
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, first.Reveal()+"\n", string(data))

	again, err := tokens.First(t.Context(), file, place)
	require.NoError(t, err)
	require.Zero(t, again)

	// A person who has deleted the file, or revoked the token, wanted that.
	require.NoError(t, os.Remove(file))
	_, err = tokens.Revoke(t.Context(), "admin")
	require.NoError(t, err)
	again, err = tokens.First(t.Context(), file, place)
	require.NoError(t, err)
	require.Zero(t, again)
	require.NoFileExists(t, file)
}

// A crash after the file was written, and before the store has the token, loses nothing.
func TestAFirstTokenThatACrashHasLeftIsUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), AdminTokenFile)
	left := NewToken()
	require.NoError(t, place(file, []byte(left.Reveal()+"\n")))
	tokens := Tokens{Store: &memory{}}
	first, err := tokens.First(t.Context(), file, place)
	require.NoError(t, err)
	require.Equal(t, left, first)
	_, err = tokens.Check(t.Context(), left)
	require.NoError(t, err)

	require.NoError(t, os.WriteFile(file, []byte("hunter2"), 0o600))
	_, err = Tokens{Store: &memory{}}.First(t.Context(), file, place)
	require.ErrorIs(t, err, ErrToken)
	require.NotContains(t, err.Error(), "hunter2")
	_, err = Tokens{Store: &memory{}}.First(t.Context(), file, func(string, []byte) error { return fs.ErrPermission })
	require.ErrorIs(t, err, fs.ErrPermission)
}

// Of two hubs with one database that start at the same time, one makes the token, and the other keeps no file.
func TestOneOfSeveralHubsMakesTheFirstToken(t *testing.T) {
	kept := &memory{}
	dirs := []string{t.TempDir(), t.TempDir()}
	tokens := Tokens{Store: kept}
	_, err := tokens.First(t.Context(), filepath.Join(dirs[0], AdminTokenFile), func(path string, data []byte) error {
		other, err := tokens.First(t.Context(), filepath.Join(dirs[1], AdminTokenFile), place)
		require.NoError(t, err)
		require.NotZero(t, other)
		return place(path, data)
	})
	require.NoError(t, err)
	require.Len(t, kept.tokens, 1)
	require.NoFileExists(t, filepath.Join(dirs[0], AdminTokenFile))
	require.FileExists(t, filepath.Join(dirs[1], AdminTokenFile))
}
