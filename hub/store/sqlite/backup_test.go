package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestABackupIsACopyAsOfOneMoment(t *testing.T) {
	dir := t.TempDir()
	d := open(t, filepath.Join(dir, "hub.db"))
	_, err := d.AddCluster(t.Context(), plant7())
	require.NoError(t, err)
	_, err = d.Ingest(t.Context(), batch(1, items(20)...))
	require.NoError(t, err)
	stop, stopped := make(chan struct{}), make(chan error)
	begun := make(chan struct{}, 1)
	go func() { // reports come meanwhile
		var err error
		for seq := int64(2); err == nil; seq++ {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
				_, err = d.Ingest(t.Context(), batch(seq, items(20)...))
			}
			select {
			case begun <- struct{}{}:
			default:
			}
		}
		stopped <- err
	}()
	<-begun
	path := filepath.Join(dir, "copy.db")
	err = d.Backup(t.Context(), path)
	close(stop)
	require.NoError(t, <-stopped)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode())
	require.ErrorIs(t, d.Backup(t.Context(), path), fs.ErrExist)
	left, err := filepath.Glob(filepath.Join(dir, ".copy*"))
	require.NoError(t, err)
	require.Empty(t, left)

	c := open(t, path)
	require.NoError(t, c.Check(t.Context()))
	require.GreaterOrEqual(t, count(t, c, "report"), 2)
	require.Equal(t, 21, count(t, c, "deployment"), "and the agent as a whole")
	require.NoError(t, c.Compare(t.Context(), func(uid, assignment, difference string) error {
		return errors.New(uid + " " + assignment + ": " + difference)
	}))
}
