package publisher

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/checks"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/publisher/trust"
)

// seen runs a publish with checks, and returns their output.
func (w *world) seen(checks ...string) (string, error) {
	var out bytes.Buffer
	w.opts.Checks, w.opts.CheckOutput = checks, &out
	_, err := w.publish()
	return out.String(), err
}

func TestACheckSeesWhatWouldBeReleased(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "registry")
	w.result.ClusterTypes[0].Assignments[0].Files[2].Data = []byte("kind: Pod\napiVersion: v1\nmetadata: {name: web}\nspec: {containers: [{name: web, image: nginx:1.29}]}\n")
	out, err := w.seen(`cat "$WHERRY_CHECK_DIR/artifacts.ndjson"; find tree -type f | LC_ALL=C sort; cat tree/drone/db-live/platform-config.yaml;
		echo "$WHERRY_PLATFORM $WHERRY_ENVIRONMENT $WHERRY_BASE_COMMIT: $WHERRY_CLUSTER_TYPES"`)
	require.NoError(t, err)
	require.Equal(t, `check: {"clusterType":"drone","type":"image","name":"docker.io/library/nginx","reference":"docker.io/library/nginx:1.29","unresolved":true,"usedBy":["web-live"]}
check: tree/drone/.wherry/artifacts.ndjson
check: tree/drone/.wherry/assignments.ndjson
check: tree/drone/db-live/platform-config.yaml
check: tree/drone/db-live/reconciler.yaml
check: tree/drone/web-live/platform-config.yaml
check: tree/drone/web-live/reconciler.yaml
check: tree/large/.wherry/assignments.ndjson
check: tree/large/web-live/platform-config.yaml
check: tree/large/web-live/reconciler.yaml
check: tree/small/.wherry/assignments.ndjson
check: text: v1
check: edge dev c0ffee: drone large small
`, out)

	out, err = w.seen("ls tree")
	require.NoError(t, err)
	require.Empty(t, out, "what is unchanged is not released, and there is nothing to ask about")

	w.result.ClusterTypes[1].Assignments[0] = assignment("large", "web-live", "v2")
	out, err = w.seen("ls tree; pwd > " + w.dir + "/where")
	require.NoError(t, err)
	require.Equal(t, "check: large\n", out)
	where, err := os.ReadFile(filepath.Join(w.dir, "where"))
	require.NoError(t, err)
	require.NoDirExists(t, strings.TrimSpace(string(where)))

	w.now = w.now.Add(80 * 24 * time.Hour)
	out, err = w.seen("ls tree")
	require.NoError(t, err)
	require.Equal(t, "check: drone\ncheck: large\ncheck: small\n", out, "their expiry is new")
}

func TestWhatACheckRefusesIsNotPublished(t *testing.T) {
	t.Setenv("COSIGN_PASSWORD", "secret")
	t.Setenv("COSIGN_PKCS11_PIN", "secret")
	w := newWorld(t, "registry")
	out, err := w.seen("true", "echo no; exit 3", "env | grep secret", "printf 'no end'; echo yes >&2")
	var refused *checks.Error
	require.ErrorAs(t, err, &refused)
	require.EqualError(t, refused, `refused by a check: "echo no; exit 3": exit status 3; "env | grep secret": exit status 1: nothing was published`)
	require.Equal(t, "check: no\ncheck: no endyes\n", out, "all are asked")
	require.Zero(t, w.writes.Load())

	_, err = w.seen("exit 0")
	require.NoError(t, err)
	require.NotZero(t, w.writes.Load())
	_, err = w.seen("true", " ")
	require.ErrorContains(t, err, "a check is empty")
}

func TestAnInterruptedCheckPublishesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "registry")
	ctx, cancel := context.WithCancel(t.Context())
	started := filepath.Join(t.TempDir(), "started")
	go func() {
		defer cancel()
		for {
			if _, err := os.Stat(started); err == nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	opts := w.opts
	opts.Checks = []string{"touch " + started + "; sleep 600"}
	_, err := Publish(ctx, w.result, w.loc, []*keys.Key{w.key}, opts)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, w.writes.Load())
}

func TestACheckIsAskedAgainAboutWhatItHasNotSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "layout")
	p, err := newPublication(w.result, w.loc, []*keys.Key{w.key}, trust.PinnedBy([]*keys.Key{w.key}), w.opts)
	require.NoError(t, err)
	var out bytes.Buffer
	so := newProgress()
	p.opts.Checks, p.opts.CheckOutput = []string{"ls tree"}, &out
	ask := func() string {
		out.Reset()
		var plans []*plan
		for _, ct := range w.result.ClusterTypes {
			pl, err := p.plan(t.Context(), asked{ClusterTypeResult: ct}, state.Record{})
			require.NoError(t, err)
			plans = append(plans, pl)
		}
		require.NoError(t, p.check(t.Context(), plans, so))
		return out.String()
	}
	require.Equal(t, "check: drone\ncheck: large\ncheck: small\n", ask())
	require.Empty(t, ask())
	w.result.ClusterTypes[0].Assignments = w.result.ClusterTypes[0].Assignments[:1]
	require.Equal(t, "check: drone\n", ask(), "as after a race with another publisher")

	p.opts.Checks, so.pushed = []string{"exit 1"}, map[string]bool{"large": true}
	w.result.ClusterTypes[0].Assignments = nil
	pl, err := p.plan(t.Context(), asked{ClusterTypeResult: w.result.ClusterTypes[0]}, state.Record{})
	require.NoError(t, err)
	require.EqualError(t, p.check(t.Context(), []*plan{pl}, so),
		`refused by a check: "exit 1": exit status 1: what had been published before another publisher came stays`)
}
