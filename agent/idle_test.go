package agent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/bundle"
)

func TestRecordsAreReadOnceForEachCommit(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish(s.draft(1, map[string]string{"a-x/f": "1", "b-x/f": "1"}))
	s.once()
	s.agent(func(a *Agent) {
		read := func() (rs []assignments.Record) {
			require.NoError(t, a.state.db.View(func(tx *bbolt.Tx) (err error) {
				rs, err = a.state.records.All(tx)
				return err
			}))
			return rs
		}
		suspend := func(tx *bbolt.Tx) error {
			rs, err := a.state.records.All(tx)
			r := rs[0]
			r.Item.State = bundle.Suspended
			err = errors.Join(err, assignments.Save(tx, r))
			again, err2 := a.state.records.All(tx)
			require.Equal(t, bundle.Suspended, again[0].Item.State, "a transaction sees what it has written")
			return errors.Join(err, err2)
		}
		before := read()
		require.Same(t, &before[0], &read()[0])

		require.NoError(t, a.state.db.UpdateIf(func(tx *bbolt.Tx) (bool, error) { return false, suspend(tx) }))
		require.Equal(t, bundle.Compliant, read()[0].Item.State, "that was not committed")

		require.NoError(t, a.state.db.Update(suspend))
		require.Equal(t, bundle.Suspended, read()[0].Item.State)
		require.Equal(t, bundle.Compliant, before[0].Item.State, "what somebody still reads stays as it was")
	})
}

func TestFilesThatAreDeletedWhileAnAgentRunsAreUnpackedByItsNextPass(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	s.agent(func(a *Agent) {
		poll := scope{from: a.source}
		require.NoError(t, a.makePass(t.Context(), poll).Err)
		p := newPass(a, scope{})
		require.NoError(t, p.remember())
		list, err := a.content.Assignments(p.running)
		require.NoError(t, err)
		folder := a.content.Folder(list[0].Content)
		requireFile(t, folder, "f", "1")
		for _, lost := range []string{folder, filepath.Join(s.dir, content.TreesDir)} {
			require.NoError(t, os.RemoveAll(lost))
			require.NoError(t, a.makePass(t.Context(), poll).Err)
			requireFile(t, folder, "f", "1")
		}
	})
}
