package publisher

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/scheduler"
)

// later publishes text a day after the last publication.
func (w *world) later(text string) *Published {
	w.now = w.now.Add(24 * time.Hour)
	w.publishes(text)
	_, p := w.mustPublish()
	return p
}

// restored is a layout that holds its first release again, after three more that an agent has taken. No
// release of it is held anywhere else.
func restored(t *testing.T) (w *world, agent *follower) {
	w = newWorld(t, "layout")
	w.checked = map[string]bool{}
	agent = &follower{world: &world{t: t, key: w.key, loc: w.loc, now: w.now}, found: map[digest.Digest]*bundle.Verified{}}
	backup := t.TempDir()
	for i, text := range []string{"one", "two", "three", "one"} {
		w.later(text)
		require.NoError(t, agent.poll())
		if i == 0 {
			require.NoError(t, os.CopyFS(backup, os.DirFS(w.dir)))
		}
	}
	require.NoError(t, os.RemoveAll(w.dir))
	require.NoError(t, os.CopyFS(w.dir, os.DirFS(backup)))
	agent.found = map[digest.Digest]*bundle.Verified{}
	return w, agent
}

func TestAfterABackupIsRestoredAgentsTakeTheNextRelease(t *testing.T) {
	t.Parallel()
	w, agent := restored(t)
	before := agent.highest
	require.NoError(t, agent.poll())
	require.Equal(t, before, agent.highest, "the older release is refused, and what runs stays")
	p := w.later("four")
	require.Greater(t, row(t, p, "drone").Sequence, before.Sequence, "by the clock, since the registry does not know it")
	agent.requireSettled()
	require.NoError(t, w.complete())
}

// The restored release has the wanted content, but agents have a newer one: it is renewed in its last third.
func TestAfterABackupIsRestoredEqualContentReachesAgentsWhenItIsRenewed(t *testing.T) {
	t.Parallel()
	w, agent := restored(t)
	before := agent.highest
	p := w.later("one")
	require.Equal(t, releases.OutcomeUnchanged, row(t, p, "drone").Result)
	require.NoError(t, agent.poll())
	require.Equal(t, before, agent.highest)
	w.now = w.now.Add(DefaultValidity)
	p = w.later("one")
	require.Equal(t, releases.OutcomePublished, row(t, p, "drone").Result)
	agent.requireSettled()
}

// What cannot be rendered is held as the backup has it, or left out where there is none; both is said.
func TestAfterABackupIsRestoredNothingHeldIsLostSilently(t *testing.T) {
	t.Parallel()
	w, agent := restored(t)
	first := w.verified("drone", "latest").Release
	w.publishes("")
	w.result.ClusterTypes[0].Assignments = nil
	w.result.ClusterTypes[0].Failures = []scheduler.Failure{{Name: "web-live", Reason: scheduler.TemplateFailed, Err: errors.New(broken)}}
	w.now = w.now.Add(24 * time.Hour)
	_, p := w.mustPublish()
	failed := row(t, p, "drone").Failures[0]
	require.Equal(t, first.Sequence, failed.HeldFrom.Sequence)
	agent.requireSettled()
	list, _ := w.content("drone", "latest")
	require.Contains(t, list, "web-live")

	require.NoError(t, os.RemoveAll(w.dir))
	w.now = w.now.Add(24 * time.Hour)
	_, p = w.mustPublish()
	require.Nil(t, row(t, p, "drone").Failures[0].HeldFrom)
	_, leftOut := p.FailedAssignments()
	require.Equal(t, 1, leftOut)
	require.Equal(t, []string{"drone"}, w.environmentRecord().Incomplete)
}
