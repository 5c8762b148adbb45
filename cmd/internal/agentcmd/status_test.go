package agentcmd

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/agent/trust"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

func TestStatusTellsOfAge(t *testing.T) {
	const day = 24 * 3600
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	until := at.AddDate(0, 0, 90)
	for want, s := range map[string]agent.Status{
		"running\t7 (x), issued 24 hours ago\n": {Release: agent.ReleaseStates{Running: &agent.ReleaseStatus{Digest: "x", Number: 7, AgeSeconds: day}}},
		"running\t7 (x), expired, issued 93 days ago, valid for 90 days\n": {
			Release: agent.ReleaseStates{Running: &agent.ReleaseStatus{Digest: "x", Number: 7, IssuedAt: &at, ExpiresAt: &until, Expired: true, AgeSeconds: 93 * day}},
		},
		"trust\tversion 2, epoch 1, expires in 200 days\n":                                           {Trust: &trust.Status{Version: 2, Epoch: 1, DaysLeft: 200}},
		"trust\tversion 2, epoch 1, expires in 1 day: the roots have to sign the next version\n":     {Trust: &trust.Status{Version: 2, Epoch: 1, DaysLeft: 1}},
		"expires in less than a day, at 2026-03-01T12:00:00Z: the roots have to sign":                {Trust: &trust.Status{ExpiresAt: at}},
		"expired at 2026-03-01T12:00:00Z: nothing new is accepted before the roots have signed the ": {Trust: &trust.Status{ExpiresAt: at, Expired: true}},
		"state\tfailed Bad\\tly: one\\ntwo\n":                                                        {State: bundle.Failed, Reason: "Bad\tly", Message: "one\ntwo"},
		"\na-x\tflux\tfailed\t2 hours ago\tBad: one\\ntwo\\tthree\n": {
			Items: []bundle.Item{{Assignment: "a-x", Adapter: "flux", State: bundle.Failed, Since: at.Add(-2 * time.Hour), Reason: "Bad", Message: "one\ntwo\tthree"}},
		},
		"clock\tbehind by at least 3 hours\n": {ClockBehindSeconds: 3*3600 + 5},
	} {
		var out bytes.Buffer
		writeTable(&out, s, at)
		require.Contains(t, out.String(), want)
	}
}

func TestTrustShowSaysHowMuchTimeIsLeft(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for days, want := range map[int64]string{40: "(40 days left)", 1: "(1 day left)", 0: "(less than a day left)"} {
		var out bytes.Buffer
		writeTrust(&out, trustShown{InForce: &trust.Status{ExpiresAt: at, DaysLeft: days}, Root: &bundle.Role{}, Release: &bundle.Role{}})
		require.Contains(t, out.String(), "expires\t2026-03-01T12:00:00Z "+want+"\n")
	}
}

func TestAPassSaysWhatBecameOfARelease(t *testing.T) {
	for reason, want := range map[string]string{
		"Quarantined":   "why|publish what is mended, or have it tried again with resume --retry",
		"CrashLoop":     "nothing is changed why|resume --retry does not wait",
		"OnFailureHold": "failed or drifted: 1 of 1 assignments; a-x failed (Unhealthy)|publish what is mended; rollback --list shows what can be gone back to",
		"":              "failed or drifted: 1 of 1 assignments; a-x failed (Unhealthy)|",
	} {
		items := []bundle.Item{{Assignment: "a-x", State: bundle.Failed, Reason: "Unhealthy"}}
		err := exitOf(agent.Result{Verdict: agent.Idle, Status: agent.Status{State: bundle.Failed, Reason: reason, Message: "why", Items: items}})
		var failed *cli.Error
		require.ErrorAs(t, err, &failed)
		require.Equal(t, cli.No, failed.Code)
		require.Equal(t, want, failed.Error()+"|"+failed.Hint)
	}
}

func TestTheTableOfStatus(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	before := func(d time.Duration) *time.Time { at := now.Add(-d); return &at }
	var out bytes.Buffer
	require.NoError(t, cli.Print(&out, "table", nil, func(w io.Writer) {
		writeTable(w, agent.Status{
			Cluster: agent.ClusterStatus{Name: "plant-7", Environment: "dev", Type: "drone", Ring: "canary"},
			Version: "v1.2.0", Step: "fetch", State: bundle.Rejected, Reason: "Unsigned", Message: "manifest sha256:e… has no signature",
			Release: agent.ReleaseStates{
				Running: &agent.ReleaseStatus{Digest: digest.FromString("7"), Epoch: 2, Number: 7, AgeSeconds: 5 * 24 * 3600},
				Refused: &agent.RefusedStatus{Digest: digest.FromString("8"), Reason: bundle.Unsigned, At: *before(3 * time.Hour)},
			},
			Queue:       outbox.Status{Length: 2, Oldest: before(90 * time.Second), Coalesced: 40, Dropped: 1, Rejected: 3, Unsent: map[string]string{"https://hub": "hub answered 403 Forbidden: unknown", "oci://r/edge": "away"}},
			LastContact: before(12 * time.Minute), NextTry: before(-time.Minute),
			Items: []bundle.Item{
				{Assignment: "shop-main", Adapter: "directory", State: bundle.Compliant, Since: *before(49 * time.Hour)},
				{Assignment: "till-main", Adapter: "flux", State: bundle.Failed, Since: *before(time.Second), Reason: "DeadlineExceeded", Message: "it was progressing for 5m0s"},
				{Assignment: "w-main", Adapter: "flux", State: bundle.Removed, Since: now},
			},
		}, now)
	}))
	require.Equal(t, `cluster  plant-7 (dev/drone, ring canary)
agent    v1.2.0, busy with fetch
state    rejected Unsigned: manifest sha256:e… has no signature
running  7 (7902699b), issued 5 days ago
refused  2c624232 Unsigned, first 3 hours ago
queue    2 reports, the oldest 90 seconds ago, 40 coalesced, 1 dropped, 3 rejected (reports dead)
unsent   to https://hub: hub answered 403 Forbidden: unknown
unsent   to oci://r/edge: away
contact  12 minutes ago, asked again in 60 seconds
items    1 failed, 1 compliant, 1 removed

ASSIGNMENT  ADAPTER    STATE      SINCE          REASON
shop-main   directory  compliant  2 days ago     -
till-main   flux       failed     1 second ago   DeadlineExceeded: it was progressing for 5m0s
w-main      flux       removed    0 seconds ago  -
`, out.String())
	out.Reset()
	waits := agent.Status{Release: agent.ReleaseStates{
		Running: &agent.ReleaseStatus{Digest: digest.FromString("7"), Sequence: 7}, Desired: &agent.ReleaseStatus{Digest: digest.FromString("8"), Number: 8, AgeSeconds: 60},
	}}
	writeTable(&out, waits, now)
	require.Contains(t, out.String(), "\nnewest\t8 (2c624232), issued 60 seconds ago\n")
	waits.Release.Desired = waits.Release.Running
	out.Reset()
	writeTable(&out, waits, now)
	require.NotContains(t, out.String(), "newest")
	out.Reset()
	writeTable(&out, agent.Status{}, now)
	require.Contains(t, out.String(), "agent\tnot running; showing the last known state\n")
}
