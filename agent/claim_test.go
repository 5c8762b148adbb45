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
	engine := s.opts.Engines.Reconcilers["directory"]
	s.opts.Engines.Reconcilers["directory"] = unlucky{engine.(*directory.Reconciler)}
	s.once()
	s.opts.Engines.Reconcilers["directory"] = engine
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
	s.opts.Engines.Reconcilers["directory"] = directory.New(s.host, directory.Options{})
	s.publish(s.draft(2, map[string]string{"shop-main/a": "2"}))
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	requireFile(t, s.host, "shop-main/a", "2")
	requireFile(t, s.host, "gone-main/a", "1") // which nobody remembers
}
