package outbox

import (
	"fmt"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

func TestDeadLettersAreBoundedAndNothingIsLostForIt(t *testing.T) {
	o := unsynced(t)
	const reports, size = maxDeadReports + 200, 100
	rejected, acked := verdicts{rejected: map[digest.Digest]string{}}, verdicts{}
	for i := range reports {
		rejected.rejected[testID(i)] = "BadReport"
		acked.acknowledged = append(acked.acknowledged, testID(i))
	}
	require.NoError(t, o.db.Update(func(tx *bbolt.Tx) error {
		for i := range reports { // each of which tells of another failure
			e := queued{ID: testID(i), At: epoch, seq: uint64(i + 1), envelope: make([]byte, size)}
			if err := enqueue(tx, e, []string{fmt.Sprint(i)}, Limits{}.WithDefaults()); err != nil {
				return err
			}
		}
		return nil
	}))
	all := func(q queued) bool { return q.due(epoch) }
	for batch, err := o.batch(0, all); len(batch) > 0; batch, err = o.batch(0, all) {
		require.NoError(t, err)
		_, err = o.settle(batch, rejected, epoch)
		require.NoError(t, err)
	}
	st := statusOf(t, o)
	require.Equal(t, reports, st.Rejected)
	require.Equal(t, 200, st.Length, "what has no place among the dead letters stays")
	letters, err := o.DeadLetters()
	require.NoError(t, err)
	require.Len(t, letters, reports)

	deleted, err := o.settleAll(acked.acknowledged[:1150])
	require.NoError(t, err)
	require.Equal(t, 1150, deleted)
	require.Equal(t, 50, statusOf(t, o).Rejected)
	n, err := o.DropDeadLetters()
	require.NoError(t, err)
	require.Equal(t, 50, n)
	require.Equal(t, Status{}, statusOf(t, o))
	require.NoError(t, o.db.Close())
	require.Equal(t, Status{}, statusOf(t, openBox(t, o.db.Dir())), "as it was kept")
}
