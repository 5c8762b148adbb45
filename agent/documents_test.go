package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle/sitevalues"
)

func TestADocumentIsReadAsItWasUnpackedOrUnpackedAgain(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, map[string]string{"app-live/a.txt": "one\n", sitevalues.RowsPath: "{\"uid\":\"a\",\"name\":\"one\"}\n"}))
	require.Equal(t, Done, s.once().Verdict)
	read := func(name string) (data []byte, err error) {
		s.agent(func(a *Agent) {
			p := newPass(a, scope{})
			require.NoError(t, p.remember())
			data, err = p.content.Document(p.running, name)
		})
		return data, err
	}
	rows := func() string {
		data, err := read(sitevalues.RowsPath)
		require.NoError(t, err)
		return string(data)
	}
	require.Contains(t, rows(), "one")
	data, err := read(sitevalues.DocumentPath)
	require.NoError(t, err)
	require.Nil(t, data)

	found, err := filepath.Glob(filepath.Join(s.dir, content.TreesDir, "*", sitevalues.RowsPath))
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.NoError(t, os.WriteFile(found[0], []byte("{\"uid\":\"a\",\"name\":\"two\"}\n"), 0o600))
	_, err = read(sitevalues.RowsPath)
	require.ErrorIs(t, err, content.ErrNotStaged)
	require.Empty(t, s.once().Error)
	require.Contains(t, rows(), "one")

	s.agent(func(a *Agent) { // as a damaged state has it
		require.NoError(t, a.state.db.Update(func(tx *bbolt.Tx) error {
			return state.Drop(tx, content.BucketTrees, filepath.Base(filepath.Dir(filepath.Dir(found[0])))+"/documents")
		}))
	})
	_, err = read(sitevalues.RowsPath)
	require.ErrorIs(t, err, content.ErrNotStaged)
	require.Empty(t, s.once().Error)
	require.Contains(t, rows(), "one")
}
