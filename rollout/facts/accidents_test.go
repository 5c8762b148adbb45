package facts

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/rollout/undo"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// takes publishes prod, and checks what it has then, and what waits; empty if nothing does.
func (c *chain) takes(version, waits string) {
	c.t.Helper()
	require.NoError(c.t, c.prod(""))
	got, _, unproved := c.has()
	require.Equal(c.t, []string{version, ""}, []string{got, unproved})
	e, err := c.entry("")
	require.NoError(c.t, err)
	if waits == "" {
		require.Empty(c.t, e.Awaiting())
		return
	}
	require.Len(c.t, e.Awaiting(), 1)
	require.Regexp(c.t, waits, e.Awaiting()[0].Reason)
}

// next has the team's v2 in dev, after v1 came to prod.
func (c *chain) next(well bool) {
	c.t.Helper()
	c.dev(true)
	c.takes("v1", "")
	c.head = "v2"
	c.dev(well)
}

func TestWhatIsMergedOutsideOfTheOpenHoursComesWhenTheyBegin(t *testing.T) {
	t.Parallel()
	c := newChain(t)
	c.next(true)
	opens := c.now.Truncate(24 * time.Hour).Add(32 * time.Hour) // at eight tomorrow
	c.policy = func(p *promotion.Policy) {
		p.Gate.Schedule.Open = []promotion.Period{{Opens: 8 * time.Hour, Closes: 9 * time.Hour}}
	}
	c.own = "own2"
	c.takes("v1", "^cart v2 waits for dev: closed$")
	_, own, _ := c.has()
	require.Equal(t, "own1", own, "nor does what prod alone has")
	e, err := c.entry("")
	require.NoError(t, err)
	require.Equal(t, opens, e.Decision.NextLook)

	c.now = opens
	c.takes("v2", "")
	_, own, _ = c.has()
	require.Equal(t, "own2", own)
}

func TestAProofThatComesByMediumAWeekLaterCountsByItsAge(t *testing.T) {
	t.Parallel()
	c := newChain(t)
	c.next(false)
	c.now = c.now.Add(time.Minute)
	report := c.runsWell()
	c.now = c.now.Add(7 * 24 * time.Hour)
	c.takes("v1", "^cart v2 waits for dev: 0 of 1 clusters, a cluster reported 7d1h1m ago, which counts for 24h$")
	c.carried = [][]byte{report}
	c.takes("v1", "^cart v2 waits for dev: 0 of 1 clusters, a cluster reported 7d ago, which counts for 24h$") // a report of a week ago says nothing of now
	c.policy = func(p *promotion.Policy) { p.Gate.MaxReportAge = 8 * 24 * time.Hour }
	c.takes("v2", "")
}

func TestAProofOutlivesThatAllClustersBelowAreOffline(t *testing.T) {
	t.Parallel()
	c := newChain(t)
	c.next(true)
	c.policy = func(p *promotion.Policy) {
		p.Gate.Schedule.Freezes = []promotion.Freeze{{From: c.now, Until: c.now.Add(30 * 24 * time.Hour), Reason: "fair"}}
	}
	c.now = c.now.Add(publisher.ProofsEvery)
	c.takes("v1", "^cart v2 waits for dev: ")
	c.now = c.now.Add(7 * 24 * time.Hour) // since when nobody has reported
	c.policy = nil
	c.takes("v2", "")

	c.head = "v3"
	c.dev(false)
	c.takes("v2", "^cart v3 waits for dev: 0 of 1 clusters, a cluster reported 7d1h10m ago, which counts for 24h$") // and proves nothing new
}

func TestTheAdapterOfProdIsNoOtherContent(t *testing.T) {
	t.Parallel()
	c := newChain(t)
	c.next(true)
	e, err := c.entry("")
	require.NoError(t, err)
	result := rendered("prod", "v2", "own1")
	for i := range result.ClusterTypes[0].Assignments {
		result.ClusterTypes[0].Assignments[i].Adapter = "flux"
	}
	require.NoError(t, c.publish(result, e.Admission()))
	version, _, unproved := c.has()
	require.Equal(t, []string{"v2", ""}, []string{version, unproved})
}

// Configuration comes with the base commit, so the pair of both has to be proved.
func TestACommitThatWasProvedWithOtherConfigurationWaits(t *testing.T) {
	t.Parallel()
	c := newChain(t)
	c.next(true)
	c.base = commit("b")
	c.takes("v1", "^cart v2 waits for dev: dev has not run it well with base commit bbbbbbb$")
	c.dev(true)
	c.takes("v2", "")
}

func TestAnUndoBelowWhileProdIsRenderedLetsNothingIn(t *testing.T) {
	t.Parallel()
	c := newChain(t)
	c.next(true)
	e, err := c.entry("")
	require.NoError(t, err)
	require.NotNil(t, e.Decision.Take(cartKey).Proof)
	c.now = c.now.Add(time.Minute)
	_, err = undo.Undo(t.Context(), c.loc, []*keys.Key{c.key}, undo.Options{Environment: "dev", Workload: "cart", Reason: "orders fail"},
		publisher.PublishOptions{Now: func() time.Time { return c.now }, OCI: c.opts})
	require.NoError(t, err)
	require.ErrorIs(t, c.publish(rendered("prod", "v2", "own1"), e.Admission()), publisher.ErrDecideAgain)
	require.Equal(t, []string{"v1"}, c.versions())
	c.takes("v1", "^cart v2 waits for dev: undone in dev since .* \\(orders fail\\)$")
}
