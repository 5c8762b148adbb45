package fleetcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// rollingOut is how far two clusters are, of which one is open.
func rollingOut() fleet.Rollout {
	return fleet.Rollout{
		Environment: "prod", Commit: "3f2a9c1e77aa", Clusters: 2, Compliant: 1, Unknown: 1, Why: "1 cluster is silent", OldestProofSeconds: 7200, Followed: true, Published: true,
		Types: []fleet.TypeRollout{{Type: "drone", Release: "12 (68846e7d)", RolloutCounts: fleet.RolloutCounts{Clusters: 2, Compliant: 1, Unknown: 1}}},
		Open:  []fleet.OpenCluster{{Cluster: "island", Type: "drone", Ring: "far", State: store.Stale, LastState: bundle.Compliant, Verdict: "unknown", Release: "12 (68846e7d)", LastSeen: noon.Add(-31 * 24 * time.Hour), Via: store.ViaMedia}},
	}
}

// after returns the answers one after the other, the last for ever.
func after(all ...fleet.Rollout) func(fleet.Query) (fleet.Rollout, error) {
	return func(fleet.Query) (fleet.Rollout, error) {
		first := all[0]
		if len(all) > 1 {
			all = all[1:]
		}
		return first, nil
	}
}

func TestRolloutStatusSaysHowFar(t *testing.T) {
	open := rollingOut()
	done, failed := open, open
	done.Done, done.Compliant, done.Unknown, done.Open, done.Why = true, 2, 0, nil, ""
	failed.Failed = true
	for code, r := range map[int]fleet.Rollout{cli.OK: done, cli.No: failed, cli.NotYet: open} {
		_, _, got := terminal{make: newRolloutCommitCommand, answers: canned{rollout: after(r)}}.run("3f2a9c1", "-e", "prod")
		require.Equal(t, code, got)
		out, _, got := terminal{make: newRolloutCommitCommand, answers: canned{rollout: after(r)}}.run("3f2a9c1", "-e", "prod", "-o", "json")
		require.Equal(t, code, got)
		var document fleet.Rollout
		require.NoError(t, json.Unmarshal([]byte(out), &document))
		require.Equal(t, r, document)
	}
	out, _, _ := terminal{make: newRolloutCommitCommand, answers: canned{rollout: after(open)}}.run("3f2a9c1", "-e", "prod")
	require.Equal(t, `prod at 3f2a9c1e: 1 of 2 clusters are compliant, 1 unknown · oldest proof 2 hours
Why          1 cluster is silent

By type
TYPE   RELEASE        CLUSTERS  COMPLIANT  PROGRESSING  FAILED  WAITING  UNKNOWN
drone  12 (68846e7d)  2         1          0            0       0        1

Open clusters
CLUSTER  TYPE             VERDICT  STATE                  REASON  RELEASE        LAST SEEN
island   drone, ring far  unknown  stale (was compliant)  -       12 (68846e7d)  31d ago by medium
`, out)
}

func TestRolloutStatusWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := rollingOut()
		same, done := open, open
		done.Done, done.Compliant, done.Unknown, done.Open, done.Types, done.Why, done.OldestProofSeconds = true, 2, 0, nil, nil, "", 0
		answers := canned{rollout: after(open, same, done), events: func(ctx context.Context, from store.Position, each func(fleet.Event) error) error {
			require.EqualValues(t, -1, from)
			for {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(10 * time.Second):
				}
				require.NoError(t, each(fleet.Event{}))
			}
		}}
		begun := time.Now()
		out, said, code := terminal{make: newRolloutCommitCommand, answers: answers, ctx: t.Context()}.run("3f2a9c1", "-e", "prod", "--watch", "--timeout", "1h")
		require.Equal(t, cli.OK, code, said)
		require.Contains(t, out, "Open clusters")
		require.Regexp(t, "\nprod at 3f2a9c1e: 2 of 2 clusters are compliant\n$", out)
		require.Less(t, time.Since(begun), 30*time.Second, "events, not the clock")

		answers.rollout, answers.events = after(open), func(context.Context, store.Position, func(fleet.Event) error) error {
			return fmt.Errorf("no events behind this proxy")
		}
		begun = time.Now()
		_, said, code = terminal{make: newRolloutCommitCommand, answers: answers, ctx: t.Context()}.run("3f2a9c1", "-e", "prod", "--watch", "--timeout", "1h")
		require.Equal(t, cli.NotYet, code)
		require.Equal(t, "not all clusters are compliant after 1h", said)
		require.Equal(t, time.Hour, time.Since(begun))
	})
}

