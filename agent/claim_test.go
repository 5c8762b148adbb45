package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/directory"
)

// A folder that was there before is not the agent's by having been wished for, however often and by whatever release.
func TestAFolderThatWasThereBeforeIsLeftAlone(t *testing.T) {
	s := newSite(t)
	theirs := filepath.Join(s.host, "nginx-main", "nginx.conf")
	require.NoError(t, os.MkdirAll(filepath.Dir(theirs), 0o755))
	require.NoError(t, os.WriteFile(theirs, []byte("theirs"), 0o600))
	s.publish(s.draft(1, map[string]string{"nginx-main/a": "1", "shop-main/a": "1"}))

	// The first process ends between the record of its next step and the step.
	engine := s.opts.Reconcilers["directory"]
	s.opts.Reconcilers["directory"] = unlucky{engine.(*directory.Reconciler)}
	s.once()
	s.opts.Reconcilers["directory"] = engine
	for n := int64(1); n < 4; n++ {
		s.publish(s.draft(n, map[string]string{"nginx-main/a": "1", "shop-main/a": string(rune('0' + n))}))
		r := s.once()
		require.Equal(t, bundle.Compliant, item(t, r, "shop-main").State)
		i := item(t, r, "nginx-main")
		require.Equal(t, []any{bundle.Failed, directory.NotOurs}, []any{i.State, i.Reason}, i.Message)
		require.EqualValues(t, n, r.Status.Release.Running.Sequence, "no other release would mend it")
	}
	s.publish(s.draft(4, map[string]string{"shop-main/a": "4"}))
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	requireFile(t, s.host, "nginx-main/nginx.conf", "theirs")

	s.publish(s.draft(5, map[string]string{"nginx-main/a": "1", "shop-main/a": "4"}))
	require.NoError(t, os.RemoveAll(filepath.Join(s.host, "nginx-main")))
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	requireFile(t, s.host, "nginx-main/a", "1")
}

// unlucky ends before it has begun.
type unlucky struct{ *directory.Reconciler }

func (unlucky) Apply(context.Context, reconcilers.Assignment) reconcilers.Result {
	return reconcilers.Interrupted(errors.New("the power went"))
}

func TestAnAgentWhoseStateIsLostGoesOnWithItsFolders(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, map[string]string{"shop-main/a": "1", "gone-main/a": "1"}))
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	require.NoError(t, os.RemoveAll(s.dir))
	s.opts.Reconcilers["directory"] = directory.New(s.host, directory.Options{})
	s.publish(s.draft(2, map[string]string{"shop-main/a": "2"}))
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	requireFile(t, s.host, "shop-main/a", "2")
	requireFile(t, s.host, "gone-main/a", "1") // which nobody remembers
}

// earlier has what an agent left that marked nothing.
func (s *site) earlier() {
	s.t.Helper()
	require.NoError(s.t, os.RemoveAll(filepath.Join(s.host, ".wherry")))
	s.opts.Reconcilers["directory"] = directory.New(s.host, directory.Options{})
	s.agent(func(a *Agent) { require.NoError(s.t, a.state.Ledger("directory").Save("", nil)) })
}

func TestFoldersOfAnEarlierVersionAreClaimedBeforeAnythingIsBegun(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, map[string]string{"shop-main/a": "1", "gone-main/a": "1"}))
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	s.earlier()
	s.publish(s.draft(2, map[string]string{"shop-main/a": "2"}))
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	requireFile(t, s.host, "shop-main/a", "2")
	require.NoDirExists(t, filepath.Join(s.host, "gone-main"))
	require.FileExists(t, filepath.Join(s.host, ".wherry", "shop-main.owned"))
}

// The newer version begins while the disk is not mounted, and ends again: the list waits for the disk, and holds
// nothing that the newer version has begun.
func TestFoldersOfAnEarlierVersionAreClaimedWhenTheyAreThere(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, map[string]string{"shop-main/a": "1"}))
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	s.earlier()
	away := s.host + ".away"
	require.NoError(t, os.Rename(s.host, away))
	engine := s.opts.Reconcilers["directory"]
	s.opts.Reconcilers["directory"] = unlucky{engine.(*directory.Reconciler)}
	s.publish(s.draft(2, map[string]string{"shop-main/a": "2", "nginx-main/a": "1"}))
	s.once()
	require.NoDirExists(t, s.host)

	require.NoError(t, os.Rename(away, s.host))
	s.opts.Reconcilers["directory"] = directory.New(s.host, directory.Options{})
	theirs := filepath.Join(s.host, "nginx-main", "nginx.conf")
	require.NoError(t, os.MkdirAll(filepath.Dir(theirs), 0o755))
	require.NoError(t, os.WriteFile(theirs, []byte("theirs"), 0o600))
	r := s.once()
	require.Equal(t, bundle.Compliant, item(t, r, "shop-main").State, item(t, r, "shop-main").Message)
	require.Equal(t, directory.NotOurs, item(t, r, "nginx-main").Reason)
	requireFile(t, s.host, "nginx-main/nginx.conf", "theirs")
	s.once()
	s.agent(func(a *Agent) {
		left, err := a.state.Ledger("directory").Load("")
		require.NoError(t, err)
		require.Equal(t, "[]", string(left))
	})
}

// An assignment that was applied elsewhere does not own a folder of the same name in a new root.
func TestAnotherRootIsAnothersToo(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, map[string]string{"shop-main/a": "1"}))
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	s.host = filepath.Join(t.TempDir(), "other")
	theirs := filepath.Join(s.host, "shop-main", "till.db")
	require.NoError(t, os.MkdirAll(filepath.Dir(theirs), 0o755))
	require.NoError(t, os.WriteFile(theirs, []byte("theirs"), 0o600))
	s.opts.Reconcilers["directory"] = directory.New(s.host, directory.Options{})
	s.publish(s.draft(2, map[string]string{"shop-main/a": "2"}))
	require.Equal(t, directory.NotOurs, item(t, s.once(), "shop-main").Reason)
	requireFile(t, s.host, "shop-main/till.db", "theirs")
}
