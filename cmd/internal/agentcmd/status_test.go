package agentcmd

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

func TestStatusTellsOfAge(t *testing.T) {
	const day = 24 * 3600
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	until := at.AddDate(0, 0, 90)
	for want, s := range map[string]agent.Status{
		"running\tx sequence 7\n": {Release: agent.ReleaseStates{Running: &agent.ReleaseStatus{Digest: "x", Sequence: 7, AgeSeconds: day}}},
		"running\tx sequence 7 expired, issued 93 days ago, valid for 90 days\n": {
			Release: agent.ReleaseStates{Running: &agent.ReleaseStatus{Digest: "x", Sequence: 7, IssuedAt: &at, ExpiresAt: &until, Expired: true, AgeSeconds: 93 * day}},
		},
		"trust\tversion 2, epoch 1, expires in 200 days\n":                                           {Trust: &agent.TrustStatus{Version: 2, Epoch: 1, DaysLeft: 200}},
		"trust\tversion 2, epoch 1, expires in 1 day: the roots have to sign the next version\n":     {Trust: &agent.TrustStatus{Version: 2, Epoch: 1, DaysLeft: 1}},
		"expired at 2026-03-01T12:00:00Z: nothing new is accepted before the roots have signed the ": {Trust: &agent.TrustStatus{ExpiresAt: at, Expired: true}},
		"clock\tbehind by at least 3 hours\n":                                                        {ClockBehindSeconds: 3*3600 + 5},
	} {
		var out bytes.Buffer
		writeTable(&out, s)
		require.Contains(t, out.String(), want)
	}
}

func TestAPassSaysWhatBecameOfARelease(t *testing.T) {
	for reason, want := range map[string]string{
		"Quarantined":   "why|publish what is mended, or have it tried again with resume --retry",
		"CrashLoop":     "nothing is changed why|resume --retry does not wait",
		"OnFailureHold": "failed or drifted: 1 of 1 assignments; a-x is failed Unhealthy|publish what is mended; rollback --list shows what can be gone back to",
		"":              "failed or drifted: 1 of 1 assignments; a-x is failed Unhealthy|",
	} {
		items := []bundle.Item{{Assignment: "a-x", State: bundle.Failed, Reason: "Unhealthy"}}
		err := exitOf(agent.Result{Verdict: agent.Idle, Status: agent.Status{State: bundle.Failed, Reason: reason, Message: "why", Items: items}})
		var failed *cli.Error
		require.ErrorAs(t, err, &failed)
		require.Equal(t, cli.No, failed.Code)
		require.Equal(t, want, failed.Error()+"|"+failed.Hint)
	}
}