func TestRolloutStatusOfACommitThatTheHubDoesNotKnow(t *testing.T) {
	unpublished := rollingOut()
	unpublished.Published = false
	unfollowed := unpublished
	unfollowed.Followed = false
	for _, tc := range []struct {
		answer      fleet.Rollout
		hint, waits string
	}{
		{unpublished, "hint: \"wherry get releases --environment prod\" shows the commits that the hub knows\n", "note: commit 3f2a9c1 is not published in environment prod yet; waiting for it\n"},
		{unfollowed, "hint: \"wherry hub serve --watch LOCATION\" follows what is published, and \"wherry publish --hub URL\" sends it\n", "note: the hub does not follow what is published in environment prod; waiting for it\n"},
	} {
		_, said, code := terminal{make: newRolloutCommitCommand, answers: canned{rollout: after(tc.answer)}}.run("3f2a9c1", "-e", "prod")
		require.Equal(t, cli.NotYet, code)
		require.Equal(t, tc.hint, said)
		synctest.Test(t, func(t *testing.T) {
			answers := canned{rollout: after(tc.answer), events: func(context.Context, store.Position, func(fleet.Event) error) error { return nil }}
			_, said, code := terminal{make: newRolloutCommitCommand, answers: answers, ctx: t.Context()}.run("3f2a9c1", "-e", "prod", "--watch", "--timeout", "1h")
			require.Equal(t, cli.NotYet, code)
			require.Equal(t, tc.waits+tc.hint+"not all clusters are compliant after 1h", said, "once")
		})
	}
}

func TestWrongFlagsOfRolloutCommit(t *testing.T) {
	for want, args := range map[string][]string{
		"missing --environment":                   {"3f2a9c1"},
		"expected 1 argument":                     {"-e", "prod"},
		`--timeout: "1" is not a duration`:        {"3f2a9c1", "-e", "prod", "--timeout", "1"},
		"--watch and --timeout follow what comes": {"3f2a9c1", "-e", "prod", "--watch", "--as-of", "1h"},
		`--output "csv": must be table, json`:     {"3f2a9c1", "-e", "prod", "-o", "csv"},
	} {
		_, said, code := terminal{make: newRolloutCommitCommand, answers: canned{}}.run(args...)
		require.Equal(t, cli.Usage, code)
		require.Contains(t, said, want)
	}
	_, said, code := terminal{make: newRolloutCommitCommand, answers: canned{rollout: func(fleet.Query) (fleet.Rollout, error) {
		return fleet.Rollout{}, store.ErrUnknownRelease
	}}}.run("3f2a9c1", "-e", "prod")
	require.Equal(t, cli.Failed, code)
	require.Contains(t, said, "wherry get releases --environment prod")
}

func TestEventsAreLines(t *testing.T) {
	answers := canned{events: func(ctx context.Context, from store.Position, each func(fleet.Event) error) error {
		require.EqualValues(t, 7, from)
		for _, e := range []fleet.Event{
			{ID: 8, At: noon, Kind: "change", Change: &fleet.HistoryRow{Cluster: "plant-7", Assignment: "web-main", What: []string{"state"}, From: fleet.HistoryPoint{State: bundle.Compliant}, To: fleet.HistoryPoint{State: bundle.Failed, Reason: "\x1bUnhealthy"}, Via: store.ViaMedia}},
			{ID: 9, At: noon, Kind: "published", Platform: "shop", Environment: "prod", Digest: digestOf("68846e7d")},
			{ID: 10, At: noon, Kind: "cluster", Cluster: "plant-8", UID: "uid-8"},
		} {
			if err := each(e); err != nil {
				return err
			}
		}
		return nil
	}}
	out, _, code := terminal{make: newEventsCommand, answers: answers}.run("-f", "--after", "7")
	require.Equal(t, cli.OK, code)
	require.Equal(t, `8  2026-11-01 12:00:00 UTC  plant-7/web-main: compliant → failed (\u001bUnhealthy), by medium
9  2026-11-01 12:00:00 UTC  published for prod of shop: 68846e7d
10  2026-11-01 12:00:00 UTC  registration of plant-8, uid uid-8 changed
`, out)
	_, said, code := terminal{make: newEventsCommand, answers: answers}.run("--after", "-1")
	require.Equal(t, cli.Usage, code)
	require.Contains(t, said, "--after -1: expected the ID of an event")
}
