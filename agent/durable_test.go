package agent

import (
	"reflect"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/wherry-dev/wherry/agent/state"
)

// A report that is sent before it is on the disk is given its number a second time, with other words, where a power
// cut takes the first one back.
func TestNobodyReadsWhatIsNotYetOnTheDisk(t *testing.T) {
	s := openTestState(t, t.TempDir())
	disk, checked := underState(s, 1), 0
	commits := field[sync.RWMutex](reflect.ValueOf(s.db).Elem().FieldByName("commits"))
	disk.wrote = func() { // before the sync
		checked++
		require.False(t, commits.TryRLock(), "a reader gets in between write and sync")
	}
	require.NoError(t, s.db.Update(func(tx *bbolt.Tx) error { return state.Save(tx, state.Meta, "x", 1) }))
	require.Greater(t, checked, 1)

	require.ErrorIs(t, s.db.UpdateIf(func(*bbolt.Tx) (bool, error) { return false, berrors.ErrTxClosed }), berrors.ErrTxClosed)
	disk.deed, disk.errno = func(int) fault { return faultErrno }, 5
	require.Error(t, s.db.Update(func(tx *bbolt.Tx) error { return state.Save(tx, state.Meta, "x", 2) }))
	require.NoError(t, s.db.View(func(tx *bbolt.Tx) error {
		x, err := state.Load[int](tx, state.Meta, "x")
		require.Equal(t, 1, x)
		return err
	}), "readers get in again, also after a commit that has failed")
}
