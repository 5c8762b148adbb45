package agent

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// A report that is sent before it is on the disk is given its number a second time, with other words, where a power
// cut takes the first one back.
func TestNobodyReadsWhatIsNotYetOnTheDisk(t *testing.T) {
	s := openTestState(t, t.TempDir())
	disk, checked := underState(s, 1), 0
	disk.wrote = func() { // before the sync
		checked++
		require.False(t, s.commits.TryRLock(), "a reader gets in between write and sync")
	}
	require.NoError(t, s.update(func(tx *bbolt.Tx) error { return save(tx, bucketMeta, "x", 1) }))
	require.Greater(t, checked, 1)

	require.ErrorIs(t, s.updateIf(func(*bbolt.Tx) (bool, error) { return false, berrors.ErrTxClosed }), berrors.ErrTxClosed)
	disk.deed, disk.errno = func(int) fault { return faultErrno }, 5
	require.Error(t, s.update(func(tx *bbolt.Tx) error { return save(tx, bucketMeta, "x", 2) }))
	require.NoError(t, s.view(func(tx *bbolt.Tx) error {
		x, err := load[int](tx, bucketMeta, "x")
		require.Equal(t, 1, x)
		return err
	}), "readers get in again, also after a commit that has failed")
}
