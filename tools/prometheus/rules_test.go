package prometheus

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each alert, with series that raise it after some hours and series that do not.
func TestAlertsFireWhenTheyShould(t *testing.T) {
	const day = 24 * time.Hour
	tests := map[string]struct {
		after time.Duration
		fires string // for the labels with
		with  []string
		quiet []string
	}{
		"WherryHubGone": {
			time.Hour, `wherry_hub_build_info{instance="a"} 1x10`,
			[]string{`{}`},
			[]string{`wherry_hub_build_info{instance="a"} 1x60`, "wherry_hub_build_info{instance=\"a\"} 1x10\nwherry_hub_build_info{instance=\"b\"} _x9 1x60", `other 1`},
		},
		"WherryClustersSilent": {
			2 * time.Hour, `
				wherry_hub_clusters{environment="prod",state="compliant",instance="a"} 9x120
				wherry_hub_clusters{environment="prod",state="stale",instance="a"} 1x120
				wherry_hub_clusters{environment="dev",state="compliant",instance="a"} 5x120
				wherry_hub_clusters{environment="prod",state="compliant",instance="b"} 9x120
				wherry_hub_clusters{environment="prod",state="stale",instance="b"} 1x120`,
			[]string{`{environment="prod"}`},
			[]string{
				"wherry_hub_clusters{environment=\"prod\",state=\"compliant\"} 99x120\nwherry_hub_clusters{environment=\"prod\",state=\"stale\"} 1x120",
				"wherry_hub_clusters{environment=\"prod\",state=\"compliant\"} 9x120\nwherry_hub_clusters{environment=\"prod\",state=\"stale\"} 0x90 5x30",
			},
		},
		"WherryRolloutFailing": {
			time.Hour, `wherry_hub_release_clusters{platform="p",environment="prod",type="edge",release="2 (ab)",commit="c",verdict="failed"} 0x10 1x50
				wherry_hub_release_clusters{platform="p",environment="prod",type="edge",release="2 (ab)",commit="c",verdict="waiting"} 5x60`,
			[]string{`{commit="c", environment="prod", platform="p", release="2 (ab)", type="edge"}`},
			[]string{`wherry_hub_release_clusters{environment="prod",verdict="failed"} 0x50 1x10`, `wherry_hub_release_clusters{environment="prod",verdict="waiting"} 4x60`},
		},
		"WherryRolloutStuck": {
			2 * day, `wherry_hub_release_clusters{environment="prod",release="2 (ab)",verdict="waiting"} 3x2880`,
			[]string{`{environment="prod", release="2 (ab)"}`},
			[]string{`wherry_hub_release_clusters{environment="prod",verdict="compliant"} 3x2880`, `wherry_hub_release_clusters{environment="prod",verdict="waiting"} 3x2000 0x880`},
		},
		"WherryReleaseExpires": { // issued at the epoch, for 60 days: at day 51 less than a sixth is left
			51 * day, `wherry_hub_release_issued_timestamp_seconds{platform="p",environment="prod",type="edge",release="1"} 0x75000
				wherry_hub_release_expires_timestamp_seconds{platform="p",environment="prod",type="edge",release="1"} 5184000x75000`,
			[]string{`{environment="prod", platform="p", type="edge"}`},
			[]string{`wherry_hub_release_issued_timestamp_seconds{environment="prod"} 2592000x75000
				wherry_hub_release_expires_timestamp_seconds{environment="prod"} 7776000x75000`},
		},
		"WherryTrustExpires": {
			2 * time.Hour, `wherry_hub_trust_expires_timestamp_seconds{platform="p"} 2000000x120`,
			[]string{`{platform="p"}`},
			[]string{`wherry_hub_trust_expires_timestamp_seconds{platform="p"} 3000000x120`},
		},
		"WherryTokenExpires": {
			2 * time.Hour, `wherry_hub_access_token_expires_timestamp_seconds{name="ci",role="publisher"} 1000000x120`,
			[]string{`{name="ci", role="publisher"}`},
			[]string{
				`wherry_hub_access_token_expires_timestamp_seconds{name="ci",role="publisher"} 2000000x120`,
				`wherry_hub_access_token_expires_timestamp_seconds{name="gone",role="viewer"} -1000000x120`,
				"wherry_hub_access_token_expires_timestamp_seconds{name=\"ci\",role=\"p\",instance=\"a\"} 100x120\nwherry_hub_access_token_expires_timestamp_seconds{name=\"ci\",role=\"p\",instance=\"b\"} 2000000x120",
			},
		},
		"WherryHubDiskFull": {
			8 * time.Hour, `
				wherry_hub_disk_free_bytes{instance="full"} 9x480
				wherry_hub_disk_size_bytes{instance="full"} 100x480
				wherry_hub_disk_free_bytes{instance="filling"} 9000-10x480
				wherry_hub_disk_size_bytes{instance="filling"} 10000x480`,
			[]string{`{instance="full"}`, `{instance="filling"}`},
			[]string{"wherry_hub_disk_free_bytes{instance=\"a\"} 50x480\nwherry_hub_disk_size_bytes{instance=\"a\"} 100x480"},
		},
		"WherryReportsRefused": {
			2 * time.Hour, `
				wherry_hub_reports_rejected_total{code="Conflict"} 0x100 1x20
				wherry_hub_requests_refused_total{code="UnknownCluster"} 0+1x120`,
			[]string{`{code="Conflict"}`, `{code="UnknownCluster"}`},
			[]string{`wherry_hub_reports_rejected_total{code="Conflict"} 1x120`, `wherry_hub_requests_refused_total{code="Unauthenticated"} 0+1x120`},
		},
		"WherryHubBusy": {
			time.Hour, `wherry_hub_requests_refused_total{code="Unavailable"} 0+1x60`,
			[]string{`{code="Unavailable"}`},
			[]string{`wherry_hub_requests_refused_total{code="Busy"} 0x10 5x50`, `wherry_hub_requests_refused_total{code="Retired"} 0+1x60`},
		},
		"WherryPromoterDead": {
			4 * time.Hour, `wherry_follow_last_success_timestamp_seconds{instance="a"} 3600x240`,
			[]string{`{}`},
			[]string{
				"wherry_follow_last_success_timestamp_seconds 12000x240\nwherry_follow_steps_total 1x240\nwherry_follow_steps_failed_total 0x240",
				`other 1x240`,
			},
		},
		"WherryAgentFailing": {
			time.Hour, "wherry_agent_state{instance=\"a\",state=\"rejected\"} 1x60\nwherry_agent_state{instance=\"a\",state=\"failed\"} 0x60",
			[]string{`{instance="a", state="rejected"}`},
			[]string{"wherry_agent_state{instance=\"a\",state=\"compliant\"} 1x60\nwherry_agent_state{instance=\"a\",state=\"failed\"} 0x60"},
		},
		"WherryAgentOffline": {
			time.Hour, `wherry_agent_last_contact_age_seconds{instance="a"} 90000x60`,
			[]string{`{instance="a"}`},
			[]string{`wherry_agent_last_contact_age_seconds{instance="a"} 80000x60`},
		},
		"WherryAgentTrustExpires": {
			time.Hour, `wherry_agent_trust_days_left{instance="a"} 13x60`, []string{`{instance="a"}`}, []string{`wherry_agent_trust_days_left{instance="a"} 14x60`},
		},
		"WherryAgentReportsLost": {
			time.Hour, `wherry_agent_queue_dropped_total{instance="a"} 0x30 2x30`, []string{`{instance="a"}`}, []string{`wherry_agent_queue_dropped_total{instance="a"} 2x60`},
		},
		"WherryAgentClockBehind": {
			time.Hour, `wherry_agent_clock_behind_seconds{instance="a"} 90x60`, []string{`{instance="a"}`}, []string{`wherry_agent_clock_behind_seconds{instance="a"} 0x60`},
		},
	}
	rules := alerts(t)
	for name := range rules {
		require.Contains(t, tests, name, "an alert without a test")
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			rule, at := rules[name], time.Unix(0, 0).Add(tt.after)
			require.NotEmpty(t, rule.Expr)
			require.ElementsMatch(t, tt.with, load(t, tt.fires).firing(t, rule, at))
			for _, quiet := range tt.quiet {
				require.Empty(t, load(t, quiet).firing(t, rule, at), quiet)
			}
		})
	}
	// Its other two reasons: a promoter that has never succeeded, and one that is gone.
	for _, series := range []string{"wherry_follow_steps_total 5x240\nwherry_follow_steps_failed_total 5x240", `wherry_follow_steps_total 5x100`} {
		require.Len(t, load(t, series).firing(t, rules["WherryPromoterDead"], time.Unix(0, 0).Add(4*time.Hour)), 1, series)
	}
}

// Each alert says what it is, what to do, and where that is written.
func TestAlertsSayWhatToDo(t *testing.T) {
	for name, r := range alerts(t) {
		require.Contains(t, []string{"critical", "warning"}, r.Labels["severity"], name)
		require.NotEmpty(t, r.Annotations["summary"], name)
		require.NotEmpty(t, r.Annotations["description"], name)
		link, err := url.Parse(r.Annotations["runbook_url"])
		require.NoError(t, err, name)
		page, ok := strings.CutPrefix(link.Path, "/wherry-dev/wherry/blob/main/docs/")
		require.True(t, ok, "%s: %s", name, link)
		text, err := os.ReadFile(filepath.Join("../../docs", page))
		require.NoError(t, err, name)
		require.Contains(t, anchors(string(text)), link.Fragment, "%s: %s has no such section", name, page)
	}
}

// anchors returns the anchors of the headings of a page, as GitHub makes them.
func anchors(page string) (all []string) {
	dropped := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for line := range strings.Lines(page) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(strings.TrimSpace(line), "#"), " "); ok && strings.HasPrefix(line, "#") {
			all = append(all, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(title), ""), " ", "-"))
		}
	}
	return all
}
